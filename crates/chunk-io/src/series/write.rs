use std::collections::BTreeMap;
use std::path::Path;

use super::check::{SampleIndex, TimeframeIndex, check_samples, check_timeframe};
use super::description::{SeriesDescription, TimeframeDescription};
use super::mark::{
    INSTRUMENT, MarkWriter, MarkedSeries, SAMPLE_TIME, TARGETS, close_time_of, sample_end_of, values_of,
};
use super::rule_checker::index_of;
use super::{FORMAT_VERSION, Scaler, Series, SeriesTimeframe};
use crate::atomic::write_atomically;
use crate::error::{Error, LayoutFault, Result};
use crate::spans::{LABEL_END, REACH, check_label_end, check_reach};
use crate::storage::{OutputFile, WriteOptions};
use crate::text::AttributeValue;
use crate::timeframe::name_problem;
use crate::weights::{WEIGHT, check_weights};

/// Writes `series` in the series layout (docs/reference/formats.md).
///
/// The file appears whole or not at all: until the last moment it is a temporary file in the same
/// folder.
///
/// # Errors
/// [`Error::Invalid`] if the series breaks a rule of the layout: nothing that
/// [`SeriesFile::open`](crate::SeriesFile::open) would refuse is written. [`Error::NotWritable`],
/// [`Error::Io`] and [`Error::Hdf5`] as they say.
pub fn write_series(path: impl AsRef<Path>, series: &Series, options: &WriteOptions) -> Result<()> {
    let path = path.as_ref();
    let description = series.description();
    check_series(series, &description).map_err(|fault| Error::invalid(path, fault))?;
    write_atomically(path, |file| {
        let output = OutputFile { path, file, storage: options.storage };
        write_attributes(&output, &series.attributes)?;
        for (arrays, timeframe) in series.timeframes.iter().zip(&description.timeframes) {
            write_timeframe(&output, arrays, timeframe)?;
        }
        write_samples(&output, series)?;
        write_mark(&output, series, &description)
    })
}

fn write_mark(output: &OutputFile<'_>, series: &Series, description: &SeriesDescription) -> Result<()> {
    let marked = MarkedSeries {
        has_reach: !series.sample_reach_time.is_empty(),
        has_label_end: !series.sample_label_end_time.is_empty(),
        ..MarkedSeries::from_description(description)
    };
    let mark = MarkWriter::create(output.path, output.file, marked.arrays())?;
    for timeframe in &series.timeframes {
        mark.add(&values_of(&timeframe.name), 0, &timeframe.values)?;
        mark.add(&close_time_of(&timeframe.name), 0, &timeframe.close_time)?;
        mark.add(&sample_end_of(&timeframe.name), 0, &timeframe.sample_end)?;
    }
    let lists = [
        (SAMPLE_TIME, &series.sample_time),
        (REACH, &series.sample_reach_time),
        (LABEL_END, &series.sample_label_end_time),
    ];
    let given = lists.iter().filter(|(_, times)| !times.is_empty());
    given.into_iter().try_for_each(|(object, times)| mark.add(object, 0, times))?;
    if let Some(instruments) = &series.instruments {
        mark.add(INSTRUMENT, 0, &instruments.sample_instrument)?;
    }
    if !series.sample_weight.is_empty() {
        mark.add(WEIGHT, 0, &series.sample_weight)?;
    }
    mark.add(TARGETS, 0, &series.targets)?;
    mark.finish(&marked)
}

pub(super) fn write_attributes(output: &OutputFile<'_>, attributes: &BTreeMap<String, AttributeValue>) -> Result<()> {
    output.write_attribute(output.file, "layout", &"series".into())?;
    output.write_attribute(output.file, "format_version", &AttributeValue::Int(FORMAT_VERSION))?;
    attributes.iter().try_for_each(|(name, value)| output.write_attribute(output.file, name, value))
}

fn write_timeframe(output: &OutputFile<'_>, arrays: &SeriesTimeframe, timeframe: &TimeframeDescription) -> Result<()> {
    let TimeframeDescription { name, bars, .. } = timeframe;
    let values = output.write(&values_of(name), &[*bars, timeframe.feature_names.len()], &arrays.values)?;
    output.write_attribute(&values, "seq_len", &AttributeValue::Int(timeframe.steps as i64))?;
    output.write(&close_time_of(name), &[*bars], &arrays.close_time)?;
    output.write(&sample_end_of(name), &[arrays.sample_end.len()], &arrays.sample_end)?;
    write_description(output, timeframe)
}

/// Writes feature names, starts of instruments and segments, and the scaler of a timeframe.
pub(super) fn write_description(output: &OutputFile<'_>, timeframe: &TimeframeDescription) -> Result<()> {
    let TimeframeDescription { name, feature_names, .. } = timeframe;
    output.write_texts(&format!("/feature_names/{name}"), feature_names)?;
    if !timeframe.instrument_start.is_empty() {
        let starts = &timeframe.instrument_start;
        output.write(&format!("/series/{name}/instrument_start"), &[starts.len()], starts)?;
    }
    if !timeframe.segment_start.is_empty() {
        let starts = &timeframe.segment_start;
        output.write(&format!("/series/{name}/segment_start"), &[starts.len()], starts)?;
    }
    timeframe.scaler.iter().try_for_each(|scaler| write_scaler(output, timeframe, scaler))
}

