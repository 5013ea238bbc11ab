//! A series file that is written in pieces: what it holds, and rows of it.

use std::collections::BTreeMap;

use super::{Scaler, Series};
use crate::text::AttributeValue;

/// A series file without its bars and samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesDescription {
    /// The timeframes.
    pub timeframes: Vec<TimeframeDescription>,
    /// Number of samples N, at least 1.
    pub samples: usize,
    /// Number of targets K of a sample, at least 1.
    pub horizons: usize,
    /// True if samples have weights.
    pub has_weights: bool,
    /// Names of the instruments, if the file names them.
    pub instruments: Option<Vec<String>>,
    /// Root attributes besides `layout` and `format_version`.
    pub attributes: BTreeMap<String, AttributeValue>,
}

/// One timeframe of a [`SeriesDescription`]; see [`SeriesTimeframe`](crate::SeriesTimeframe).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeframeDescription {
    /// Name such as `M5`.
    pub name: String,
    /// Length of a window in bars, T.
    pub steps: usize,
    /// Names of the F features.
    pub feature_names: Vec<String>,
    /// Number of bars, at least 1.
    pub bars: usize,
    /// First bar of each instrument and, last, the number of bars.
    pub instrument_start: Vec<i64>,
    /// First bar of each segment.
    pub segment_start: Vec<i64>,
    /// Scaler of the values.
    pub scaler: Option<Scaler>,
}

impl Series {
    /// The series without its bars and samples.
    pub(super) fn description(&self) -> SeriesDescription {
        let timeframes = self.timeframes.iter().map(|timeframe| TimeframeDescription {
            name: timeframe.name.clone(),
            steps: timeframe.steps,
            feature_names: timeframe.feature_names.clone(),
            bars: timeframe.close_time.len(),
            instrument_start: timeframe.instrument_start.clone(),
            segment_start: timeframe.segment_start.clone(),
            scaler: timeframe.scaler.clone(),
        });
        let samples = self.sample_time.len();
        SeriesDescription {
            timeframes: timeframes.collect(),
            samples,
            horizons: self.targets.len() / samples.max(1),
            has_weights: !self.sample_weight.is_empty(),
            instruments: self.instruments.as_ref().map(|instruments| instruments.names.clone()),
            attributes: self.attributes.clone(),
        }
    }
}

/// Consecutive samples of a [`Series`].
#[derive(Clone, Copy, Debug)]
pub struct SampleRows<'a> {
    /// Place of the first.
    pub first: usize,
    /// Times, `[n]`.
    pub time: &'a [i64],
    /// Open times of the earliest bars that they depend on, `[n]`.
    pub reach_time: &'a [i64],
    /// Close times of the last bars that their targets read, `[n]`.
    pub label_end_time: &'a [i64],
    /// Weights, `[n]`; not written where the file has none.
    pub weight: &'a [f32],
    /// `[n, K]`.
    pub targets: &'a [f32],
    /// Instruments, `[n]`; not written where the file names none.
    pub instrument: &'a [i32],
}

/// Last bars of the windows of consecutive samples in one timeframe.
#[derive(Clone, Copy, Debug)]
pub struct WindowEnds<'a> {
    /// Place of the timeframe in the description.
    pub timeframe: usize,
    /// Place of the first sample.
    pub first: usize,
    /// Last bar of each window, `[n]`.
    pub ends: &'a [i64],
    /// Times of the samples, `[n]`.
    pub time: &'a [i64],
    /// Instruments of the samples, `[n]`; empty where the file names none.
    pub instrument: &'a [i32],
}

/// Consecutive bars of one timeframe of one instrument.
#[derive(Clone, Copy, Debug)]
pub struct BarRows<'a> {
    /// Place of the timeframe in the description.
    pub timeframe: usize,
    /// Place of the first bar.
    pub first: usize,
    /// `[n, F]`.
    pub values: &'a [f32],
    /// `[n]`.
    pub close_time: &'a [i64],
}
