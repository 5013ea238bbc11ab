//! Knowledge of a file about the spans of its samples, on which `data.purge: auto` rests.

use megabatch_chunk_io::{SeriesColumn, Source};

use crate::config::{Config, data};
use crate::error::{Error, Result};
use crate::text::plural;

/// Base bars from a sample to the end of its farthest target, in a file without the ends of its
/// labels.
///
/// # Errors
/// A usage failure where the file does not tell, with every way to tell it.
pub(super) fn require_horizon(source: &Source) -> Result<usize> {
    source.horizon_bars()?.ok_or_else(|| unknown_label_ends(source))
}

fn unknown_label_ends(source: &Source) -> Error {
    let (path, is_series) = (source.path(), source.series().is_some());
    let first = match (is_series, source.has_times()) {
        // The list is part of what the mark vouches for.
        (true, _) => "f.pop(\"checksums\", None); ",
        (false, true) => "",
        (false, false) => "f[\"timestamps\"] = times; ",
    };
    let instruments = match is_series || source.calendar_of_samples().is_some() {
        true => String::new(),
        false => format!("\n{NAMED_INSTRUMENTS}: needed beside one of these for samples of several instruments"),
    };
    let duration = match source.has_times() {
        true => DURATION,
        false => "Or give data.purge=0s, which keeps all samples",
    };
    Error::usage(format!(
        "data.purge is auto, and {} does not tell when its labels end, so that they may reach into validation and test. \
         With h5py, f = h5py.File({path:?}, \"r+\"), write one of\n  \
         {first}f[\"samples/label_end_time\"] = ends  # int64 [N], ns since 1970 UTC: close of the last bar that the targets of each sample read\n  \
         {first}f[\"samples/label_end_time\"] = ends; f[\"samples/reach_time\"] = begins  # both; int64 [N], ns: opening of the first bar \
         that the features of each sample read\n  \
         f.attrs[\"horizon_bars\"] = 120  # an integer: bars from a sample to the end of its farthest target, of the shortest timeframe\
         {instruments}\n{duration}",
        path.display()
    ))
}

const NAMED_INSTRUMENTS: &str =
    "  f[\"instruments\"] = [\"EURUSD\", \"USDJPY\"]; f[\"samples/instrument\"] = numbers  # int32 [N], from 0";
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

/// A warning where bars are counted in samples as if all were of one instrument, and the file does
/// not say that they are.
pub(super) fn one_instrument_assumed(source: &Source) -> Result<Option<String>> {
    if source.calendar_of_samples().is_some() || source.attribute("symbol")?.is_some() {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} does not tell whose samples it has: data.purge=auto counts bars in samples as if all were of one instrument. Labels of several \
         leak into validation and test, whose errors then flatter the model: name the instrument in the attribute symbol, or several in \
         /instruments and /samples/instrument",
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
                None if source.calendar_of_samples().is_some() => " counted in samples of each instrument",
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
