#![forbid(unsafe_code)]

//! Tables in another storage, or windows cut out of a series. Each chunk is packed once, kept in
//! the journal, and written to the new file when all are packed.

use hdf5::File;

use super::DraftFile;
use super::bulk::{Bulk, LeftOpen, compare};
use super::copying::{Copier, plain_datasets};
use super::journal::{Journal, Record};
use super::packing::PackedChunk;
use super::row_source::{DatasetRows, RowSource};
use super::work::ConversionContext;
use super::{ConversionJob, ConversionStage, Done, windows_file};
use crate::error::Result;
use crate::file::InputFile;
use crate::series::SeriesFile;
use crate::source::Layout;
use crate::windows::WindowsFile;

/// Kind of a record that holds a packed chunk.
const CHUNK: u32 = 1;

/// A table with where its rows come from.
pub(super) struct RewriteTask<'a> {
    pub(super) bulk: Bulk,
    pub(super) source: Box<dyn RowSource + 'a>,
}

/// A file of any layout, its tables stored as the options say.
pub(super) fn same_layout(job: &ConversionJob<'_>, journal: Journal, work: &mut ConversionContext<'_>) -> Result<Done> {
    let input = job.input;
    let mut tasks = Vec::new();
    for (object, dataset) in plain_datasets(input)? {
        let shape = dataset.shape();
        let bulk = Bulk::new(&object, shape, dataset.clone(), &job.options.storage, LeftOpen::AsItWas)
            .map_err(input.failed(&object, "look at the dataset"))?;
        tasks.push(RewriteTask { bulk, source: Box::new(DatasetRows::new(&input.path, dataset)) });
    }
    let mut copier = Copier::default();
    copier.written.extend(tasks.iter().map(|task| task.bulk.object.clone()));
    let mut left_out = Vec::new();
    run(job, journal, &mut tasks, work, &mut |file| {
        copier.copy(input, file)?;
        left_out.append(&mut copier.left_out);
        Ok(())
    })?;
    work.notes.extend(left_out.into_iter().map(|what| format!("not copied: {what}")));
    Ok(done(job))
}

/// The windows of a series, each whole.
pub(super) fn to_windows(job: &ConversionJob<'_>, journal: Journal, work: &mut ConversionContext<'_>) -> Result<Done> {
    let series = SeriesFile::from_file(job.input.clone(), job.scope)?;
    let mut tasks = windows_file::tasks(job, &series, work)?;
    let mut notes = Vec::new();
    run(job, journal, &mut tasks, work, &mut |file| {
        notes = windows_file::write_others(job, file, &series)?;
        Ok(())
    })?;
    work.notes.append(&mut notes);
    Ok(done(job))
}

fn done(job: &ConversionJob<'_>) -> Done {
    let layout = Layout::recognise(job.input).unwrap_or(Layout::Windows);
    // A file of neither layout can be rewritten as well.
    match layout {
        Layout::Series => SeriesFile::from_file(job.input.clone(), job.scope).map_or(
            Done { samples: 0, bars: Vec::new() },
            |series| {
                let bars = series
                    .timeframes()
                    .iter()
                    .map(|timeframe| (timeframe.name().to_owned(), timeframe.close_times().len()));
                Done { samples: series.shape().samples, bars: bars.collect() }
            },
        ),
        Layout::Windows => {
            let windows = WindowsFile::from_file(job.input.clone(), job.scope);
            Done { samples: windows.map_or(0, |windows| windows.shape().samples), bars: Vec::new() }
        }
    }
}

fn run(
    job: &ConversionJob<'_>,
    mut journal: Journal,
    tasks: &mut [RewriteTask<'_>],
    work: &mut ConversionContext<'_>,
    others: &mut dyn FnMut(&File) -> Result<()>,
) -> Result<()> {
    tasks.iter().try_for_each(|task| task.bulk.check(work))?;
    work.expect(3 * tasks.iter().map(|task| task.bulk.bytes()).sum::<u64>());
    let records = pack(&mut journal, tasks, &job.records, work)?;
    work.enter(ConversionStage::Writing);
    let (part, ()) = DraftFile::create(work.out, |file| {
        write(file, &mut journal, &records, tasks, work)?;
        others(file)
    })?;
    work.enter(ConversionStage::Verifying);
    let file = InputFile::open(part.path())?;
    for RewriteTask { bulk, source } in tasks {
        let new = file.root.dataset(&bulk.object).map_err(file.failed(&bulk.object, "open the dataset"))?;
        let mut new = DatasetRows::new(part.path(), new);
        compare(&bulk.object, bulk.rows(), bulk.row_bytes(), &mut **source, &mut new, work)?;
    }
    drop(file);
    part.publish()?;
    journal.remove()
}

/// Index of a chunk among all.
fn index(task: usize, unit: usize) -> u64 {
    ((task as u64) << 40) | unit as u64
}

/// Packs every chunk that is not in the journal yet. Returns the records of all, in the order of
/// the tables and their chunks.
fn pack(
    journal: &mut Journal,
    tasks: &mut [RewriteTask<'_>],
    found: &[Record],
    work: &mut ConversionContext<'_>,
) -> Result<Vec<Record>> {
    let mut records = found.to_vec();
    let mut before = 0;
    for (number, RewriteTask { bulk, source }) in tasks.iter_mut().enumerate() {
        let there = (records.len() - before).min(bulk.units());
        let mut whole = records[before..before + there].iter().enumerate();
        let in_place = |(unit, record): (usize, &Record)| record.kind == CHUNK && record.index == index(number, unit);
        assert!(whole.all(in_place), "a record whose checksum holds was written for this place");
        work.advance((there * bulk.unit_rows()).min(bulk.rows()) as u64 * bulk.row_bytes() as u64)?;
        bulk.pack(&mut **source, there, work, &mut |unit, packed, work| {
            records.push(journal.append(CHUNK, packed.mask, index(number, unit), &[&packed.bytes])?);
            work.advance(bulk.bytes_of(unit))
        })?;
        before += bulk.units();
    }
    journal.sync()?;
    Ok(records)
}

fn write(
    file: &File,
    journal: &mut Journal,
    records: &[Record],
    tasks: &[RewriteTask<'_>],
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let mut records = records.iter();
    for RewriteTask { bulk, .. } in tasks {
        let dataset = bulk.create(file, work.out)?;
        for unit in 0..bulk.units() {
            let record = records.next().expect("there is a record for every chunk");
            let mut packed = PackedChunk { mask: record.mask, bytes: vec![0; record.bytes as usize] };
            journal.read(record.offset, &mut packed.bytes)?;
            bulk.write(&dataset, work.out, unit, &packed)?;
            work.advance(bulk.bytes_of(unit))?;
        }
    }
    Ok(())
}
