//! Windows into a series.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use hdf5::File;

use super::bulk::{Bulk, LeftOpen, compare};
use super::copying::{Copier, plain_datasets};
use super::journal::Journal;
use super::row_source::{DatasetRows, JournalRows, RowSource, WindowRows};
use super::scan::{require_saving, scan};
use super::series_index::{SeriesIndex, TimeKind, index};
use super::windows_input::WindowsInput;
use super::work::ConversionContext;
use super::{ConversionJob, ConversionStage, Done};
use crate::atomic::DraftFile;
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::series::{FORMAT_VERSION, SeriesColumn, SeriesFile, seal};
use crate::shape::Shape;
use crate::slab::Element;
use crate::spans::{LABEL_END, REACH};
use crate::storage::OutputFile;
use crate::text::AttributeValue;
use crate::windows::WindowsFile;

pub(super) fn run(job: &ConversionJob<'_>, mut journal: Journal, work: &mut ConversionContext<'_>) -> Result<Done> {
    let windows_input = WindowsInput::open(job)?;
    if windows_input.order.is_some() {
        work.notes.push(
            "the samples are not in the order of their times; they were gone through in it, and keep their places"
                .to_owned(),
        );
    }
    let targets = targets(job, windows_input.file.shape())?;
    targets.check(work)?;
    // Checks the chunk size before the number of bars is known.
    (0..windows_input.names.len())
        .try_for_each(|k| values(job, &windows_input, k, windows_input.samples())?.check(work))?;
    work.expect(2 * (targets.bytes() + windows_input.windows_bytes()));
    let placed = scan(&windows_input, &mut journal, &job.records, work)?;
    require_saving(&placed, &windows_input)?;
    let series = index(&placed, &windows_input, &mut journal)?;
    note(&series, work);
    let skipped = skipped(job, &series, work);
    let others = other_tables(job, &skipped)?;
    others.iter().try_for_each(|table| table.check(work))?;
    work.expect(2 * others.iter().map(Bulk::bytes).sum::<u64>());

    work.enter(ConversionStage::Writing);
    let (part, ()) = DraftFile::create(work.out, |file| -> Result<()> {
        let output = OutputFile { path: work.out, file, storage: job.options.storage.for_lists() };
        write_index(&output, &series, &mut journal, work)?;
        for (k, timeframe) in series.timeframes.iter().enumerate() {
            let bulk = values(job, &windows_input, k, timeframe.bars)?;
            let source = JournalRows { journal: &mut journal, extents: timeframe.extents.clone() };
            write_bulk(file, &bulk, source, work)?;
        }
        for table in others.iter().chain([&targets]) {
            write_bulk(file, table, DatasetRows::new(&job.input.path, table.like.clone()), work)?;
            work.advance(table.bytes())?;
        }
        let mut copier = Copier::default();
        copier.skipped = skipped;
        copier.written.extend(others.iter().chain([&targets]).map(|table| table.object.clone()));
        copy_others(job, file, &series, copier, work)
    })?;
    work.enter(ConversionStage::Verifying);
    seal(part.path(), work.out, job.scope, |_| work.advance(0))?;
    verify(job, part.path(), &series, others.iter().chain([&targets]), work)?;
    part.publish()?;
    journal.remove()?;
    let bars = windows_input.names.iter().cloned().zip(series.timeframes.iter().map(|timeframe| timeframe.bars));
    Ok(Done { samples: windows_input.samples(), bars: bars.collect() })
}

/// Bytes that [`run`] writes at least, about: those of the targets. Only the windows tell how many
/// bars there are.
pub(super) fn bytes_min(job: &ConversionJob<'_>, work: &ConversionContext<'_>) -> Result<u64> {
    let file = WindowsFile::from_file(job.input.clone(), job.scope)?;
    let targets = targets(job, file.shape())?;
    targets.estimated_bytes(&mut DatasetRows::new(&job.input.path, targets.like.clone()), work)
}

