//! Knowledge of a file about the spans of its samples, on which `data.purge: auto` rests.

use megabatch_chunk_io::{AttributeValue, SeriesColumn, Source, TimeframeShape, longest_bar_ns};

use crate::config::{Config, data};
use crate::error::{Error, Result};
use crate::text::plural;

/// Index of the first timeframe whose name does not tell how long its bars are, though the reach of
/// windows rests on it: `base` does not tell, as windows may be of longer bars. `None` for samples
/// without times and `base`, which stand a bar apart, if they are of one timeframe.
pub(super) fn timeframe_without_length(source: &Source) -> Result<Option<usize>> {
    let timeframes = &source.shape().timeframes;
    let stand_a_bar_apart = match source.series() {
        Some(_) => has_ordinal_times(source)?,
        None => !source.has_times() && timeframes.len() == 1 && source.attribute("base")?.is_none(),
    };
    Ok(first_of_unknown_length(source).filter(|_| !stand_a_bar_apart))
}

/// Index of the first timeframe whose name does not tell how long its bars are.
fn first_of_unknown_length(source: &Source) -> Option<usize> {
    let tells_none = |timeframe: &TimeframeShape| timeframe.name.as_deref().and_then(longest_bar_ns).is_none();
    source.shape().timeframes.iter().position(tells_none)
}

/// True if the times of a series only order its samples and bars.
pub(crate) fn has_ordinal_times(source: &Source) -> Result<bool> {
    Ok(source.attribute("time_kind")? == Some(AttributeValue::from("ordinal")))
}

/// Base bars from a sample to the end of its farthest target, in a file without the ends of its
/// labels.
///
/// # Errors
/// A usage failure where the file does not tell, with every way to tell it.
pub(super) fn require_horizon(source: &Source) -> Result<usize> {
    match source.horizon_bars()? {
        Some(bars) => Ok(bars),
        None if source.series().is_some() && has_ordinal_times(source)? => Err(unknown_label_bars(source)),
        None => Err(unknown_label_ends(source, timeframe_without_length(source)?.is_some())),
    }
}

/// The refusal of a file without the ends of its labels. `horizon_needs_length` is true if a
/// count of bars needs the length of each, as lists do, which come with times.
fn unknown_label_ends(source: &Source, horizon_needs_length: bool) -> Error {
    let (path, first) = (source.path(), before_lists(source));
    let instruments = match source.series().is_some() || source.sample_instruments().is_some() {
        true => String::new(),
        false => format!("\n{NAMED_INSTRUMENTS}: needed beside one of these for samples of several instruments"),
    };
    let or_horizon = if horizon_needs_length { ", or horizon_bars" } else { "" };
    let length = match first_of_unknown_length(source).filter(|_| !has_list(source, SeriesColumn::ReachTime)) {
        None => String::new(),
        Some(timeframe) => format!("\n  {}: needed beside one list{or_horizon}", naming(source, timeframe)),
    };
    Error::usage(format!(
        "data.purge is auto, and {} does not tell when its labels end, so that they may reach into validation and test. \
         With h5py, f = h5py.File({path:?}, \"r+\"), write one of\n  \
         {first}f[\"samples/label_end_time\"] = ends  # int64 [N], ns since 1970 UTC: close of the last bar that the targets of each sample read\n  \
         {first}f[\"samples/label_end_time\"] = ends; f[\"samples/reach_time\"] = begins  # both; int64 [N], ns: opening of the first bar \
         that the features of each sample read\n  \
         {HORIZON_BARS}{length}{instruments}\n{}",
        path.display(),
        or_a_duration(source)
    ))
}

/// As [`unknown_label_ends`], of a series whose times only order samples: lists of times and
/// durations mean nothing there.
fn unknown_label_bars(source: &Source) -> Error {
    let path = source.path();
    Error::usage(format!(
        "data.purge is auto, and {} does not tell when its labels end, so that they may reach into validation and test. Its times only order \
         samples. With h5py, f = h5py.File({path:?}, \"r+\"), write\n  {HORIZON_BARS}\n{KEEP_ALL}",
        path.display()
    ))
}

