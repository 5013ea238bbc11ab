//! Made-up samples in both HDF5 layouts. Features follow an autoregressive process; each target is
//! a fixed mix of the shortest timeframe's last bar plus noise of the same size, so that half of
//! its variance can be learnt.

use std::collections::BTreeMap;
use std::path::Path;

use megabatch_bars::Timeframe;
use megabatch_chunk_io::{
    AttributeValue, Layout, SampleBlock, Series, SeriesTimeframe, Shape, TimeframeShape, WindowsHeader, WriteOptions,
    write_series, write_windows,
};

use super::random::Random;
use crate::error::{Error, Result};

/// Samples to generate.
pub(crate) struct Spec {
    pub(crate) samples: usize,
    pub(crate) windows: SynthWindows,
    pub(crate) features: usize,
    pub(crate) targets: usize,
    pub(crate) seed: u64,
}

/// The windows of a sample.
pub(crate) enum SynthWindows {
    /// One timeframe without a name, of so many bars.
    Unnamed(usize),
    /// Timeframes, shortest first.
    Named(Vec<(Timeframe, usize)>),
}

/// Samples that are written at a time.
const BATCH: usize = 64;
/// 2018-01-01 00:00 UTC, ns since 1970: a whole number of bars of every timeframe.
const START_NS: i64 = 1_514_764_800 * 1_000_000_000;
/// Correlation of a feature with itself one bar earlier.
const PERSISTENCE: f64 = 0.9;

/// Writes windows, every sample drawn by itself, one minute apart.
pub(crate) fn write_windows_file(path: &Path, spec: &Spec, options: &WriteOptions) -> Result<()> {
    let shape = spec.shape();
    let sample_times: Vec<i64> = (0..spec.samples as i64).map(|n| START_NS + n * Timeframe::M1.duration_ns()).collect();
    let layout = ("layout".to_owned(), AttributeValue::from("windows"));
    let attributes = BTreeMap::from([layout, spec.horizon_attribute()]);
    let header = WindowsHeader { shape: &shape, sample_times: Some(&sample_times), attributes: &attributes };
    let mut random = Random::new(spec.seed);
    let mix = Mix::draw(&mut random, spec);
    write_windows(path, &header, options, |writer| {
        for first in (0..spec.samples).step_by(BATCH) {
            let mut block = SampleBlock::zeros(&shape, BATCH.min(spec.samples - first));
            for (values, timeframe) in block.features.iter_mut().zip(&shape.timeframes) {
                values
                    .chunks_exact_mut(timeframe.window_len())
                    .for_each(|window| fill(&mut random, window, spec.features));
            }
            let window_len = shape.timeframes[0].window_len();
            for (n, targets) in block.targets.chunks_exact_mut(spec.targets).enumerate() {
                let last_bar = &block.features[0][(n + 1) * window_len - spec.features..(n + 1) * window_len];
                mix.apply(&mut random, last_bar, targets);
            }
            writer.push(&block)?;
        }
        Ok::<(), Error>(())
    })
}

/// Writes series: bars without gaps, a sample at the close of each bar of the shortest timeframe.
pub(crate) fn write_series_file(path: &Path, spec: &Spec, options: &WriteOptions) -> Result<()> {
    let SynthWindows::Named(windows) = &spec.windows else {
        return Err(Error::usage("--steps makes the windows layout; a series needs --timeframes"));
    };
    let mut random = Random::new(spec.seed);
    let mix = Mix::draw(&mut random, spec);
    let base_ns = windows[0].0.duration_ns();
    let sample_time: Vec<i64> = (1..=spec.samples as i64).map(|n| START_NS + n * base_ns).collect();
    let timeframes: Vec<SeriesTimeframe> = windows
        .iter()
        .map(|&(timeframe, steps)| make_timeframe(&mut random, timeframe, steps, &sample_time, spec.features))
        .collect();
    let base = &timeframes[0];
    let mut targets = vec![0.0; spec.samples * spec.targets];
    for (targets, &end) in targets.chunks_exact_mut(spec.targets).zip(&base.sample_end) {
        let bar = usize::try_from(end).expect("ends are not negative") * spec.features;
        mix.apply(&mut random, &base.values[bar..bar + spec.features], targets);
    }
    let attributes = BTreeMap::from([spec.horizon_attribute()]);
    Ok(write_series(path, &Series { timeframes, sample_time, targets, attributes, ..Series::default() }, options)?)
}

