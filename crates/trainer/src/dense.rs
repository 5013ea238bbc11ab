#![forbid(unsafe_code)]

//! Dense training: samples that follow one another are computed in one pass over the bars of them all.
//!
//! ```text
//! windows:  each sample's window, T steps a sample
//! dense:    a run of n samples is one sequence of T + n - 1 bars, from the first bar of the first window on; the states after
//!           bars T, T + 1, … are those of the samples, each of which has its own prediction and loss
//! ```
//!
//! The first T - 1 bars are a burn-in: no sample sees fewer bars than its window has. Those after the first see more, as far back as the run
//! begins, so that what is learnt is what a model does that goes on from bar to bar; gradients flow back to the run's first bar (truncated
//! backpropagation through time: Williams and Peng, *An efficient gradient-based algorithm for on-line training of recurrent network
//! trajectories*, 1990). A pass takes (T + n - 1) / n steps a sample in place of T.
//!
//! Attention pools the states of a sample's T bars, which those of its neighbours nearly are: see `pooling/sliding.rs`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::model::SampleShape;
use crate::view::BatchView;

/// What a training step computes of samples that follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each sample's window by itself, from its first bar to its last.
    #[default]
    Windows,
    /// All samples of a run ([`Config::run_length`](crate::Config::run_length)) in one pass over their bars, from the first bar of the first window
    /// on. The samples must be slices of series. Such models are evaluated as those with carried state: in one pass over each
    /// segment.
    Dense,
}

/// How the runs of a batch are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Samples in the longest, and bars from the last of its first window to the last of all.
    pub(crate) longest: usize,
    /// Runs that one thread computes side by side. Part of the arithmetic, and thus no matter of threads.
    pub(crate) at_once: usize,
}

/// The most runs side by side: registers hold that many rows of a product.
const AT_ONCE_MAX: usize = 16;

impl Runs {
    /// Those of batches of `batch_size` samples in runs of `longest`: enough side by side for a product to pay, few enough for two shards.
    pub(crate) fn of_batches(batch_size: usize, longest: usize) -> Self {
        let longest = longest.min(batch_size).max(1);
        let at_once = (batch_size.div_ceil(longest) / 2).clamp(1, AT_ONCE_MAX);
        Runs { longest, at_once }
    }

    /// Samples that are computed side by side at most.
    pub(crate) fn samples(self) -> usize {
        self.longest * self.at_once
    }

    /// Shards that a batch of `batch_size` samples has, where its runs are whole.
    pub(crate) fn shards(self, batch_size: usize) -> usize {
        batch_size.div_ceil(self.samples())
    }

    /// The samples of `batch` in runs. Two samples are of one run if the windows of the second begin at those of the first or within them, in
    /// every timeframe: then no segment ends between them. A run is over when it is as long as runs are, in samples or in bars of any timeframe.
    pub(crate) fn of_batch(self, batch: &BatchView<'_>) -> Vec<Range<usize>> {
        let start = |k: usize, sample: usize| batch.starts(k)[sample] as i64;
        let mut runs: Vec<Range<usize>> = Vec::new();
        while let Some(first) = Some(runs.last().map_or(0, |run| run.end)).filter(|&first| first < batch.len()) {
            let ends = (first + 1..batch.len()).take(self.longest - 1);
            let ends = ends.take_while(|&sample| self.goes_on((batch.shape(), start), (first, sample)));
            runs.push(first..ends.last().map_or(first, |last| last) + 1);
        }
        runs
    }

    /// Whether a run from sample `first` on that has the one before `sample` may have this one too, but for its length. A window of timeframe `k` begins at the bar `start(k, sample)`, or as far
    /// from it as those of all samples do.
    pub(crate) fn goes_on(
        self,
        (shape, start): (&SampleShape, impl Fn(usize, usize) -> i64),
        (first, sample): (usize, usize),
    ) -> bool {
        shape.timeframes.iter().enumerate().all(|(k, timeframe)| {
            let [first, before, start] = [first, sample - 1, sample].map(|sample| start(k, sample));
            (before..before + timeframe.steps as i64).contains(&start) && start < first + self.longest as i64
        })
    }
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;
    use crate::model::{SampleShape, Timeframe};
    use crate::samples::{Batch, Samples};
    use crate::series::SeriesInMemory;

    #[test]
    fn few_runs_are_shared_by_two_threads_and_many_are_computed_side_by_side() {
        for (batch_size, longest, expected) in
            [(64, 64, (64, 1)), (4096, 512, (512, 4)), (4096, 64, (64, 16)), (10, 100, (10, 1)), (7, 1, (1, 3))]
        {
            let runs = Runs::of_batches(batch_size, longest);
            assert_eq!((runs.longest, runs.at_once), expected, "{batch_size}, {longest}");
        }
        assert_eq!(Runs::of_batches(4096, 512).shards(4096), 2);
    }

    #[test]
    fn a_run_ends_at_a_gap_and_where_it_is_as_long_as_runs_are() {
        let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 1 };
        let shape = SampleShape { timeframes: vec![timeframe("M1", 3), timeframe("M5", 2)], outputs: 1 };
        let ends = [2, 3, 4, 8, 9, 10, 11].map(i64::from).to_vec();
        let slow = [1, 1, 1, 1, 2, 2, 2].map(i64::from).to_vec();
        let bars = |len| vec![0.0; len];
        let samples = SeriesInMemory::new(shape, vec![(bars(12), ends), (bars(3), slow)], bars(7)).unwrap();
        let mut batch = Batch::new(&Device::cpu().scope("test"), samples.shape(), 8).unwrap();
        for (list, longest, expected) in [
            (&[0, 1, 2, 3, 4, 5, 6][..], 9, &[0..3, 3..7][..]),
            (&[0, 1, 2, 3, 4, 5, 6], 2, &[0..2, 2..3, 3..5, 5..7]),
            (&[4, 5, 0, 1], 9, &[0..2, 2..4]),
            (&[0, 2], 2, &[0..1, 1..2]),
            (&[1, 0], 9, &[0..1, 1..2]),
            (&[], 9, &[]),
        ] {
            batch.take_series(&samples.series().unwrap(), list).unwrap();
            let runs = Runs { longest, at_once: 1 };
            assert_eq!(runs.of_batch(&batch.view()), expected, "{list:?}");
        }
    }
}
