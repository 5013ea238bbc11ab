//! Synthetic series to compute on.

use megabatch_amp::Precision;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_trainer::SeriesInMemory;

use crate::error::Result;

/// K: targets of a sample.
const TARGETS: usize = 36;

/// Number of samples that shuffled ones are drawn from. Their windows have little in common.
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

    /// Synthetic samples: one a minute. A window of M5 is thus that of five samples, and one of H4
    /// that of 240.
    pub(super) fn samples(&self, count: usize) -> Result<SeriesInMemory> {
        // Name, bars in a window, minutes in a bar.
        let windows: &[(&str, usize, usize)] = match self.model {
            ModelKind::Multi => &[("M1", 480, 1), ("M5", 288, 5), ("M15", 192, 15), ("H1", 96, 60), ("H4", 48, 240)],
            ModelKind::Single => &[("", 360, 1)],
        };
        let features = self.features;
        let timeframe = |&(name, steps, _): &(&str, usize, usize)| Timeframe { name: name.to_owned(), steps, features };
        let shape = SampleShape { timeframes: windows.iter().map(timeframe).collect(), outputs: TARGETS };
        let series = windows.iter().map(|&(_, steps, minutes)| {
            let ends: Vec<i64> = (0..count).map(|n| (steps - 1 + n / minutes) as i64).collect();
            (noise((count / minutes + steps) * features), ends)
        });
        Ok(SeriesInMemory::new(shape, series.collect(), noise(count * TARGETS))?)
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

/// Numbers in [-1, 1) that look random: the golden ratio's multiplicative hash of their index.
pub(super) fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}
