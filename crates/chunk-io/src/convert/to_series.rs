#![forbid(unsafe_code)]

//! Windows into a series.

use std::collections::BTreeSet;
use std::path::Path;

use hdf5::File;

use super::DraftFile;
use super::bulk::{Bulk, LeftOpen, compare};
use super::copying::Copier;
use super::journal::Journal;
use super::row_source::{DatasetRows, JournalRows, RowSource, WindowRows};
use super::scan::{require_saving, scan};
use super::series_index::{SeriesIndex, TimeKind, index};
use super::windows_input::WindowsInput;
use super::work::ConversionContext;
use super::{ConversionJob, ConversionStage, Done};
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::series::{FORMAT_VERSION, SeriesColumn, SeriesFile, seal};
use crate::spans::{LABEL_END, REACH};
use crate::storage::OutputFile;
use crate::text::AttributeValue;

pub(super) fn run(job: &ConversionJob<'_>, mut journal: Journal, work: &mut ConversionContext<'_>) -> Result<Done> {
    let windows_input = WindowsInput::open(job)?;
    if windows_input.order.is_some() {
        work.notes.push(
            "the samples are not in the order of their times; they were gone through in it, and keep their places"
                .to_owned(),
        );
    }
    let targets = targets(job, &windows_input)?;
    targets.check(work)?;
    // Checks the chunk size before the number of bars is known.
    (0..windows_input.names.len())
        .try_for_each(|k| values(job, &windows_input, k, windows_input.samples())?.check(work))?;
    let bytes: u64 = targets.bytes() + windows_input.windows_bytes();
    work.expect(2 * bytes);
    let placed = scan(&windows_input, &mut journal, &job.records, work)?;
    require_saving(&placed, &windows_input)?;
    let series = index(&placed, &windows_input)?;
    note(&series, &windows_input, work);

    work.enter(ConversionStage::Writing);
    let (part, ()) = DraftFile::create(work.out, |file| {
        write_index(
            &OutputFile { path: work.out, file, storage: job.options.storage.of_lists() },
            &series,
            &windows_input,
        )?;
        for (k, timeframe) in series.timeframes.iter().enumerate() {
            let bulk = values(job, &windows_input, k, timeframe.bars)?;
            let source = JournalRows { journal: &mut journal, extents: timeframe.extents.clone() };
            write_bulk(file, &bulk, source, work)?;
        }
        let source = DatasetRows::new(&job.input.path, targets.like.clone());
        write_bulk(file, &targets, source, work)?;
        work.advance(targets.bytes())?;
        copy_others(job, file, &series, &windows_input, work)
    })?;
    work.enter(ConversionStage::Verifying);
    seal(part.path(), work.out, job.scope, |_| work.advance(0))?;
    verify(job, part.path(), &series, &windows_input, work)?;
    part.publish()?;
    journal.remove()?;
    let bars = windows_input.names.iter().cloned().zip(series.timeframes.iter().map(|timeframe| timeframe.bars));
    Ok(Done { samples: windows_input.samples(), bars: bars.collect() })
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

fn targets(job: &ConversionJob<'_>, windows_input: &WindowsInput) -> Result<Bulk> {
    let failed = || job.input.failed("/targets", "open the dataset");
    let like = job.input.root.dataset("/targets").map_err(failed())?;
    let shape = vec![windows_input.samples(), windows_input.file.shape().horizons];
    Bulk::new("/targets", shape, like, &job.options.storage, LeftOpen::Default).map_err(failed())
}

fn note(series: &SeriesIndex, windows_input: &WindowsInput, work: &mut ConversionContext<'_>) {
    if series.time_kind == TimeKind::Ordinal {
        let why = match &series.contradiction {
            Some(contradiction) => {
                format!("/timestamps do not fit bars of one length ({contradiction}) and are kept as they are")
            }
            None => "the file has no /timestamps".to_owned(),
        };
        work.notes.push(format!("times in the series tell the order of the samples only (time_kind = ordinal): {why}"));
    }
    if let Some(instruments) = series.instruments.as_ref().filter(|_| series.numbered) {
        let count = instruments.names.len();
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

fn write_index(output: &OutputFile<'_>, series: &SeriesIndex, windows_input: &WindowsInput) -> Result<()> {
    let root = |name: &str, value: AttributeValue| output.write_attribute(output.file, name, &value);
    root("layout", "series".into())?;
    root("format_version", FORMAT_VERSION.into())?;
    let kind = if series.time_kind == TimeKind::Ordinal { "ordinal" } else { "reconstructed" };
    root("time_kind", kind.into())?;
    if windows_input.unnamed {
        root("unnamed_timeframe", windows_input.names[0].as_str().into())?;
    }
    let samples = series.sample_time.len();
    output.write("/samples/time", &[samples], &series.sample_time)?;
    for (name, timeframe) in windows_input.names.iter().zip(&series.timeframes) {
        let list = |name: String, values: &[i64]| output.write(&name, &[values.len()], values).map(drop);
        list(format!("/series/{name}/close_time"), &timeframe.close_time)?;
        list(format!("/samples/end/{name}"), &timeframe.sample_end)?;
        if !timeframe.instrument_start.is_empty() {
            list(format!("/series/{name}/instrument_start"), &timeframe.instrument_start)?;
        }
        if !timeframe.segment_start.is_empty() {
            list(format!("/series/{name}/segment_start"), &timeframe.segment_start)?;
        }
    }
    if let Some(instruments) = &series.instruments {
        output.write_texts("/instruments", &instruments.names)?;
        output.write("/samples/instrument", &[samples], &instruments.sample_instrument)?;
    }
    if series.numbered && series.instruments.is_some() {
        root("instruments_kind", "numbered".into())?;
    }
    Ok(())
}

/// Copies datasets of the windows file other than windows, as far as a series needs them.
fn copy_others(
    job: &ConversionJob<'_>,
    file: &File,
    series: &SeriesIndex,
    windows_input: &WindowsInput,
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let output = OutputFile { path: work.out, file, storage: job.options.storage.of_lists() };
    let input = job.input;
    let mut copier = Copier::default();
    copier.skipped_attributes = ["layout", "format_version"].map(str::to_owned).into();
    copier.skipped.extend((0..windows_input.names.len()).map(|k| windows_input.object(k).to_owned()));
    copier.skipped.extend(["/series", "/samples/time", "/samples/end"].map(str::to_owned));
    if series.instruments.is_some() {
        copier.skipped.extend(["/instruments", "/samples/instrument"].map(str::to_owned));
    }
    if series.time_kind == TimeKind::Reconstructed {
        copier.skipped.insert("/timestamps".to_owned());
    }
    if series.time_kind == TimeKind::Ordinal {
        // The series has no sample times to check them against.
        for object in [REACH, LABEL_END].into_iter().filter(|object| input.has_dataset(object)) {
            copier.skipped.insert(object.to_owned());
            work.notes.push(format!("not copied: {object}, as times in the series tell the order of the samples only"));
        }
    }
    // A group of windows only would stay empty.
    copier.skipped.extend(["/features", "/sequences"].map(str::to_owned).into_iter().filter(|group| {
        let windows = windows_input.file.features().iter().filter(|table| table.object.starts_with(&**group)).count();
        windows > 0 && input.root.group(group).is_ok_and(|group| group.len() == windows as u64)
    }));
    copier.skipped.insert("/feature_names".to_owned());
    copier.written.insert("/targets".to_owned());
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

/// Opens the new file as a reader does, and compares all windows and targets.
fn verify(
    job: &ConversionJob<'_>,
    path: &Path,
    series: &SeriesIndex,
    windows_input: &WindowsInput,
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let file = InputFile::open(path)?;
    let checked = SeriesFile::with_index_in_file(file.clone(), job.scope)?;
    checked.scan_column(SeriesColumn::SampleTime, 0..windows_input.samples(), |first, times| {
        let expected = &series.sample_time[first..first + times.len()];
        let is_same = expected == times;
        if is_same {
            Ok(())
        } else {
            Err(file.broken("/samples/time", "the times of the samples, as they were", "others"))
        }
    })?;
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
    let targets = targets(job, windows_input)?;
    let mut old = DatasetRows::new(windows_input.file.path(), targets.like.clone());
    let mut new =
        DatasetRows::new(path, file.root.dataset("/targets").map_err(file.failed("/targets", "open the dataset"))?);
    compare("/targets", targets.rows(), targets.row_bytes(), &mut old, &mut new, work)
}