fn write_scaler(output: &OutputFile<'_>, timeframe: &TimeframeDescription, scaler: &Scaler) -> Result<()> {
    let object = format!("/scaler/{}", timeframe.name);
    let features = timeframe.feature_names.len();
    let shape = match scaler.center.len() / features {
        1 => vec![features],
        instruments => vec![instruments, features],
    };
    output.write(&format!("{object}/center"), &shape, &scaler.center)?;
    output.write(&format!("{object}/scale"), &shape, &scaler.scale)?;
    let group = output.file.group(&object).map_err(Error::hdf5(output.path, &object, "open the group"))?;
    output.write_attribute(&group, "kind", &scaler.kind.as_str().into())?;
    output.write_attribute(&group, "fit_end_time", &AttributeValue::Int(scaler.fit_end_time))
}

fn write_samples(output: &OutputFile<'_>, series: &Series) -> Result<()> {
    let samples = series.sample_time.len();
    output.write("/samples/time", &[samples], &series.sample_time)?;
    for (object, times) in [(REACH, &series.sample_reach_time), (LABEL_END, &series.sample_label_end_time)] {
        if !times.is_empty() {
            output.write(object, &[samples], times)?;
        }
    }
    if !series.sample_weight.is_empty() {
        output.write(WEIGHT, &[samples], &series.sample_weight)?;
    }
    output.write("/targets", &[samples, series.targets.len() / samples], &series.targets)?;
    if let Some(instruments) = &series.instruments {
        output.write_texts("/instruments", &instruments.names)?;
        output.write("/samples/instrument", &[samples], &instruments.sample_instrument)?;
    }
    Ok(())
}

/// Every rule of the layout. What passes here passes [`SeriesFile::open`](crate::SeriesFile::open).
fn check_series(series: &Series, description: &SeriesDescription) -> Result<(), LayoutFault> {
    let SeriesDescription { samples, horizons, .. } = *description;
    let targets = series.targets.len();
    let is_table = samples == 0 || horizons > 0 && horizons * samples == targets;
    require(is_table, "/targets", "[N, K] with K at least 1", || format!("{targets} values for {samples} samples"))?;
    check_description(description)?;
    let instrument = series.instruments.as_ref().map_or(&[][..], |instruments| &instruments.sample_instrument);
    let fits = series.instruments.is_none() || instrument.len() == samples;
    require(fits, "/samples/instrument", &format!("{samples} entries"), || instrument.len().to_string())?;
    let count = description.instruments.as_ref().map(Vec::len);
    let index = SampleIndex { time: &series.sample_time, instrument, instruments: count };
    check_samples(&index, 0)?;
    for (object, times) in [(REACH, &series.sample_reach_time), (LABEL_END, &series.sample_label_end_time)] {
        let fits = times.is_empty() || times.len() == samples;
        require(fits, object, &format!("{samples} entries"), || times.len().to_string())?;
    }
    check_reach(&series.sample_reach_time, &series.sample_time, 0)?;
    check_label_end(&series.sample_label_end_time, &series.sample_time, 0)?;
    let weights = series.sample_weight.len();
    require(weights == 0 || weights == samples, WEIGHT, &format!("{samples} entries"), || weights.to_string())?;
    check_weights(&series.sample_weight, 0)?;
    check_targets(&series.targets, horizons)?;
    for (arrays, timeframe) in series.timeframes.iter().zip(&description.timeframes) {
        check_lengths(arrays, timeframe, &index)?;
        check_scaler_numbers(timeframe)?;
        check_values(timeframe, &arrays.values, &arrays.close_time, 0)?;
        let bars = index_of(timeframe, &arrays.close_time, 0);
        check_timeframe(&TimeframeIndex { sample_end: &arrays.sample_end, ..bars }, &index)?;
    }
    Ok(())
}

fn check_lengths(
    arrays: &SeriesTimeframe,
    timeframe: &TimeframeDescription,
    index: &SampleIndex<'_>,
) -> Result<(), LayoutFault> {
    let TimeframeDescription { name, bars, .. } = timeframe;
    let (values, features) = (arrays.values.len(), timeframe.feature_names.len());
    require(bars.checked_mul(features) == Some(values), &values_of(name), "[bars, F]", || {
        format!("{values} values for {bars} bars of {features} features")
    })?;
    let (ends, samples) = (arrays.sample_end.len(), index.time.len());
    require(ends == samples, &sample_end_of(name), &format!("{samples} entries"), || ends.to_string())?;
    let starts = &timeframe.instrument_start;
    require(
        index.instruments.is_some() || starts.is_empty(),
        &format!("/series/{name}/instrument_start"),
        "nothing, as the series names no instruments",
        || format!("{} entries", starts.len()),
    )
}

