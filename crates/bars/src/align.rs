use std::ops::Range;

use crate::bars::Bars;
use crate::error::{Error, Result, Shortage};
use crate::feature::Feature;
use crate::feature_table::FeatureTable;
use crate::resample::resample;
use crate::scale::Scaler;
use crate::spec::{SeriesSpec, Window};
use crate::target::Horizon;
use crate::timeframe::Timeframe;

/// Aligned series of several timeframes, and the samples that are windows over them.
///
/// Sample n sees, of each timeframe, the rows `end[n] + 1 - seq_len ..= end[n]`: the last bars that have closed at
/// `sample_time[n]` or before.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AlignedSeries {
    /// The timeframe of the bars that the series was made from.
    pub base: Timeframe,
    /// One entry a timeframe, shortest first.
    pub timeframes: Vec<TimeframeSeries>,
    /// Close time of each sample's base bar, in nanoseconds since 1970 UTC: `[N]`, increasing.
    pub sample_time: Vec<i64>,
    /// Changes of the price in pips over the base bars after each sample: `[N, K]`.
    pub targets: Vec<f32>,
    /// The scalers were fitted on the bars that close before this time, which is one nanosecond after the last sample of
    /// the training span.
    pub fit_end_time: i64,
    /// What a user should know before he trains on this.
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
    /// When each bar closes: `[bars]`.
    pub close_time: Vec<i64>,
    /// What was subtracted from each feature: `[F]`.
    pub center: Vec<f64>,
    /// What each feature was then divided by: `[F]`.
    pub scale: Vec<f64>,
    /// Row of the last bar of each sample's window: `[N]`.
    pub end: Vec<i64>,
}

impl AlignedSeries {
    /// Number of samples N.
    pub fn len(&self) -> usize {
        self.sample_time.len()
    }

    /// Whether there are no samples; [`align`] never gives such a series.
    pub fn is_empty(&self) -> bool {
        self.sample_time.is_empty()
    }
}

impl TimeframeSeries {
    /// The names of the features in the order of their columns.
    pub fn feature_names(&self) -> Vec<&'static str> {
        self.features.iter().map(|feature| feature.name()).collect()
    }

    /// What sample `n` sees: `[seq_len, F]`.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn window(&self, n: usize) -> &[f32] {
        let after = self.end[n] as usize + 1;
        let width = self.features.len();
        &self.values[(after - self.seq_len) * width..after * width]
    }
}

/// Makes aligned series of several timeframes from the bars of one.
///
/// A sample stands at the close of a base bar that has a full window in every timeframe and a full horizon; with a stride,
/// at every so-manieth of them. Windows and horizons are counted in bars that exist, across gaps. The bars of each
/// timeframe before the longest warm-up of its features are left out.
///
/// # Errors
/// [`Error::Invalid`] for a value out of range; [`Error::NotAMultiple`] and [`Error::Straddles`] as in [`resample`];
/// [`Error::TooShort`] where there is not one sample.
pub fn align(bars: &Bars, spec: &SeriesSpec) -> Result<AlignedSeries> {
    let windows = spec.checked_windows()?;
    let tracks = windows.into_iter().map(|window| Track::of(bars, window, spec)).collect::<Result<Vec<Track>>>()?;
    let samples = sample_range(bars, &tracks, spec.horizon)?.step_by(spec.stride);

    let sample_time: Vec<i64> = samples.clone().map(|t| bars.close_time(t)).collect();
    let trained = ((sample_time.len() as f64 * spec.train_fraction) as usize).max(1);
    let fit_end_time = sample_time[trained - 1] + 1;
    let horizon = Horizon { kind: spec.target_kind, len: spec.horizon, pip_size: spec.pip_size };
    let targets = horizon.targets(&bars.close, samples);

    let mut warnings = Vec::new();
    let mut timeframes = Vec::with_capacity(tracks.len());
    for track in tracks {
        let (series, constant) = track.scaled(spec, fit_end_time, &sample_time);
        let timeframe = series.timeframe;
        warnings.extend(constant.iter().map(|feature| {
            format!(
                "{timeframe}: {feature} is constant over the training span; it carries nothing and keeps the scale 1"
            )
        }));
        timeframes.push(series);
    }
    Ok(AlignedSeries { base: bars.timeframe, timeframes, sample_time, targets, fit_end_time, warnings })
}