/// The values of a timeframe of `bars` bars.
fn values(job: &ConversionJob<'_>, windows_input: &WindowsInput, k: usize, bars: usize) -> Result<Bulk> {
    let like = windows_input.dataset(k).clone();
    let shape = vec![bars, windows_input.file.shape().timeframes[k].features];
    Bulk::new(
        &format!("/series/{}/values", windows_input.names[k]),
        shape,
        like,
        &job.options.storage,
        LeftOpen::Default,
    )
    .map_err(job.input.failed(windows_input.object(k), "look at the dataset"))
}

fn targets(job: &ConversionJob<'_>, shape: &Shape) -> Result<Bulk> {
    let failed = || job.input.failed("/targets", "open the dataset");
    let like = job.input.root.dataset("/targets").map_err(failed())?;
    let shape = vec![shape.samples, shape.horizons];
    Bulk::new("/targets", shape, like, &job.options.storage, LeftOpen::Default).map_err(failed())
}

fn note(series: &SeriesIndex<'_>, work: &mut ConversionContext<'_>) {
    let windows_input = series.windows_input;
    if series.time_kind == TimeKind::Ordinal {
        let why = match &series.contradiction {
            Some(contradiction) => {
                format!("/timestamps do not fit bars of one length ({contradiction}) and are kept as they are")
            }
            None => "the file has no /timestamps".to_owned(),
        };
        work.notes.push(format!("times in the series tell the order of the samples only (time_kind = ordinal): {why}"));
    }
    if let Some(instruments) = series.instruments.as_ref().filter(|_| series.is_numbered()) {
        let count = instruments.len();
        work.notes
            .push(format!("{count} instruments were told apart and are numbered, as the file does not name them"));
    }
    if windows_input.unnamed {
        work.notes.push(format!(
            "the timeframe has no name in the file and is called {} in the series",
            windows_input.names[0]
        ));
    }
}

fn write_bulk(file: &File, bulk: &Bulk, mut source: impl RowSource, work: &mut ConversionContext<'_>) -> Result<()> {
    let dataset = bulk.create(file, work.out)?;
    bulk.pack(&mut source, 0, work, &mut |unit, packed, work| bulk.write(&dataset, work.out, unit, packed))
}

fn write_index(
    output: &OutputFile<'_>,
    series: &SeriesIndex<'_>,
    journal: &mut Journal,
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let windows_input = series.windows_input;
    let root = |name: &str, value: AttributeValue| output.write_attribute(output.file, name, &value);
    root("layout", "series".into())?;
    root("format_version", FORMAT_VERSION.into())?;
    let kind = if series.time_kind == TimeKind::Ordinal { "ordinal" } else { "reconstructed" };
    root("time_kind", kind.into())?;
    if windows_input.unnamed {
        root("unnamed_timeframe", windows_input.names[0].as_str().into())?;
    }
    let samples = windows_input.samples();
    write_list(output, "/samples/time", samples, work, |rows, times| {
        series.sample_times(rows, times);
        Ok(())
    })?;
    for (k, (name, timeframe)) in windows_input.names.iter().zip(&series.timeframes).enumerate() {
        let list = |name: String, values: &[i64]| output.write(&name, &[values.len()], values).map(drop);
        write_list(output, &format!("/series/{name}/close_time"), timeframe.bars, work, |bars, times| {
            series.close_times(k, &bars, times, journal)
        })?;
        let mut reader = series.reader();
        write_list(output, &format!("/samples/end/{name}"), samples, work, |rows, ends| {
            reader.read(rows, ends, journal, |sample| series.end_of(k, sample))
        })?;
        if !timeframe.instrument_start.is_empty() {
            list(format!("/series/{name}/instrument_start"), &timeframe.instrument_start)?;
        }
        if !timeframe.segment_start.is_empty() {
            list(format!("/series/{name}/segment_start"), &timeframe.segment_start)?;
        }
    }
    if let Some(names) = &series.instruments {
        output.write_texts("/instruments", names)?;
        let mut reader = series.reader();
        write_list(output, "/samples/instrument", samples, work, |rows, instruments| {
            reader.read(rows, instruments, journal, |sample| series.instrument_of(sample))
        })?;
    }
    if series.is_numbered() {
        root("instruments_kind", "numbered".into())?;
    }
    Ok(())
}

