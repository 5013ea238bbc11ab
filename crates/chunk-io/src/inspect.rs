//! Contents of a file, its faults, and their fixes.

mod listing;
mod problems;
mod statistics;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use megabatch_gpu_core::{Device, Scope};
use serde::Serialize;

pub use listing::DatasetEntry;
pub use problems::{Problem, ProblemKind, Severity};
pub use statistics::{ColumnStatistics, Occurrences};

use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::numeric_dataset::NumericDataset;
use crate::series::SeriesFile;
use crate::shape::Shape;
use crate::source::{Layout, previous_of_same_instrument};
use crate::text::AttributeValue;
use crate::windows::WindowsFile;
use listing::{list_attributes, list_datasets};
use problems::ColumnKind;
use statistics::scan;

/// Result of [`inspect`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// The file; bytes of its name that are not UTF-8 are replaced when it is serialised.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its layout, if it has one of the two.
    pub layout: Option<Layout>,
    /// Root attributes.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Every dataset in the file, but those of its mark of verification.
    pub datasets: Vec<DatasetEntry>,
    /// Fingerprint in the mark of verification, which all that was read agrees with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Dimensions of the samples, if the file can be used.
    pub shape: Option<Shape>,
    /// The instruments, in the file's order; empty where it names none.
    pub instruments: Vec<InstrumentInspection>,
    /// The timeframes, shortest first; empty if the file cannot be used.
    pub timeframes: Vec<TimeframeInspection>,
    /// Statistics of the targets by horizon, the first being 1.
    pub targets: Vec<ColumnStatistics>,
    /// Times of the samples, where the file has them.
    pub time: Option<TimeSpan>,
    /// Problems, the gravest first.
    pub problems: Vec<Problem>,
}

fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// One timeframe of an [`Inspection`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TimeframeInspection {
    /// Name, `None` for the single unnamed one.
    pub name: Option<String>,
    /// Window length T.
    pub steps: usize,
    /// Bars of a series; `None` for windows.
    pub bars: Option<usize>,
    /// Statistics by feature, over all bars of a series or over all samples and steps of windows.
    pub features: Vec<ColumnStatistics>,
}

/// One instrument of an [`Inspection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstrumentInspection {
    /// Name.
    pub name: String,
    /// Number of bars by timeframe.
    pub bars: BTreeMap<String, usize>,
    /// Number of samples.
    pub samples: usize,
    /// Time of the earliest sample, ns since 1970 UTC; `None`, as the next, without samples.
    pub first_sample_time: Option<i64>,
    /// Time of the latest sample.
    pub last_sample_time: Option<i64>,
}

/// Times of the samples, ns since 1970 UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeSpan {
    /// The earliest.
    pub first: i64,
    /// The latest.
    pub last: i64,
    /// The largest step from one sample to the next of the same instrument, ns; 0 if there is but
    /// one sample.
    pub largest_gap: i64,
    /// The sample after that step.
    pub largest_gap_index: Option<usize>,
}

/// Inspects the whole file at `path`. Values are read once, in pieces.
///
/// # Errors
/// If the file is missing, locked, cut short or no HDF5 file, or if its values cannot be read. A
/// file that is HDF5 but breaks a rule of its layout is no error: the rule is in
/// [`Inspection::problems`].
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    let file = InputFile::open(path.as_ref())?;
    let io = |source| Error::Io { path: file.path.clone(), action: "look at the file", source };
    let mut inspection = Inspection {
        path: file.path.clone(),
        bytes: fs::metadata(&file.path).map_err(io)?.len(),
        layout: None,
        attributes: list_attributes(&file.root),
        datasets: list_datasets(&file),
        fingerprint: None,
        shape: None,
        instruments: Vec::new(),
        timeframes: Vec::new(),
        targets: Vec::new(),
        time: None,
        problems: Vec::new(),
    };
    inspection.problems = problems::in_storage(&inspection.datasets);
    if let Err(error) = inspection.look_inside(file) {
        inspection.problems.push(Problem::from_fault(error.fault().cloned().ok_or(error)?));
    }
    inspection.problems.sort_by_key(|problem| problem.severity);
    Ok(inspection)
}

impl Inspection {
    fn look_inside(&mut self, file: InputFile) -> Result<()> {
        let scope = Device::cpu().scope("inspect");
        let layout = Layout::recognise(&file)?;
        self.layout = Some(layout);
        match layout {
            Layout::Series => self.look_at_series(file, &scope),
            Layout::Windows => self.look_at_windows(file, &scope),
        }
    }

    fn look_at_series(&mut self, file: InputFile, scope: &Scope) -> Result<()> {
        let series = SeriesFile::from_file(file, scope)?;
        self.shape = Some(series.shape().clone());
        self.instruments = InstrumentInspection::all(&series);
        for timeframe in series.timeframes() {
            let features = scan(&timeframe.values_table().allowing_all(), timeframe.feature_names().to_vec())?;
            self.problems.extend(problems::in_columns(
                &timeframe.values_table().object,
                &features,
                ColumnKind::Features,
            ));
            let bars = Some(timeframe.close_times().len());
            self.timeframes.push(TimeframeInspection {
                name: Some(timeframe.name().to_owned()),
                steps: timeframe.steps(),
                bars,
                features,
            });
        }
        self.look_at_targets(series.targets_table())?;
        self.fingerprint = series.fingerprint().map(str::to_owned);
        if series.span_times().label_end_times().is_none() && series.horizon_bars()?.is_none() {
            self.problems.push(problems::without_label_ends());
        }
        self.look_at_times("/samples/time", series.sample_times(), series.sample_instruments());
        Ok(())
    }

