pub(crate) mod align;
pub(crate) mod binning;
pub(crate) mod feature;
pub(crate) mod feature_chunks;
pub(crate) mod feature_stream;
pub(crate) mod feature_table;
pub(crate) mod instrument;
pub(crate) mod panel;
pub(crate) mod resample;
pub(crate) mod rolling;
pub(crate) mod sampling;
pub(crate) mod scale;
pub(crate) mod scalers;
pub(crate) mod series_stream;
pub(crate) mod spec;
pub(crate) mod streamed;
pub(crate) mod target;
pub(crate) mod track;
pub(crate) mod unscaled_series;
pub(crate) mod warnings;

use std::ops::Range;

use crate::series::feature::Feature;
use crate::series::scale::Scaling;
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::time::timeframe::Timeframe;

/// Aligned series of several timeframes and instruments, and the samples that are windows over
/// them.
///
/// Sample n sees, of each timeframe, the rows `end[n] + 1 - seq_len ..= end[n]`: the last bars of
/// its segment that have closed at `sample_time[n]` or before. Instruments stand one after the
/// other in all arrays, and within each its segments in order of time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AlignedSeries {
    /// The timeframe of the bars that the series was made from.
    pub base: Timeframe,
    /// The names of the instruments I.
    pub instruments: Vec<String>,
    /// One entry a timeframe, shortest first.
    pub timeframes: Vec<TimeframeSeries>,
    /// Close time of each sample's base bar, in nanoseconds since 1970 UTC: `[N]`, increasing
    /// within an instrument.
    pub sample_time: Vec<i64>,
    /// Instrument of each sample: `[N]`, from 0 to I - 1, never decreasing.
    pub sample_instrument: Vec<i32>,
    /// Close time of the last base bar that each sample's targets read: `[N]`.
    pub label_end_time: Vec<i64>,
    /// Changes of the price in pips over the base bars after each sample: `[N, K]`.
    pub targets: Vec<f32>,
    /// Scaling of the features.
    pub scaling: Scaling,
    /// The scalers were fitted on bars that close before this time, the same for all instruments:
    /// one nanosecond after the last sample of the training span.
    pub fit_end_time: i64,
    /// The segments that have samples: `[S]`.
    pub segments: Vec<Segment>,
    /// The segments that are too short for one sample. Nothing of them is in the series; scalers
    /// saw their bars.
    pub excluded: Vec<Segment>,
    /// Warnings about the data, for people.
    pub warnings: Vec<String>,
}

/// The bars of one timeframe as features.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimeframeSeries {
    /// The timeframe.
    pub timeframe: Timeframe,
    /// Length of a window in bars.
    pub seq_len: usize,
    /// The features in the order of their columns.
    pub features: Vec<Feature>,
    /// Scaled features: `[bars, F]`.
    pub values: Vec<f32>,
    /// When each bar opens, in nanoseconds since 1970 UTC: `[bars]`.
    pub open_time: Vec<i64>,
    /// When each bar closes: `[bars]`, increasing within an instrument.
    pub close_time: Vec<i64>,
    /// First row of each instrument and, last, the number of rows: `[I + 1]`.
    pub instrument_start: Vec<i64>,
    /// First row of each segment that has samples: `[S]`. An instrument's first row is one of them.
    pub segment_start: Vec<i64>,
    /// Number of bars before a row that its features read: the longest warm-up among them. It is
    /// the same in all timeframes.
    ///
    /// Recursive features (EMA, Wilder's mean) have no last bar that they read: each bar's weight
    /// fades by a constant factor a bar and never becomes zero. For them the look-back is where
    /// their warm-up ends. All bars further back together weigh (1 - w) to the power `look_back` +
    /// 1 in a mean of weight w: with the 49 bars of the default features, 2.5 % in `rsi_14` and
    /// `atr_14`, 2.1 % in the slow mean of `macd`; with all features, 13.5 % in `ema_50_distance`.
    /// A purge by this span is thus exact for windowed features, and for recursive ones it removes
    /// all but that share. No look-back ever lets a later bar into an earlier sample.
    pub look_back: usize,
    /// Open time of each bar of a segment's warm-up, which has no row: `[S, look_back]`.
    pub warm_up_open_time: Vec<i64>,
    /// Centre subtracted from each feature: `[I, F]`.
    pub center: Vec<f64>,
    /// Divisor of each feature: `[I, F]`.
    pub scale: Vec<f64>,
    /// Row of the last bar of each sample's window: `[N]`.
    pub end: Vec<i64>,
}

/// Longest stretch of one instrument's bars without a hole that ends a segment, see
/// [`GapPolicy`](crate::GapPolicy).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The instrument, from 0.
    pub instrument: i32,
    /// Number of its base bars.
    pub bars: usize,
    /// When the first of them opens, in nanoseconds since 1970 UTC.
    pub open_time: i64,
    /// When the last of them closes.
    pub close_time: i64,
    /// The samples that stand in it.
    pub samples: Range<usize>,
}

impl AlignedSeries {
    /// Number of samples N.
    pub fn len(&self) -> usize {
        self.sample_time.len()
    }

    /// True if there are no samples; [`align`](crate::align) never gives such a series.
    pub fn is_empty(&self) -> bool {
        self.sample_time.is_empty()
    }

    /// The scalers that the features were scaled with, for data that is to be scaled alike.
    pub fn scalers(&self) -> Scalers {
        let scaler = |series: &TimeframeSeries| TimeframeScaler {
            timeframe: series.timeframe,
            center: series.center.clone(),
            scale: series.scale.clone(),
        };
        Scalers {
            kind: self.scaling,
            fit_end_time: self.fit_end_time,
            instruments: self.instruments.clone(),
            features: self.timeframes[0].features.clone(),
            timeframes: self.timeframes.iter().map(scaler).collect(),
        }
    }

    /// Open time of the earliest bar that each sample depends on in any timeframe: `[N]`.
    ///
    /// This is the first bar of the sample's windows and, before it, `look_back` bars that its
    /// features read (see [`TimeframeSeries::look_back`] for recursive features). A bin that opened
    /// before its segment counts from where the segment begins.
    pub fn receptive_starts(&self) -> Vec<i64> {
        let mut starts = Vec::with_capacity(self.len());
        for (place, segment) in self.segments.iter().enumerate() {
            starts.extend(segment.samples.clone().map(|n| {
                let earliest = self.timeframes.iter().map(|series| series.receptive_start(place, n)).min();
                earliest.map_or(segment.open_time, |open_time| open_time.max(segment.open_time))
            }));
        }
        starts
    }
}

impl TimeframeSeries {
    /// The names of the features in the order of their columns.
    pub fn feature_names(&self) -> Vec<&'static str> {
        self.features.iter().map(|feature| feature.name()).collect()
    }

    /// Window of sample `n`: `[seq_len, F]`.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn window(&self, n: usize) -> &[f32] {
        let after = self.end[n] as usize + 1;
        let width = self.features.len();
        &self.values[(after - self.seq_len) * width..after * width]
    }

    /// Open time of the earliest bar that sample `n`, of the given segment, depends on.
    fn receptive_start(&self, segment: usize, n: usize) -> i64 {
        let first_row = self.segment_start[segment] as usize;
        // The segment's bars are its warm-up, as long as the look-back, and its rows: `look_back`
        // bars before its k-th row is its k-th bar.
        let bar = self.end[n] as usize + 1 - self.seq_len - first_row;
        match bar.checked_sub(self.look_back) {
            Some(row) => self.open_time[first_row + row],
            None => self.warm_up_open_time[segment * self.look_back + bar],
        }
    }
}