/// Requires the length of the bars of each timeframe, of which windows without
/// `/samples/reach_time` are counted.
///
/// # Errors
/// A usage failure where the name of a timeframe tells none, with every way to tell it.
pub(super) fn require_bar_lengths(source: &Source) -> Result<()> {
    let Some(timeframe) = timeframe_without_length(source)? else { return Ok(()) };
    let (path, name) = (source.path(), timeframe_name(source, timeframe));
    let window = name.map_or_else(|| "a window of /features".to_owned(), |name| format!("a window of {name}"));
    let first = before_lists(source);
    let ends = match has_list(source, SeriesColumn::LabelEndTime) {
        true => "",
        false => "f[\"samples/label_end_time\"] = ends; ",
    };
    Err(Error::usage(format!(
        "data.purge is auto, and {} does not tell how far {window} reaches back: nothing says how long its bars are, and it has no \
         /samples/reach_time. With h5py, f = h5py.File({path:?}, \"r+\"), write one of\n  {}\n  \
         {first}{ends}f[\"samples/reach_time\"] = begins  # int64 [N], ns since 1970 UTC: opening of the first bar that the features of each \
         sample read\n{}",
        path.display(),
        naming(source, timeframe),
        or_a_duration(source)
    )))
}

/// The way to name a timeframe by the length of its bars.
fn naming(source: &Source, timeframe: usize) -> String {
    match (source.series(), timeframe_name(source, timeframe)) {
        (Some(_), _) => {
            "a series anew, of windows whose timeframe is named M1, H4 or D1, by the length of its bars".to_owned()
        }
        (None, None) => {
            "f.move(\"features\", \"M1\"); f.move(\"M1\", \"features/M1\")  # or H4, D1 and so on: the length of a bar"
                .to_owned()
        }
        (None, Some(name)) => format!("{name} under the name M1, H4 or D1, which is the length of its bars"),
    }
}

fn timeframe_name(source: &Source, timeframe: usize) -> Option<&str> {
    source.shape().timeframes[timeframe].name.as_deref()
}

/// Requires the times of the samples of windows that have a list of their spans.
///
/// # Errors
/// A usage failure where the file has none.
pub(super) fn require_times_beside_lists(source: &Source) -> Result<()> {
    let Some(list) = source.untimed_span_list() else { return Ok(()) };
    let path = source.path();
    Err(Error::usage(format!(
        "data.purge is auto, and {} has {list} and no /timestamps, so that nothing tells which samples come before these times. With h5py, \
         f = h5py.File({path:?}, \"r+\"), write\n  \
         f[\"timestamps\"] = times  # int64 [N], ns since 1970 UTC: the close of the last bar of each window\n{}",
        path.display(),
        or_a_duration(source)
    )))
}

/// The refusal of windows whose labels count bars of unknown length.
pub(super) fn unknown_base(source: &Source) -> Error {
    let path = source.path();
    Error::usage(format!(
        "data.purge is auto, and {} does not tell how long the bars are that horizon_bars counts. With h5py, f = h5py.File({path:?}, \"r+\"), \
         write one of\n  f.attrs[\"base\"] = \"M1\"  # or H4, D1 and so on: the length of these bars\n  \
         f[\"samples/label_end_time\"] = ends  # int64 [N], ns since 1970 UTC: close of the last bar that the targets of each sample read\n\
         {DURATION}",
        path.display()
    ))
}

/// The line that must come before lists of times are written.
fn before_lists(source: &Source) -> &'static str {
    match (source.series(), source.has_times()) {
        // Lists are part of what the mark vouches for.
        (Some(_), _) => "f.pop(\"checksums\", None); ",
        (None, true) => "",
        (None, false) => "f[\"timestamps\"] = times; ",
    }
}

fn or_a_duration(source: &Source) -> &'static str {
    if source.has_times() { DURATION } else { KEEP_ALL }
}

const NAMED_INSTRUMENTS: &str =
    "  f[\"instruments\"] = [\"EURUSD\", \"USDJPY\"]; f[\"samples/instrument\"] = numbers  # int32 [N], from 0";
const HORIZON_BARS: &str = "f.attrs[\"horizon_bars\"] = 120  # an integer: bars from a sample to the end of its farthest target, of the shortest timeframe";
const KEEP_ALL: &str = "Or give data.purge=0s, which keeps all samples";
const DURATION: &str = "Or give the time from the first bar of a window to the end of its label, such as data.purge=8d";

