use std::collections::BTreeMap;
use std::path::Path;

use super::check::{SampleIndex, TimeframeIndex, check_samples, check_timeframe};
use super::mark::{
    INSTRUMENT, MarkWriter, MarkedSeries, SAMPLE_TIME, TARGETS, close_time_of, sample_end_of, values_of,
};
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
    check_series(series).map_err(|fault| Error::invalid(path, fault))?;
    write_atomically(path, |file| {
        let output = OutputFile { path, file, storage: options.storage };
        write_attributes(&output, &series.attributes)?;
        series.timeframes.iter().try_for_each(|timeframe| write_timeframe(&output, timeframe))?;
        write_samples(&output, series)?;
        write_mark(&output, series)
    })
}

fn write_mark(output: &OutputFile<'_>, series: &Series) -> Result<()> {
    let marked = MarkedSeries::from_series(series);
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

fn write_timeframe(output: &OutputFile<'_>, timeframe: &SeriesTimeframe) -> Result<()> {
    let SeriesTimeframe { name, close_time, feature_names, .. } = timeframe;
    let bars = close_time.len();
    let values = output.write(&format!("/series/{name}/values"), &[bars, feature_names.len()], &timeframe.values)?;
    output.write_attribute(&values, "seq_len", &AttributeValue::Int(timeframe.steps as i64))?;
    output.write(&format!("/series/{name}/close_time"), &[bars], close_time)?;
    output.write(&format!("/samples/end/{name}"), &[timeframe.sample_end.len()], &timeframe.sample_end)?;
    write_description(output, timeframe)
}

/// Writes feature names, starts of instruments and segments, and the scaler of a timeframe.
pub(super) fn write_description(output: &OutputFile<'_>, timeframe: &SeriesTimeframe) -> Result<()> {
    let SeriesTimeframe { name, feature_names, .. } = timeframe;
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

fn write_scaler(output: &OutputFile<'_>, timeframe: &SeriesTimeframe, scaler: &Scaler) -> Result<()> {
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
fn check_series(series: &Series) -> Result<(), LayoutFault> {
    let samples = series.sample_time.len();
    require(samples > 0, "/samples/time", "at least one sample", || "none".to_owned())?;
    let horizons = series.targets.len() / samples;
    require(
        horizons > 0 && horizons * samples == series.targets.len(),
        "/targets",
        "[N, K] with K at least 1",
        || format!("{} values for {samples} samples", series.targets.len()),
    )?;
    require(!series.timeframes.is_empty(), "/series", "at least one timeframe", || "none".to_owned())?;
    for reserved in ["layout", "format_version"] {
        let absent = !series.attributes.contains_key(reserved);
        require(absent, "/", "attributes besides `layout` and `format_version`", || format!("`{reserved}`"))?;
    }
    let instruments = series.instruments.as_ref();
    let instrument = instruments.map_or(&[][..], |instruments| &instruments.sample_instrument);
    if let Some(instruments) = instruments {
        require(instrument.len() == samples, "/samples/instrument", &format!("{samples} entries"), || {
            instrument.len().to_string()
        })?;
        require(!instruments.names.is_empty(), "/instruments", "at least one instrument", || "none".to_owned())?;
    }
    let count = instruments.map(|instruments| instruments.names.len());
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
    for (i, timeframe) in series.timeframes.iter().enumerate() {
        let repeated = series.timeframes[..i].iter().any(|earlier| earlier.name == timeframe.name);
        require(!repeated, "/series", "each timeframe once", || format!("{} twice", timeframe.name))?;
        check_lengths(timeframe, samples, count)?;
        let named = Texts { name: &timeframe.name, feature_names: &timeframe.feature_names };
        check_values(named, &timeframe.values, &timeframe.close_time, 0)?;
        check_timeframe(&index_of(timeframe), &index)?;
    }
    Ok(())
}

fn check_lengths(timeframe: &SeriesTimeframe, samples: usize, instruments: Option<usize>) -> Result<(), LayoutFault> {
    let SeriesTimeframe { name, feature_names, close_time, values, .. } = timeframe;
    let features = feature_names.len();
    let problem = name_problem(name);
    require(problem.is_none(), "/series", "timeframe names such as M5", || problem.unwrap_or_default().to_owned())?;
    require(timeframe.steps > 0, &format!("/series/{name}/values@seq_len"), "at least 1", || "0".to_owned())?;
    require(features > 0, &format!("/feature_names/{name}"), "at least one feature", || "none".to_owned())?;
    let expected = close_time.len().checked_mul(features);
    require(expected == Some(values.len()), &format!("/series/{name}/values"), "[bars, F]", || {
        format!("{} values for {} bars of {features} features", values.len(), close_time.len())
    })?;
    let ends = timeframe.sample_end.len();
    require(ends == samples, &format!("/samples/end/{name}"), &format!("{samples} entries"), || ends.to_string())?;
    let starts = &timeframe.instrument_start;
    require(
        instruments.is_some() || starts.is_empty(),
        &format!("/series/{name}/instrument_start"),
        "nothing, as the series names no instruments",
        || format!("{} entries", starts.len()),
    )?;
    check_scaler_shape(timeframe, instruments)?;
    check_scaler_numbers(timeframe)
}

/// No target is infinite; NaN is an unknown one.
pub(super) fn check_targets(targets: &[f32], horizons: usize) -> Result<(), LayoutFault> {
    match targets.iter().position(|target| target.is_infinite()) {
        None => Ok(()),
        Some(place) => Err(LayoutFault {
            object: "/targets".to_owned(),
            index: Some(place / horizons),
            expected: "finite numbers, or NaN for a target that is not known".to_owned(),
            found: format!("{} for target {}", targets[place], place % horizons),
            fix: "correct or drop the prices of the bars after this sample".to_owned(),
        }),
    }
}

/// Names of a timeframe and its features, for messages.
#[derive(Clone, Copy)]
pub(super) struct Texts<'a> {
    pub(super) name: &'a str,
    pub(super) feature_names: &'a [String],
}

/// Features are finite, of bars from place `first` on.
pub(super) fn check_values(
    named: Texts<'_>,
    values: &[f32],
    close_time: &[i64],
    first: usize,
) -> Result<(), LayoutFault> {
    let Texts { name, feature_names } = named;
    let width = feature_names.len();
    let Some(place) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let (bar, feature) = (place / width, &feature_names[place % width]);
    Err(LayoutFault {
        object: format!("/series/{name}/values"),
        index: Some(first + bar),
        expected: "finite features".to_owned(),
        found: format!("{} for {feature} of the bar that closes at {}", values[place], close_time[bar]),
        fix: format!("correct or drop the prices and volumes that {feature} is made of, or leave the feature out"),
    })
}

/// A scaler has a number for every feature, or for every instrument and feature.
pub(super) fn check_scaler_shape(timeframe: &SeriesTimeframe, instruments: Option<usize>) -> Result<(), LayoutFault> {
    let SeriesTimeframe { name, feature_names, .. } = timeframe;
    let Some(scaler) = &timeframe.scaler else { return Ok(()) };
    let width = feature_names.len();
    let length = |values: &[f64]| values.len() == width || Some(values.len()) == instruments.map(|i| i * width);
    let fits = length(&scaler.center) && scaler.center.len() == scaler.scale.len();
    require(fits, &format!("/scaler/{name}"), "center and scale [F] or [I, F]", || {
        format!("{} and {} values for {width} features", scaler.center.len(), scaler.scale.len())
    })
}

/// Refuses numbers that are not finite, for a scaler of the right shape.
pub(super) fn check_scaler_numbers(timeframe: &SeriesTimeframe) -> Result<(), LayoutFault> {
    let SeriesTimeframe { name, feature_names, .. } = timeframe;
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

pub(super) fn index_of(timeframe: &SeriesTimeframe) -> TimeframeIndex<'_> {
    TimeframeIndex {
        name: &timeframe.name,
        steps: timeframe.steps,
        bars: timeframe.close_time.len(),
        close_time: &timeframe.close_time,
        first_bar: 0,
        sample_end: &timeframe.sample_end,
        first_sample: 0,
        instrument_start: &timeframe.instrument_start,
        segment_start: &timeframe.segment_start,
    }
}

pub(super) fn require(
    holds: bool,
    object: &str,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<(), LayoutFault> {
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
