use std::sync::OnceLock;

use megabatch_gpu_core::{Buffer, Scope};

use super::check::TimeframeIndex;
use super::mark::{Mark, MarkedTimeframe, all_segment_starts};
use super::{INDICES, Scaler, TIMES};
use crate::error::Result;
use crate::file::InputFile;
use crate::numeric_dataset::{AllowedNumbers, ElementKind, Expect, NumericDataset};
use crate::shape::TimeframeShape;
use crate::text::AttributeValue;

const VALUES: Expect = Expect { what: "floats [bars, F]", kinds: &[ElementKind::Float], ranks: 2..=2 };
const SCALER: Expect = Expect { what: "floats [F] or [I, F]", kinds: &[ElementKind::Float], ranks: 1..=2 };

/// Counts that a timeframe must agree with.
pub(super) struct ExpectedCounts {
    pub(super) samples: usize,
    /// `None` where the file names no instruments.
    pub(super) instruments: Option<usize>,
}

/// One timeframe of a [`SeriesFile`](crate::SeriesFile).
#[derive(Debug)]
pub struct SeriesTimeframeFile {
    name: String,
    steps: usize,
    feature_names: Vec<String>,
    close_time_table: NumericDataset,
    sample_end_table: NumericDataset,
    /// Index arrays, once they were checked.
    pub(super) arrays: OnceLock<TimeframeArrays>,
    instrument_start: Vec<i64>,
    segment_start: Vec<i64>,
    scaler: Option<Scaler>,
    values: NumericDataset,
}

/// Index arrays of a timeframe in memory.
#[derive(Debug)]
pub(super) struct TimeframeArrays {
    close_time: Buffer<i64>,
    sample_end: Buffer<i64>,
}

impl SeriesTimeframeFile {
    pub(super) fn open(file: &InputFile, name: String, counts: &ExpectedCounts) -> Result<Self> {
        let mut values = file.table(&format!("/series/{name}/values"), &VALUES)?;
        values.require_elements()?;
        let close_time = file.table(&format!("/series/{name}/close_time"), &TIMES)?;
        close_time.require_rows(values.rows(), &values.object)?;
        close_time.require_written()?;
        let sample_end = file.table(&format!("/samples/end/{name}"), &INDICES)?;
        sample_end.require_rows(counts.samples, "/samples/time")?;
        let starts_max = values.rows().max(counts.instruments.unwrap_or(0)) + 1;
        let instrument_start = match counts.instruments {
            None => Vec::new(),
            Some(_) => file.table(&format!("/series/{name}/instrument_start"), &INDICES)?.read_list(starts_max)?,
        };
        let segment_start = match format!("/series/{name}/segment_start") {
            object if file.has_dataset(&object) => file.table(&object, &INDICES)?.read_list(starts_max)?,
            _ => Vec::new(),
        };
        let steps = read_steps(file, &values)?;
        let feature_names = file.texts(&format!("/feature_names/{name}"), Some(values.row_len()))?;
        values.allow(AllowedNumbers::Finite(feature_names.as_slice().into()));
        Ok(SeriesTimeframeFile {
            steps,
            feature_names,
            close_time_table: close_time,
            sample_end_table: sample_end,
            arrays: OnceLock::new(),
            instrument_start,
            segment_start,
            scaler: read_scaler(file, &name, values.row_len(), counts.instruments.unwrap_or(0))?,
            values,
            name,
        })
    }

    /// Compares arrays with the checksums of `mark` from now on, when they are read.
    pub(super) fn verify_by(&mut self, mark: &Mark) {
        for table in [&mut self.values, &mut self.close_time_table, &mut self.sample_end_table] {
            table.set_checksums(mark.checksums_of(&table.object));
        }
    }