/// The bars of one timeframe with their features, before they are scaled.
struct Track {
    window: Window,
    /// Open time of every bar, the warm-up included.
    open_time: Vec<i64>,
    /// Close time of every bar, the warm-up included.
    close_time: Vec<i64>,
    table: FeatureTable,
    /// Bars that must have closed for a full window: the warm-up and the window.
    needed: usize,
}

impl Track {
    fn of(base: &Bars, window: Window, spec: &SeriesSpec) -> Result<Self> {
        let bars = resample(base, window.timeframe)?;
        let table = FeatureTable::of(&bars, &spec.features, spec.pip_size);
        let close_time = (0..bars.len()).map(|index| bars.close_time(index)).collect();
        let warm_up = spec.features.iter().map(|feature| feature.warm_up()).max().unwrap_or(0);
        Ok(Track { window, open_time: bars.open_time, close_time, table, needed: warm_up + window.seq_len })
    }

    /// Number of bars that have closed at `time` or before.
    fn closed_at(&self, time: i64) -> usize {
        self.close_time.partition_point(|&close_time| close_time <= time)
    }

    /// The row of the last bar that has closed at each of the increasing times.
    fn last_closed(&self, times: &[i64]) -> Vec<i64> {
        let mut closed = 0;
        let advance = |&time: &i64| {
            while self.close_time.get(closed).is_some_and(|&close_time| close_time <= time) {
                closed += 1;
            }
            (closed - self.table.warm_up) as i64 - 1
        };
        times.iter().map(advance).collect()
    }

    /// The finished series, and its features that do not vary before `fit_end_time`.
    fn scaled(self, spec: &SeriesSpec, fit_end_time: i64, sample_time: &[i64]) -> (TimeframeSeries, Vec<Feature>) {
        let end = self.last_closed(sample_time);
        let warm_up = self.table.warm_up;
        let fitted = self.closed_at(fit_end_time - 1) - warm_up;
        let mut values = self.table.values;
        let scaler = Scaler::fit(spec.scaling, &spec.features, &values[..fitted * spec.features.len()]);
        scaler.apply(&mut values);
        let series = TimeframeSeries {
            timeframe: self.window.timeframe,
            seq_len: self.window.seq_len,
            features: spec.features.clone(),
            values,
            open_time: self.open_time[warm_up..].to_vec(),
            close_time: self.close_time[warm_up..].to_vec(),
            center: scaler.center,
            scale: scaler.scale,
            end,
        };
        (series, scaler.constant)
    }
}

/// The base bars at which samples stand. A window that is full stays full, so that they are one run.
fn sample_range(base: &Bars, tracks: &[Track], horizon: usize) -> Result<Range<usize>> {
    let after_last = base.len().saturating_sub(horizon);
    let is_full = |time: i64| tracks.iter().all(|track| track.closed_at(time) >= track.needed);
    let first =
        base.open_time[..after_last].partition_point(|&open_time| !is_full(open_time + base.timeframe.duration_ns()));
    if first < after_last {
        return Ok(first..after_last);
    }
    let last_time = after_last.checked_sub(1).map(|last| base.close_time(last));
    let shortage = |track: &Track| Shortage {
        timeframe: track.window.timeframe,
        bars: last_time.map_or(0, |time| track.closed_at(time)),
        needed: track.needed,
    };
    Err(Error::TooShort { horizon, shortages: tracks.iter().map(shortage).collect() })
}