    fn look_at_windows(&mut self, file: InputFile, scope: &Scope) -> Result<()> {
        let windows = WindowsFile::from_file(file, scope)?;
        self.shape = Some(windows.shape().clone());
        for (timeframe, table) in windows.shape().timeframes.iter().zip(windows.features()) {
            let names = (0..timeframe.features).map(|feature| format!("feature_{feature}")).collect();
            let features = scan(table, names)?;
            self.problems.extend(problems::in_columns(&table.object, &features, ColumnKind::Features));
            self.problems.extend(problems::in_chunks(table));
            self.timeframes.push(TimeframeInspection {
                name: timeframe.name.clone(),
                steps: timeframe.steps,
                bars: None,
                features,
            });
        }
        self.look_at_targets(windows.targets())?;
        let untimed_list = windows.untimed_span_list();
        match (windows.sample_times(), untimed_list) {
            (Some(times), _) => self.look_at_times("/timestamps", times, None),
            (None, None) => self.problems.push(problems::without_times()),
            (None, Some(list)) => self.problems.push(problems::without_times_beside(list)),
        }
        if untimed_list.is_none()
            && windows.span_times().label_end_times().is_none()
            && windows.horizon_bars()?.is_none()
        {
            self.problems.push(problems::without_label_ends());
        }
        Ok(())
    }

    fn look_at_targets(&mut self, targets: &NumericDataset) -> Result<()> {
        let names = (1..=targets.row_len()).map(|horizon| horizon.to_string()).collect();
        self.targets = scan(&targets.allowing_all(), names)?;
        self.problems.extend(problems::in_columns(&targets.object, &self.targets, ColumnKind::Targets));
        Ok(())
    }

    fn look_at_times(&mut self, object: &str, times: &[i64], instruments: Option<&[i32]>) {
        self.time = TimeSpan::new(times, instruments);
        self.problems.extend(problems::in_times(object, times, instruments));
        self.problems.extend(self.time.as_ref().and_then(|span| problems::in_unit(object, span.first, span.last)));
    }
}

impl InstrumentInspection {
    fn all(series: &SeriesFile) -> Vec<Self> {
        let mut spans: Vec<(usize, Option<(i64, i64)>)> = vec![(0, None); series.instruments().len()];
        for (&place, &time) in series.sample_instruments().unwrap_or_default().iter().zip(series.sample_times()) {
            let (samples, span) = &mut spans[place as usize];
            *samples += 1;
            *span = Some(span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        }
        let instrument = |(k, name): (usize, &String)| {
            let (samples, span) = spans[k];
            let bars = series.timeframes().iter().map(|timeframe| {
                let starts = timeframe.instrument_starts();
                (timeframe.name().to_owned(), (starts[k + 1] - starts[k]) as usize)
            });
            InstrumentInspection {
                name: name.clone(),
                bars: bars.collect(),
                samples,
                first_sample_time: span.map(|(first, _)| first),
                last_sample_time: span.map(|(_, last)| last),
            }
        };
        series.instruments().iter().enumerate().map(instrument).collect()
    }
}

impl TimeSpan {
    fn new(times: &[i64], instruments: Option<&[i32]>) -> Option<Self> {
        let mut span = TimeSpan {
            first: *times.iter().min()?,
            last: *times.iter().max()?,
            largest_gap: 0,
            largest_gap_index: None,
        };
        for (n, earlier) in previous_of_same_instrument(times, instruments) {
            let gap = times[n].saturating_sub(earlier);
            if gap > span.largest_gap {
                (span.largest_gap, span.largest_gap_index) = (gap, Some(n));
            }
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_within_an_instrument() {
        type Found = Option<(i64, i64, i64, Option<usize>)>;
        type Case<'a> = (&'a [i64], Option<&'a [i32]>, Found);
        let cases: [Case<'_>; 5] = [
            (&[], None, None),
            (&[7], None, Some((7, 7, 0, None))),
            (&[1, 2, 9, 11], None, Some((1, 11, 7, Some(2)))),
            (&[1, 2, 100, 103], Some(&[0, 0, 1, 1]), Some((1, 103, 3, Some(3)))),
            (&[i64::MIN, i64::MAX], None, Some((i64::MIN, i64::MAX, i64::MAX, Some(1)))),
        ];
        for (times, instruments, expected) in cases {
            let found = TimeSpan::new(times, instruments);
            let found = found.map(|span| (span.first, span.last, span.largest_gap, span.largest_gap_index));
            assert_eq!(found, expected, "{times:?}");
        }
    }
}