fn make_timeframe(
    random: &mut Random,
    timeframe: Timeframe,
    steps: usize,
    sample_time: &[i64],
    features: usize,
) -> SeriesTimeframe {
    let duration_ns = timeframe.duration_ns();
    // The bar that ends a window closed last before or at the sample's time; bar 0 begins the first
    // sample's window.
    let closed_by = |time: i64| time.div_euclid(duration_ns);
    let first_bar = closed_by(sample_time[0]) - (steps as i64 - 1);
    let sample_end: Vec<i64> = sample_time.iter().map(|&time| closed_by(time) - first_bar).collect();
    let bars = sample_end.last().map_or(0, |&end| end + 1);
    let mut values = vec![0.0; usize::try_from(bars).expect("there are bars") * features];
    fill(random, &mut values, features);
    SeriesTimeframe {
        name: timeframe.to_string(),
        steps,
        feature_names: (0..features).map(|f| format!("feature_{f}")).collect(),
        values,
        close_time: (0..bars).map(|bar| (first_bar + bar) * duration_ns).collect(),
        sample_end,
        ..SeriesTimeframe::default()
    }
}

impl Spec {
    /// Bytes that are held while the samples are made, at the least: times, indices and targets of
    /// all of them, and a window of each timeframe.
    pub(crate) fn held_bytes(&self) -> usize {
        let timeframes = match &self.windows {
            SynthWindows::Unnamed(_) => 1,
            SynthWindows::Named(windows) => windows.len(),
        };
        let sample_bytes = (1 + timeframes) * size_of::<i64>() + self.targets.saturating_mul(size_of::<f32>());
        let window_bytes = self.longest_window().saturating_mul(self.features).saturating_mul(size_of::<f32>());
        self.samples.saturating_mul(sample_bytes).saturating_add(window_bytes)
    }

    /// Bytes of the features and targets in a file of `layout`, about.
    pub(crate) fn stored_bytes(&self, layout: Layout) -> u64 {
        let bars_a_sample: f64 = match (&self.windows, layout) {
            (SynthWindows::Unnamed(steps), _) => *steps as f64,
            (SynthWindows::Named(windows), Layout::Windows) => windows.iter().map(|(_, steps)| *steps as f64).sum(),
            (SynthWindows::Named(windows), _) => {
                let ns = |timeframe: Timeframe| timeframe.duration_ns() as f64;
                windows.iter().map(|(timeframe, _)| ns(windows[0].0) / ns(*timeframe)).sum()
            }
        };
        let numbers = self.samples as f64 * (bars_a_sample * self.features as f64 + self.targets as f64);
        (numbers * size_of::<f32>() as f64).round() as u64
    }

    fn longest_window(&self) -> usize {
        match &self.windows {
            SynthWindows::Unnamed(steps) => *steps,
            SynthWindows::Named(windows) => windows.iter().map(|(_, steps)| *steps).max().unwrap_or(0),
        }
    }

    /// The bars that targets look ahead, one a target.
    fn horizon_attribute(&self) -> (String, AttributeValue) {
        ("horizon_bars".to_owned(), AttributeValue::from(self.targets as i64))
    }

    fn shape(&self) -> Shape {
        let timeframe = |name: Option<String>, steps| TimeframeShape { name, steps, features: self.features };
        let timeframes = match &self.windows {
            SynthWindows::Unnamed(steps) => vec![timeframe(None, *steps)],
            SynthWindows::Named(windows) => {
                windows.iter().map(|(name, steps)| timeframe(Some(name.to_string()), *steps)).collect()
            }
        };
        Shape { samples: self.samples, timeframes, horizons: self.targets }
    }
}

/// Fills bars [bars, F] with features of variance 1, each correlated with its own past.
fn fill(random: &mut Random, bars: &mut [f32], features: usize) {
    let innovation = (1.0 - PERSISTENCE * PERSISTENCE).sqrt();
    for k in 0..bars.len() {
        let noise = random.normal();
        bars[k] = match k.checked_sub(features) {
            Some(before) => (PERSISTENCE * f64::from(bars[before]) + innovation * noise) as f32,
            None => noise as f32,
        };
    }
}

/// Computation of targets from a bar: `target[k] = Σ weight[k, f] · bar[f] + noise`, both parts of
/// variance 1.
struct Mix {
    weights: Vec<f64>,
}

impl Mix {
    fn draw(random: &mut Random, spec: &Spec) -> Self {
        let scale = 1.0 / (spec.features as f64).sqrt();
        Mix { weights: (0..spec.targets * spec.features).map(|_| scale * random.normal()).collect() }
    }

    fn apply(&self, random: &mut Random, bar: &[f32], targets: &mut [f32]) {
        for (target, weights) in targets.iter_mut().zip(self.weights.chunks_exact(bar.len())) {
            let signal: f64 = weights.iter().zip(bar).map(|(weight, &x)| weight * f64::from(x)).sum();
            *target = (signal + random.normal()) as f32;
        }
    }
}