/// Writes the list `object` of `len` numbers in pieces that memory has room for, each filled by
/// `fill`, one after the other.
fn write_list<T: Element>(
    output: &OutputFile<'_>,
    object: &str,
    len: usize,
    work: &mut ConversionContext<'_>,
    mut fill: impl FnMut(Range<usize>, &mut [T]) -> Result<()>,
) -> Result<()> {
    let dataset = output.create::<T>(object, &[len])?;
    // Whole chunks, so that none is compressed twice.
    let chunk_rows = dataset.chunk().map_or(1, |chunk| chunk[0]);
    let piece_rows = (work.batch_bytes() / size_of::<T>() / chunk_rows).max(1) * chunk_rows;
    let mut piece = work.buffer::<T>(piece_rows.min(len))?;
    for first in (0..len).step_by(piece_rows) {
        let rows = first..len.min(first + piece_rows);
        let values = &mut piece.as_mut_slice()[..rows.len()];
        fill(rows, values)?;
        output.write_rows(&dataset, first, values)?;
        work.advance(0)?;
    }
    Ok(())
}

/// Objects of the windows file that do not come along as they are, each with all below it.
fn skipped(job: &ConversionJob<'_>, series: &SeriesIndex<'_>, work: &mut ConversionContext<'_>) -> BTreeSet<String> {
    let (windows_input, input) = (series.windows_input, job.input);
    let mut skipped: BTreeSet<String> =
        (0..windows_input.names.len()).map(|k| windows_input.object(k).to_owned()).collect();
    skipped.extend(["/series", "/samples/time", "/samples/end", "/feature_names"].map(str::to_owned));
    if series.instruments.is_some() {
        skipped.extend(["/instruments", "/samples/instrument"].map(str::to_owned));
    }
    if series.time_kind == TimeKind::Reconstructed {
        skipped.insert("/timestamps".to_owned());
    }
    if series.time_kind == TimeKind::Ordinal {
        // The series has no sample times to check them against.
        for object in [REACH, LABEL_END].into_iter().filter(|object| input.has_dataset(object)) {
            skipped.insert(object.to_owned());
            work.notes.push(format!("not copied: {object}, as times in the series tell the order of the samples only"));
        }
    }
    // A group of windows only would stay empty.
    skipped.extend(["/features", "/sequences"].map(str::to_owned).into_iter().filter(|group| {
        let windows = windows_input.file.features().iter().filter(|table| table.object.starts_with(&**group)).count();
        windows > 0 && input.root.group(group).is_ok_and(|group| group.len() == windows as u64)
    }));
    skipped
}

/// Tables of the windows file beside windows and targets.
fn other_tables(job: &ConversionJob<'_>, skipped: &BTreeSet<String>) -> Result<Vec<Bulk>> {
    let skipped: BTreeSet<String> = skipped.iter().cloned().chain(["/targets".to_owned()]).collect();
    let tables = plain_datasets(job.input, &skipped)?;
    tables.iter().map(|(object, dataset)| Bulk::keeping(job, object, dataset)).collect()
}