/// Every rule of the layout that is not about bars and samples.
pub(super) fn check_description(description: &SeriesDescription) -> Result<(), LayoutFault> {
    let SeriesDescription { timeframes, samples, horizons, has_weights: _, instruments, attributes } = description;
    require(*samples > 0, "/samples/time", "at least one sample", || "none".to_owned())?;
    require(*horizons > 0, "/targets", "[N, K] with K at least 1", || "none".to_owned())?;
    require(!timeframes.is_empty(), "/series", "at least one timeframe", || "none".to_owned())?;
    for reserved in ["layout", "format_version"] {
        let absent = !attributes.contains_key(reserved);
        require(absent, "/", "attributes besides `layout` and `format_version`", || format!("`{reserved}`"))?;
    }
    let count = instruments.as_ref().map(Vec::len);
    require(count != Some(0), "/instruments", "at least one instrument", || "none".to_owned())?;
    for (place, timeframe) in timeframes.iter().enumerate() {
        let TimeframeDescription { name, feature_names, bars, .. } = timeframe;
        let repeated = timeframes[..place].iter().any(|earlier| earlier.name == *name);
        require(!repeated, "/series", "each timeframe once", || format!("{name} twice"))?;
        let problem = name_problem(name);
        require(problem.is_none(), "/series", "timeframe names such as M5", || problem.unwrap_or_default().to_owned())?;
        let object = format!("/series/{name}/values");
        require(timeframe.steps > 0, &format!("{object}@seq_len"), "at least 1", || "0".to_owned())?;
        let features = format!("/feature_names/{name}");
        require(!feature_names.is_empty(), &features, "at least one feature", || "none".to_owned())?;
        require(*bars > 0, &object, "at least one bar", || "none".to_owned())?;
        check_scaler_shape(timeframe, count)?;
    }
    Ok(())
}

/// No target is infinite; NaN is an unknown one.
pub(super) fn check_targets(targets: &[f32], horizons: usize) -> Result<(), LayoutFault> {
    let Some(place) = targets.iter().position(|target| target.is_infinite()) else { return Ok(()) };
    Err(LayoutFault {
        object: "/targets".to_owned(),
        index: Some(place / horizons),
        expected: "finite numbers, or NaN for a target that is not known".to_owned(),
        found: format!("{} for target {}", targets[place], place % horizons),
        fix: "correct or drop the prices of the bars after this sample".to_owned(),
    })
}

/// Features are finite, of bars from place `first` on.
pub(super) fn check_values(
    timeframe: &TimeframeDescription,
    values: &[f32],
    close_time: &[i64],
    first: usize,
) -> Result<(), LayoutFault> {
    let TimeframeDescription { name, feature_names, .. } = timeframe;
    let width = feature_names.len();
    let Some(place) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let (bar, feature) = (place / width, &feature_names[place % width]);
    Err(LayoutFault {
        object: values_of(name),
        index: Some(first + bar),
        expected: "finite features".to_owned(),
        found: format!("{} for {feature} of the bar that closes at {}", values[place], close_time[bar]),
        fix: format!("correct or drop the prices and volumes that {feature} is made of, or leave the feature out"),
    })
}

/// A scaler has a number for every feature, or for every instrument and feature.
fn check_scaler_shape(timeframe: &TimeframeDescription, instruments: Option<usize>) -> Result<(), LayoutFault> {
    let TimeframeDescription { name, feature_names, .. } = timeframe;
    let Some(scaler) = &timeframe.scaler else { return Ok(()) };
    let width = feature_names.len();
    let length = |values: &[f64]| values.len() == width || Some(values.len()) == instruments.map(|i| i * width);
    let fits = length(&scaler.center) && scaler.center.len() == scaler.scale.len();
    require(fits, &format!("/scaler/{name}"), "center and scale [F] or [I, F]", || {
        format!("{} and {} values for {width} features", scaler.center.len(), scaler.scale.len())
    })
}

/// Refuses numbers that are not finite, for a scaler of the right shape.
pub(super) fn check_scaler_numbers(timeframe: &TimeframeDescription) -> Result<(), LayoutFault> {
    let TimeframeDescription { name, feature_names, .. } = timeframe;
    let Some(scaler) = &timeframe.scaler else { return Ok(()) };
    let width = feature_names.len();
    for (part, numbers) in [("center", &scaler.center), ("scale", &scaler.scale)] {
        if let Some(place) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(LayoutFault {
                object: format!("/scaler/{name}/{part}"),
                index: Some(place),
                expected: "finite numbers".to_owned(),
                found: format!("{} for {}", numbers[place], feature_names[place % width]),
                fix: "leave the feature out, or scale nothing".to_owned(),
            });
        }
    }
    Ok(())
}

fn require(holds: bool, object: &str, expected: &str, found: impl FnOnce() -> String) -> Result<(), LayoutFault> {
    if holds {
        return Ok(());
    }
    Err(LayoutFault {
        object: object.to_owned(),
        index: None,
        expected: expected.to_owned(),
        found: found(),
        fix: "the series was not written; correct what made it".to_owned(),
    })
}
