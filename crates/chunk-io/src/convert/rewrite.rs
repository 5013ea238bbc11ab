//! Tables in another storage, or windows cut out of a series. Each chunk is packed once, kept in
//! the journal, and written to the new file when all are packed.

use std::collections::BTreeSet;
use std::path::Path;

use hdf5::{Dataset, File};

use super::bulk::compare;
use super::copying::{Copier, plain_datasets};
use super::journal::{Journal, Record};
use super::packing::PackedChunk;
use super::rewrite_task::RewriteTask;
use super::row_source::DatasetRows;
use super::work::ConversionContext;
use super::{ConversionJob, ConversionStage, Done, windows_file};
use crate::atomic::DraftFile;
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::series::{MARK_GROUP, SeriesFile, seal};
use crate::source::Layout;
use crate::windows::WindowsFile;

/// Kind of a record that holds a packed chunk.
const CHUNK: u32 = 1;

/// A file of any layout, its tables stored as the options say.
pub(super) fn same_layout(job: &ConversionJob<'_>, journal: Journal, work: &mut ConversionContext<'_>) -> Result<Done> {
    let input = job.input;
    let series = series_of(job)?;
    let mut tasks = same_layout_tasks(job)?;
    let mut copier = Copier::default();
    copier.written.extend(tasks.iter().map(|task| task.bulk.object.clone()));
    let mut left_out = Vec::new();
    work.expect(series.as_ref().map_or(0, SeriesFile::array_bytes));
    let write_others = |file: &File| {
        copier.copy(input, file)?;
        left_out.append(&mut copier.left_out);
        Ok(())
    };
    let seal = |draft: &Path, work: &mut ConversionContext<'_>| match &series {
        Some(series) => seal_as(series, draft, job, work),
        None => Ok(()),
    };
    run(job, journal, &mut tasks, work, Steps { write_others, seal })?;
    work.notes.extend(left_out.into_iter().map(|what| format!("not copied: {what}")));
    match series {
        Some(series) => Ok(done_with(&series)),
        // A file of neither layout can be rewritten as well.
        None => {
            let windows = WindowsFile::from_file(input.clone(), job.scope);
            Ok(Done { samples: windows.map_or(0, |windows| windows.shape().samples), bars: Vec::new() })
        }
    }
}