/// Copies objects of the windows file that are neither windows nor other tables, which are written
/// already.
fn copy_others(
    job: &ConversionJob<'_>,
    file: &File,
    series: &SeriesIndex<'_>,
    mut copier: Copier,
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let windows_input = series.windows_input;
    let output = OutputFile { path: work.out, file, storage: job.options.storage.for_lists() };
    let input = job.input;
    copier.skipped_attributes = ["layout", "format_version"].map(str::to_owned).into();
    for (k, name) in windows_input.names.iter().enumerate() {
        let object = format!("/series/{name}/values");
        let values = file.dataset(&object).map_err(Error::hdf5(work.out, &object, "open the dataset"))?;
        output.write_attribute(&values, "seq_len", &AttributeValue::Int(windows_input.forms[k].steps as i64))?;
        copier.copy_attributes(windows_input.dataset(k), &values, windows_input.object(k), &BTreeSet::new(), input)?;
        write_feature_names(&output, k, name, windows_input, input)?;
    }
    copier.copy(input, file)?;
    work.notes.extend(copier.left_out.into_iter().map(|what| format!("not copied: {what}")));
    Ok(())
}

fn write_feature_names(
    output: &OutputFile<'_>,
    k: usize,
    name: &str,
    windows_input: &WindowsInput,
    input: &InputFile,
) -> Result<()> {
    let features = windows_input.file.shape().timeframes[k].features;
    let object = format!("/feature_names/{name}");
    let candidates = [object.clone(), "/feature_names".to_owned()];
    let found = candidates.iter().find_map(|object| input.texts(object, Some(features)).ok());
    if let Some(names) = found {
        return output.write_texts(&object, &names);
    }
    let names: Vec<String> = (0..features).map(|feature| format!("feature_{feature}")).collect();
    output.write_texts(&object, &names)?;
    let dataset = output.file.dataset(&object).map_err(Error::hdf5(output.path, &object, "open the dataset"))?;
    output.write_attribute(&dataset, "generated", &AttributeValue::Int(1))
}

/// Opens the new file as a reader does, and compares all windows, and `tables` with the old file's.
fn verify<'t>(
    job: &ConversionJob<'_>,
    path: &Path,
    series: &SeriesIndex<'_>,
    tables: impl Iterator<Item = &'t Bulk>,
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let windows_input = series.windows_input;
    let file = InputFile::open(path)?;
    let checked = SeriesFile::with_index_in_file(file.clone(), job.scope)?;
    let samples = windows_input.samples();
    let piece_rows = (work.batch_bytes() / 2 / size_of::<i64>()).clamp(1, samples);
    let [mut expected, mut found] = [work.buffer(piece_rows)?, work.buffer(piece_rows)?];
    for first in (0..samples).step_by(piece_rows) {
        let rows = first..samples.min(first + piece_rows);
        let [expected, found] = [&mut expected, &mut found].map(|times| &mut times.as_mut_slice()[..rows.len()]);
        series.sample_times(rows.clone(), expected);
        checked.read_column(SeriesColumn::SampleTime, rows, found)?;
        if expected != found {
            return Err(file.broken("/samples/time", "the times of the samples, as they were", "others"));
        }
    }
    for (k, name) in windows_input.names.iter().enumerate() {
        let object = format!("/series/{name}/values");
        let form = windows_input.forms[k];
        let bars =
            DatasetRows::new(path, file.root.dataset(&object).map_err(file.failed(&object, "open the dataset"))?);
        let place = checked.timeframes().iter().position(|timeframe| timeframe.name() == name);
        let place = place.expect("the series was written with this timeframe");
        let mut new = WindowRows::new(bars, &checked, place, form.row_bytes, work);
        let mut old = DatasetRows::new(windows_input.file.path(), windows_input.dataset(k).clone());
        compare(windows_input.object(k), windows_input.samples(), form.bytes(), &mut old, &mut new, work)?;
    }
    for table in tables {
        let object = &table.object;
        let new = file.root.dataset(object).map_err(file.failed(object, "open the dataset"))?;
        let mut old = DatasetRows::new(windows_input.file.path(), table.like.clone());
        compare(object, table.rows(), table.row_bytes(), &mut old, &mut DatasetRows::new(path, new), work)?;
    }
    Ok(())
}
