//! Made-up series to compute on.

use megabatch_amp::Precision;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_trainer::SeriesInMemory;

use crate::error::Result;

/// K: targets of a sample.
const TARGETS: usize = 36;

/// Samples of which shuffled ones are drawn: enough for their windows to have little in common.
pub(super) const SHUFFLED_SAMPLES: usize = 100_000;

/// The model that is measured, and what is computed with it at once.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The model.
    pub model: ModelKind,
    /// Samples in a batch.
    pub batch: u32,
    /// Features of a bar.
    pub features: usize,
    /// Hidden units.
    pub hidden: usize,
    /// LSTM layers.
    pub layers: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Precision of products and of the recurrence.
    pub precision: Precision,
}

impl Work {
    pub(super) fn batch(&self) -> usize {
        self.batch as usize
    }

    pub(super) fn model(&self) -> ModelConfig {
        ModelConfig { hidden: self.hidden, layers: self.layers, ..ModelConfig::default() }
    }

    /// Synthetic samples.
    pub(super) fn samples(&self, count: usize) -> Result<SeriesInMemory> {
        let MadeUp { shape, series, targets } = self.made_up(count);
        Ok(SeriesInMemory::new(shape, series, targets)?)
    }

    /// The series of [`Work::samples`].
    pub(super) fn made_up(&self, count: usize) -> MadeUp {
        made_up(self.model, self.features, count)
    }
}

/// Windows of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Five timeframes of 480, 288, 192, 96 and 48 bars.
    Multi,
    /// One timeframe of 360 bars.
    Single,
}

/// Made-up series, and the samples over them.
pub(super) struct MadeUp {
    pub(super) shape: SampleShape,
    /// Bars of each timeframe [.., F], and the row of the last bar of each sample's window.
    pub(super) series: Vec<(Vec<f32>, Vec<i64>)>,
    pub(super) targets: Vec<f32>,
}

/// A sample every minute over made-up series of so many features: a window of M5 is thus that of
/// five samples, and one of H4 that of 240.
fn made_up(model: ModelKind, features: usize, samples: usize) -> MadeUp {
    // Name, bars in a window, minutes in a bar.
    let windows: &[(&str, usize, usize)] = match model {
        ModelKind::Multi => &[("M1", 480, 1), ("M5", 288, 5), ("M15", 192, 15), ("H1", 96, 60), ("H4", 48, 240)],
        ModelKind::Single => &[("", 360, 1)],
    };
    let timeframe = |&(name, steps, _): &(&str, usize, usize)| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: windows.iter().map(timeframe).collect(), outputs: TARGETS };
    let series = windows.iter().map(|&(_, steps, minutes)| {
        let ends: Vec<i64> = (0..samples).map(|n| (steps - 1 + n / minutes) as i64).collect();
        (noise((samples / minutes + steps) * features), ends)
    });
    MadeUp { shape, series: series.collect(), targets: noise(samples * TARGETS) }
}

/// Numbers in [-1, 1) that look random: the golden ratio's multiplicative hash of their index.
pub(super) fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}