/// Every table of the file.
fn same_layout_tasks(job: &ConversionJob<'_>) -> Result<Vec<RewriteTask<'static>>> {
    let datasets = plain_datasets(job.input, &BTreeSet::new())?;
    datasets.into_iter().map(|(object, dataset)| RewriteTask::keeping(job, &object, dataset)).collect()
}

/// Bytes that [`same_layout`] writes, about.
pub(super) fn same_layout_bytes(job: &ConversionJob<'_>, work: &ConversionContext<'_>) -> Result<u64> {
    packed_bytes(same_layout_tasks(job)?, work)
}

/// Bytes that [`to_windows`] writes, about.
pub(super) fn windows_bytes(job: &ConversionJob<'_>, work: &ConversionContext<'_>) -> Result<u64> {
    let series = SeriesFile::with_index_in_file(job.input.clone(), job.scope)?;
    series.check_held_lists()?;
    let others = windows_file::other_tables(job, &series)?;
    packed_bytes(windows_tasks(job, &series, &others, work)?, work)
}

/// Bytes that [`run`] writes for tables, about: each packed chunk goes to the journal, and from
/// there to the new file.
fn packed_bytes(tasks: Vec<RewriteTask<'_>>, work: &ConversionContext<'_>) -> Result<u64> {
    let mut bytes = 0;
    for RewriteTask { bulk, mut source } in tasks {
        bytes += 2 * bulk.estimated_bytes(&mut *source, work)?;
    }
    Ok(bytes)
}

/// The series of the input, its index in the file; `None` for windows, and for a file without a
/// mark of verification that breaks a rule.
fn series_of(job: &ConversionJob<'_>) -> Result<Option<SeriesFile>> {
    if Layout::recognise(job.input)? != Layout::Series {
        return Ok(None);
    }
    match SeriesFile::with_index_in_file(job.input.clone(), job.scope) {
        Err(error) if error.fault().is_some() && !job.input.has_group(MARK_GROUP) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Gives the new file, which holds the arrays of `series`, a mark of verification.
fn seal_as(series: &SeriesFile, draft: &Path, job: &ConversionJob<'_>, work: &mut ConversionContext<'_>) -> Result<()> {
    let sealed = seal(draft, work.out, job.scope, |bytes| work.advance(bytes as u64));
    let Some(mark) = series.mark() else {
        return match sealed {
            Err(error) if error.fault().is_some() => {
                work.notes.push(format!("the new file has no mark of verification: {error}"));
                Ok(())
            }
            sealed => sealed.map(drop),
        };
    };
    if sealed.as_ref().is_ok_and(|sealed| sealed == mark) {
        return Ok(());
    }
    // The old file is read once more, to name the block that is not as it was written.
    series.fingerprint_of_blocks(|_| Ok::<(), Error>(()))?;
    let expected = "the checksums of the new file";
    sealed.and(Err(job.input.broken(MARK_GROUP, expected, "others, though the arrays are as they were written")))
}

/// The windows of a series, each whole.
pub(super) fn to_windows(job: &ConversionJob<'_>, journal: Journal, work: &mut ConversionContext<'_>) -> Result<Done> {
    let series = SeriesFile::with_index_in_file(job.input.clone(), job.scope)?;
    series.check_in_pieces(|_| work.advance(0))?;
    // Windows are cut from the stored bytes, the numbers of which are checked here, and compared
    // with their checksums if there are any.
    series.fingerprint_of_blocks(|_| work.advance(0))?;
    let others = windows_file::other_tables(job, &series)?;
    let mut tasks = windows_tasks(job, &series, &others, work)?;
    let mut notes = Vec::new();
    let write_others = |file: &File| {
        notes = windows_file::write_others(job, file, &series, &others)?;
        Ok(())
    };
    run(
        job,
        journal,
        &mut tasks,
        work,
        Steps { write_others, seal: |_: &Path, _: &mut ConversionContext<'_>| Ok(()) },
    )?;
    work.notes.append(&mut notes);
    Ok(done_with(&series))
}

/// Windows and targets of `series`, and the `others` of its tables.
fn windows_tasks<'a>(
    job: &ConversionJob<'_>,
    series: &'a SeriesFile,
    others: &[(String, Dataset)],
    work: &ConversionContext<'_>,
) -> Result<Vec<RewriteTask<'a>>> {
    let mut tasks = windows_file::tasks(job, series, work)?;
    for (object, dataset) in others {
        tasks.push(RewriteTask::keeping(job, object, dataset.clone())?);
    }
    Ok(tasks)
}

fn done_with(series: &SeriesFile) -> Done {
    let bars =
        series.timeframes().iter().enumerate().map(|(k, timeframe)| (timeframe.name().to_owned(), series.bars(k)));
    Done { samples: series.shape().samples, bars: bars.collect() }
}

/// Steps of a conversion beside its tables.
struct Steps<W, S> {
    /// Writes everything but the tables.
    write_others: W,
    /// Takes the new file once it is written, before it is compared with the old one.
    seal: S,
}

fn run<'w, W, S>(
    job: &ConversionJob<'_>,
    mut journal: Journal,
    tasks: &mut [RewriteTask<'_>],
    work: &mut ConversionContext<'w>,
    mut steps: Steps<W, S>,
) -> Result<()>
where
    W: FnMut(&File) -> Result<()>,
    S: FnMut(&Path, &mut ConversionContext<'w>) -> Result<()>,
{
    tasks.iter().try_for_each(|task| task.bulk.check(work))?;
    work.expect(3 * tasks.iter().map(|task| task.bulk.bytes()).sum::<u64>());
    let records = pack(&mut journal, tasks, &job.records, work)?;
    work.enter(ConversionStage::Writing);
    let (part, ()) = DraftFile::create(work.out, |file| -> Result<()> {
        write(file, &mut journal, &records, tasks, work)?;
        (steps.write_others)(file)
    })?;
    work.enter(ConversionStage::Verifying);
    (steps.seal)(part.path(), work)?;
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