    pub(super) fn marked(&self) -> MarkedTimeframe<'_> {
        MarkedTimeframe {
            name: &self.name,
            steps: self.steps,
            features: self.values.row_len(),
            bars: self.values.rows(),
            instrument_start: &self.instrument_start,
            segment_start: &self.segment_start,
        }
    }

    /// Reads the index arrays into memory booked on `scope`.
    pub(super) fn read_arrays(&self, scope: &Scope) -> Result<TimeframeArrays> {
        Ok(TimeframeArrays {
            close_time: self.close_time_table.read_buffer(scope)?,
            sample_end: self.sample_end_table.read_buffer(scope)?,
        })
    }

    fn arrays(&self) -> &TimeframeArrays {
        self.arrays.get().expect("SeriesFile::load_index was called")
    }

    pub(super) fn close_time_table(&self) -> &NumericDataset {
        &self.close_time_table
    }

    pub(super) fn sample_end_table(&self) -> &NumericDataset {
        &self.sample_end_table
    }

    /// Name such as `M5`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length of a window in bars, T.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Names of the features, `[F]`.
    pub fn feature_names(&self) -> &[String] {
        &self.feature_names
    }

    /// Close time of each bar, `[bars]`, ns since 1970 UTC.
    ///
    /// # Panics
    /// If the index stays in the file, before
    /// [`SeriesFile::load_index`](crate::SeriesFile::load_index).
    pub fn close_times(&self) -> &[i64] {
        self.arrays().close_time.as_slice()
    }

    /// Index of the last bar of each sample's window, `[N]`. The window is the bars `end + 1 -
    /// steps ..= end`.
    ///
    /// # Panics
    /// As [`close_times`](Self::close_times).
    pub fn sample_ends(&self) -> &[i64] {
        self.arrays().sample_end.as_slice()
    }

    /// First bar of each instrument and, last, the number of bars, `[I + 1]`; empty where the file
    /// names no instruments.
    pub fn instrument_starts(&self) -> &[i64] {
        &self.instrument_start
    }

    /// First bar of each segment, `[S]`, increasing: a stretch of bars of one instrument without a
    /// hole that windows must not cross. Empty where every instrument is one segment.
    pub fn segment_starts(&self) -> &[i64] {
        &self.segment_start
    }

    /// First bar of each segment: as stated, or else of each instrument that has bars.
    pub fn all_segment_starts(&self) -> Vec<i64> {
        all_segment_starts(&self.segment_start, &self.instrument_start)
    }

    /// Scaler of the values, if they were scaled.
    pub fn scaler(&self) -> Option<&Scaler> {
        self.scaler.as_ref()
    }

    pub(crate) fn values_table(&self) -> &NumericDataset {
        &self.values
    }

    pub(super) fn shape(&self) -> TimeframeShape {
        TimeframeShape { name: Some(self.name.clone()), steps: self.steps, features: self.feature_names.len() }
    }

    /// The index with `arrays`, which are not kept yet.
    pub(super) fn index_with<'a>(&'a self, arrays: &'a TimeframeArrays) -> TimeframeIndex<'a> {
        TimeframeIndex {
            name: &self.name,
            steps: self.steps,
            bars: arrays.close_time.len(),
            close_time: arrays.close_time.as_slice(),
            first_bar: 0,
            sample_end: arrays.sample_end.as_slice(),
            first_sample: 0,
            instrument_start: &self.instrument_start,
            segment_start: &self.segment_start,
        }
    }
}

fn read_steps(file: &InputFile, values: &NumericDataset) -> Result<usize> {
    let found = match file.attribute(&values.object, "seq_len")? {
        Some(AttributeValue::Int(steps)) => match usize::try_from(steps) {
            Ok(steps) if (1..=values.rows()).contains(&steps) => return Ok(steps),
            _ => steps.to_string(),
        },
        Some(other) => format!("`{other}`"),
        None => "no such attribute".to_owned(),
    };
    let expected = format!("the window length, an integer from 1 to {}, the number of bars", values.rows());
    Err(file.broken(&format!("{}@seq_len", values.object), &expected, &found))
}

fn read_scaler(file: &InputFile, timeframe: &str, features: usize, instruments: usize) -> Result<Option<Scaler>> {
    let group = format!("/scaler/{timeframe}");
    if !file.has_group("/scaler") || !file.has_group(&group) {
        return Ok(None);
    }
    let read = |name: &str| {
        let table = file.table(&format!("{group}/{name}"), &SCALER)?;
        let fits = table.shape == [features] || (instruments > 0 && table.shape == [instruments, features]);
        if fits {
            Ok(table)
        } else {
            Err(table.fault(
                None,
                &format!("[{features}] or one such row an instrument"),
                &format!("{:?}", table.shape),
            ))
        }
    };
    let (center, scale) = (read("center")?, read("scale")?);
    if center.shape != scale.shape {
        return Err(scale.fault(
            None,
            &format!("the shape of center, {:?}", center.shape),
            &format!("{:?}", scale.shape),
        ));
    }
    let kind = file.attribute(&group, "kind")?;
    let Some(AttributeValue::Int(fit_end_time)) = file.attribute(&group, "fit_end_time")? else {
        return Err(file.broken(&format!("{group}@fit_end_time"), "an integer, ns since 1970 UTC", "none"));
    };
    Ok(Some(Scaler {
        kind: kind.map_or("none".to_owned(), |kind| kind.to_string()),
        center: center.read_vec()?,
        scale: scale.read_vec()?,
        fit_end_time,
    }))
}
