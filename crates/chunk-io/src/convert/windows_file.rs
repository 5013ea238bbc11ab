//! A series into windows.

use std::collections::BTreeSet;

use hdf5::{Dataset, File};

use super::ConversionJob;
use super::bulk::{Bulk, LeftOpen};
use super::copying::{Copier, plain_datasets};
use super::rewrite_task::RewriteTask;
use super::row_source::{DatasetRows, WindowRows};
use super::work::ConversionContext;
use crate::error::{Error, Result};
use crate::series::SeriesFile;
use crate::storage::OutputFile;
use crate::text::AttributeValue;

/// The windows of each timeframe, the targets, and the sample times unless they are ordinal.
pub(super) fn tasks<'a>(
    job: &ConversionJob<'_>,
    series: &'a SeriesFile,
    work: &ConversionContext<'_>,
) -> Result<Vec<RewriteTask<'a>>> {
    let (input, samples) = (job.input, series.shape().samples);
    let storage = &job.options.storage;
    let mut tasks = Vec::new();
    for (k, timeframe) in series.timeframes().iter().enumerate() {
        let values = format!("/series/{}/values", timeframe.name());
        let failed = || input.failed(&values, "open the dataset");
        let like = input.root.dataset(&values).map_err(failed())?;
        let shape = vec![samples, timeframe.steps(), timeframe.feature_names().len()];
        let bulk = Bulk::new(&object(job, series, timeframe.name())?, shape, like.clone(), storage, LeftOpen::Default)
            .map_err(failed())?;
        let row_bytes = bulk.row_bytes() / timeframe.steps();
        let bars = DatasetRows::new(&input.path, like);
        let source = WindowRows::new(bars, series, k, row_bytes, work);
        tasks.push(RewriteTask { bulk, source: Box::new(source) });
    }
    let mut tables = vec![("/targets", "/targets")];
    if !is_ordinal(job)? {
        tables.push(("/samples/time", "/timestamps"));
    }
    for (old, new) in tables {
        let failed = || input.failed(old, "open the dataset");
        let like = input.root.dataset(old).map_err(failed())?;
        let bulk = Bulk::new(new, like.shape(), like.clone(), storage, LeftOpen::Default).map_err(failed())?;
        tasks.push(RewriteTask { bulk, source: Box::new(DatasetRows::new(&input.path, like)) });
    }
    Ok(tasks)
}

/// True if the times of the series encode the order only; the original times are kept beside them.
fn is_ordinal(job: &ConversionJob<'_>) -> Result<bool> {
    Ok(job.input.attribute("/", "time_kind")? == Some(AttributeValue::from("ordinal")))
}

/// Path of a timeframe's windows: below `/features`, or `/features` itself for a timeframe without
/// a name.
fn object(job: &ConversionJob<'_>, series: &SeriesFile, name: &str) -> Result<String> {
    let unnamed = job.input.attribute("/", "unnamed_timeframe")? == Some(AttributeValue::from(name));
    Ok(if unnamed && series.timeframes().len() == 1 { "/features".to_owned() } else { format!("/features/{name}") })
}

/// Objects of the series that do not come along as they are, each with all below it.
fn skipped(job: &ConversionJob<'_>, series: &SeriesFile) -> Result<BTreeSet<String>> {
    let mut skipped = BTreeSet::from(["/series", "/samples/time", "/samples/end", "/features"].map(str::to_owned));
    if !is_ordinal(job)? {
        skipped.insert("/timestamps".to_owned());
    }
    for timeframe in series.timeframes() {
        let names = format!("/feature_names/{}", timeframe.name());
        if job.input.attribute(&names, "generated")?.is_some() {
            skipped.insert(names);
        }
    }
    Ok(skipped)
}

/// Tables of the series beside bars, targets and sample times, by path.
pub(super) fn other_tables(job: &ConversionJob<'_>, series: &SeriesFile) -> Result<Vec<(String, Dataset)>> {
    let mut skipped = skipped(job, series)?;
    skipped.insert("/targets".to_owned());
    plain_datasets(job.input, &skipped)
}

/// Writes everything but the tables; those in `others` keep their paths. Returns notes for the
/// user.
pub(super) fn write_others(
    job: &ConversionJob<'_>,
    file: &File,
    series: &SeriesFile,
    others: &[(String, Dataset)],
) -> Result<Vec<String>> {
    let input = job.input;
    let output = OutputFile { path: job.out, file, storage: job.options.storage.for_lists() };
    output.write_attribute(file, "layout", &"windows".into())?;
    let mut copier = Copier::default();
    copier.skipped_attributes =
        ["layout", "format_version", "time_kind", "unnamed_timeframe"].map(str::to_owned).into();
    copier.skipped = skipped(job, series)?;
    copier.written.insert("/targets".to_owned());
    copier.written.extend(others.iter().map(|(object, _)| object.clone()));
    for timeframe in series.timeframes() {
        let (values, object) = (format!("/series/{}/values", timeframe.name()), object(job, series, timeframe.name())?);
        let old = input.root.dataset(&values).map_err(input.failed(&values, "open the dataset"))?;
        let new = file.dataset(&object).map_err(Error::hdf5(job.out, &object, "open the dataset"))?;
        copier.copy_attributes(&old, &new, &values, &BTreeSet::from(["seq_len".to_owned()]), input)?;
    }
    copier.copy(input, file)?;
    let mut notes: Vec<String> = copier.left_out.iter().map(|what| format!("not copied: {what}")).collect();
    notes.push("a windows file has no close times, no segments, and no bars that no window shows".to_owned());
    Ok(notes)
}