/// The refusal of samples of windows whose instruments are not named, though the time of `sample`
/// is not after that of the one before.
pub(super) fn unnamed_instruments(source: &Source, sample: usize) -> Error {
    let path = source.path();
    let lists = [
        ("f[\"samples/label_end_time\"] = ends", source.sample_label_end_times()),
        ("f[\"samples/reach_time\"] = begins", source.sample_reach_times()),
    ];
    let missing: Vec<&str> = lists.iter().filter(|(_, list)| list.is_none()).map(|(line, _)| *line).collect();
    Error::usage(format!(
        "data.purge is auto and counts bars in samples, and {} does not name instruments, though times in /timestamps do not increase at sample \
         {sample}, as where there are several. With h5py, f = h5py.File({path:?}, \"r+\"), write\n\
         {NAMED_INSTRUMENTS}; one name if there is one\n\
         or\n  {}  # int64 [N], ns since 1970 UTC\n{DURATION}",
        path.display(),
        missing.join("; ")
    ))
}

/// Assumptions that bars are counted by in a file that does not list the spans of its samples:
/// warnings, sentences without their full stop.
pub(super) fn assumptions(source: &Source) -> Result<Vec<String>> {
    Ok([one_instrument_assumed(source)?, one_bar_a_sample_assumed(source)?].into_iter().flatten().collect())
}

/// A warning where bars are counted as if all were of one instrument, and the file does not say
/// that they are.
fn one_instrument_assumed(source: &Source) -> Result<Option<String>> {
    // A series that was not made of windows is of one instrument where it names none.
    let is_told = source.series().is_some() && source.attribute("time_kind")?.is_none();
    if is_told || source.sample_instruments().is_some() || source.attribute("symbol")?.is_some() {
        return Ok(None);
    }
    let (counted, several) = match source.series() {
        Some(_) => ("bars", "convert windows that name several in /instruments and /samples/instrument"),
        None => ("bars in samples", "several in /instruments and /samples/instrument"),
    };
    Ok(Some(format!(
        "{} does not tell whose samples it has: data.purge=auto counts {counted} as if all were of one instrument. Labels of several \
         leak into validation and test, whose errors then flatter the model: name the instrument in the attribute symbol, or {several}",
        source.path().display()
    )))
}

/// A warning where each sample without a time is taken for a bar, and the file does not say whose
/// closes samples stand at.
fn one_bar_a_sample_assumed(source: &Source) -> Result<Option<String>> {
    let is_told = source.attribute("base")?.is_some() && first_of_unknown_length(source).is_none();
    if source.has_times() || is_told {
        return Ok(None);
    }
    let bar = source.shape().timeframes[0].name.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    Ok(Some(format!(
        "{} has no /timestamps: data.purge=auto takes each sample for one bar{bar}. Labels of samples that stand closer leak into validation \
         and test, whose errors then flatter the model: write /timestamps, or name windows by the length of their bars, such as \
         M5, and in the attribute base the bars that samples stand at, such as M1",
        source.path().display()
    )))
}

/// The source of the distance between the parts of a split, as a sentence; `None` where nothing is
/// cut off from training.
pub(crate) fn purge_basis(source: &Source, config: &Config) -> Result<Option<String>> {
    if !config.has_unseen() {
        return Ok(None);
    }
    let horizon = source.horizon_bars()?;
    let has_labels = has_list(source, SeriesColumn::LabelEndTime);
    if config.purge_ns().is_some() {
        let duration = config.text(&data::PURGE.key);
        return Ok(Some(match has_labels || horizon.is_some() {
            true => format!("Purge by data.purge={duration}."),
            false => format!("Purge by data.purge={duration} alone: the file does not tell when its labels end."),
        }));
    }
    let labels = match horizon.filter(|_| !has_labels) {
        None => "/samples/label_end_time".to_owned(),
        Some(bars) => {
            let counted = match source.series() {
                Some(_) => "",
                None if source.sample_instruments().is_some() => " counted in samples of each instrument",
                None => " counted in samples, all of one instrument",
            };
            format!("horizon_bars, {}{counted},", plural(bars, "bar"))
        }
    };
    let reach = match has_list(source, SeriesColumn::ReachTime) {
        true => "/samples/reach_time",
        false => "the bars of windows, without those before them that features look back at (no /samples/reach_time)",
    };
    Ok(Some(format!("Purge by {labels} and {reach}.")))
}

/// True if the file has a list of the spans of its samples.
fn has_list(source: &Source, column: SeriesColumn) -> bool {
    match (source.series(), column) {
        (Some(series), _) => series.file().has_column(column),
        (None, SeriesColumn::LabelEndTime) => source.sample_label_end_times().is_some(),
        (None, _) => source.sample_reach_times().is_some(),
    }
}
