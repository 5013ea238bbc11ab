//! Dense training: samples that follow one another are computed in one pass over the bars of them
//! all.
//!
//! ```text
//! windows:  each sample's window, T steps a sample
//! dense:    a run of n samples is one sequence of T + n - 1 bars, from the first bar of the first
//!           window on; the states after bars T, T + 1, … are those of the samples, each of which
//!           has its own prediction and loss
//! ```
//!
//! The first T - 1 bars are a burn-in: no sample sees fewer bars than its window has. Those after
//! the first see more, as far back as the run begins, so that what is learnt is what a model does
//! that goes on from bar to bar; gradients flow back to the run's first bar (truncated
//! backpropagation through time: Williams and Peng, *An efficient gradient-based algorithm for
//! on-line training of recurrent network trajectories*, 1990). A pass takes (T + n - 1) / n steps a
//! sample in place of T.
//!
//! Attention pools the states of a sample's T bars, which those of its neighbours nearly are: see
//! `pooling/sliding.rs`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::batch::BatchView;
use crate::model::SampleShape;

/// Steps of the sequence that have a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossOn {
    /// The last of each window: every window is computed by itself, from its first bar to its last.
    #[default]
    LastStep,
    /// All samples of a run in one pass over their bars, from the first bar of the first window on.
    /// The samples must be slices of series.
    /// Such models are evaluated as those with carried state: in one pass over each segment.
    EveryStep,
}

impl LossOn {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LossOn::LastStep => "last_step",
            LossOn::EveryStep => "every_step",
        }
    }
}

/// The runs of optimizer steps: which samples make one, and how they are grouped into shards.
///
/// Both depend on the samples of a step and on their positions in the epoch's order alone, not on
/// the batches that the step is computed in:
///
/// ```text
/// pieces   what the order visits together: positions k · piece to (k + 1) · piece of the step
/// cells    a piece, or its parts of `longest` samples where it is longer
/// blocks   `at_once` cells, from the step's first one on; a batch consists of whole blocks
/// runs     a cell, or its parts where segments end or windows do not follow one another
/// shards   `at_once` runs of a block, computed side by side
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Samples in the longest, and bars from the last of its first window to the last of all.
    pub longest: usize,
    /// Runs that one thread computes side by side. Part of the arithmetic, and thus no matter of
    /// threads.
    pub at_once: usize,
    /// Samples that the order visits together. No run goes on from one piece to the next.
    pub piece: usize,
}

/// Places at which the batches of a step may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// After whole blocks, so that shards stay as they are: on the CPU, which adds gradients shard
    /// by shard.
    Shards,
    /// After any run: on a GPU, which adds up those of a whole batch.
    Runs,
}

/// The most runs side by side: registers hold that many rows of a product.
const AT_ONCE_MAX: usize = 16;

impl Runs {
    /// The runs of steps of `step_samples` samples, of which `batch_size` are computed at once, in
    /// an order of runs of `run_samples`: enough side by side for a product to pay, few enough for
    /// a step to have two shards. Where a batch holds a run, nothing depends on `batch_size`.
    pub fn for_steps(step_samples: usize, batch_size: usize, run_samples: usize) -> Self {
        let longest = run_samples.min(batch_size).max(1);
        let side_by_side = if run_samples <= batch_size { step_samples.div_ceil(longest) / 2 } else { 1 };
        Runs { longest, at_once: side_by_side.clamp(1, AT_ONCE_MAX), piece: run_samples.max(1) }
    }

    /// Samples that are computed side by side at most: those of a block.
    pub fn samples(self) -> usize {
        self.longest.saturating_mul(self.at_once)
    }

    /// Consecutive positions in an epoch's order, from the first of a step or of one of its batches
    /// on, cut into cells.
    pub fn cells(self, positions: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut start = positions.start;
        std::iter::from_fn(move || {
            let end_of_piece = (start / self.piece + 1).saturating_mul(self.piece);
            let end = end_of_piece.min(start.saturating_add(self.longest)).min(positions.end);
            let cell = start..end;
            start = end;
            (!cell.is_empty()).then_some(cell)
        })
    }

    /// The same positions, cut into blocks of up to `cells` cells.
    fn blocks_of(self, positions: Range<usize>, cells: usize) -> Vec<Range<usize>> {
        let all: Vec<Range<usize>> = self.cells(positions).collect();
        all.chunks(cells).map(|cells| cells[0].start..cells[cells.len() - 1].end).collect()
    }

    /// The positions of a step in batches of whole blocks of `grain` cells: each of up to
    /// `batch_size` samples, or of one block.
    pub fn batches_of_step(self, positions: Range<usize>, batch_size: usize, grain: Grain) -> Vec<Range<usize>> {
        let cells = match grain {
            Grain::Shards => self.at_once,
            Grain::Runs => 1,
        };
        let mut batches: Vec<Range<usize>> = Vec::new();
        for block in self.blocks_of(positions, cells) {
            match batches.last_mut() {
                Some(batch) if block.end - batch.start <= batch_size => batch.end = block.end,
                _ => batches.push(block),
            }
        }
        batches
    }

    /// Shards that a batch of `batch_size` samples has, where its runs are whole.
    pub fn shards(self, batch_size: usize) -> usize {
        batch_size.div_ceil(self.samples())
    }

    /// The samples of `batch` in runs; `position` is that of its first sample in the epoch's order.
    /// Two samples of a cell are of one run if the windows of the second begin at those of the
    /// first or within them, in every timeframe: then no segment ends between them. A run is over
    /// when it is as long as runs are, in samples or in bars of any timeframe.
    pub fn in_batch(self, batch: &BatchView<'_>, position: usize) -> Vec<Range<usize>> {
        let start = |k: usize, sample: usize| batch.starts(k)[sample] as i64;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for cell in self.cells(position..position + batch.len()) {
            let end = cell.end - position;
            let mut first = cell.start - position;
            while first < end {
                let ends = (first + 1..end).take_while(|&sample| self.goes_on(batch.shape(), start, first, sample));
                let last = ends.last().unwrap_or(first);
                runs.push(first..last + 1);
                first = last + 1;
            }
        }
        runs
    }

    /// The runs of `batch` in shards: lists of runs that are computed side by side.
    pub fn shards_of_batch(self, batch: &BatchView<'_>, position: usize) -> Vec<Vec<Range<usize>>> {
        let runs = self.in_batch(batch, position);
        let mut rest = runs.as_slice();
        let mut shards = Vec::new();
        for block in self.blocks_of(position..position + batch.len(), self.at_once) {
            let (own, others) = rest.split_at(rest.partition_point(|run| run.start + position < block.end));
            shards.extend(own.chunks(self.at_once).map(<[Range<usize>]>::to_vec));
            rest = others;
        }
        shards
    }

    /// True if a run from sample `first` on that has the one before `sample` may have this one too,
    /// but for its length. A window of timeframe `k` begins at the bar `start(k, sample)`, or as
    /// far from it as those of all samples do.
    pub fn goes_on(
        self,
        shape: &SampleShape,
        start: impl Fn(usize, usize) -> i64,
        first: usize,
        sample: usize,
    ) -> bool {
        shape.timeframes.iter().enumerate().all(|(k, timeframe)| {
            let [first, before, start] = [first, sample - 1, sample].map(|sample| start(k, sample));
            (before..before + timeframe.steps as i64).contains(&start) && start < first + self.longest as i64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SeriesBatch;
    use crate::model::{SampleShape, Timeframe};

    #[test]
    fn few_runs_are_shared_by_two_threads_and_many_are_computed_side_by_side() {
        for (batch_size, longest, expected) in
            [(64, 64, (64, 1)), (4096, 512, (512, 4)), (4096, 64, (64, 16)), (10, 100, (10, 1)), (7, 1, (1, 3))]
        {
            let runs = Runs::for_steps(batch_size, batch_size, longest);
            assert_eq!((runs.longest, runs.at_once), expected, "{batch_size}, {longest}");
        }
        assert_eq!(Runs::for_steps(4096, 4096, 512).shards(4096), 2);
        // Steps that are computed in several batches have the shards of those that are computed at
        // once, as long as a batch holds a run.
        for batch_size in [24, 32, 64, 128] {
            assert_eq!(
                Runs::for_steps(128, batch_size, 24),
                Runs { longest: 24, at_once: 3, piece: 24 },
                "{batch_size}"
            );
        }
        assert_eq!(Runs::for_steps(128, 16, 24), Runs { longest: 16, at_once: 1, piece: 24 });
    }

    #[test]
    fn batches_end_where_blocks_do() {
        let runs = Runs { longest: 24, at_once: 2, piece: 24 };
        let batches = |batch_size, grain| runs.batches_of_step(128..256, batch_size, grain);
        // Pieces end at 144, 168, 192, 216 and 240.
        assert_eq!(batches(128, Grain::Shards), std::slice::from_ref(&(128..256)));
        assert_eq!(batches(100, Grain::Shards), [128..216, 216..256]);
        assert_eq!(batches(1, Grain::Shards), [128..168, 168..216, 216..256]);
        assert_eq!(batches(30, Grain::Runs), [128..144, 144..168, 168..192, 192..216, 216..240, 240..256]);
        assert_eq!(batches(63, Grain::Runs), [128..168, 168..216, 216..256]);
        assert_eq!(batches(64, Grain::Runs), [128..192, 192..256]);
        assert!(runs.batches_of_step(5..5, 8, Grain::Shards).is_empty());
        let longer = Runs { longest: 10, at_once: 1, piece: 24 };
        assert_eq!(longer.batches_of_step(20..50, 10, Grain::Shards), [20..24, 24..34, 34..44, 44..50]);
    }

    #[test]
    fn a_run_ends_at_a_gap_and_where_it_is_as_long_as_runs_are() {
        let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 1 };
        let shape = SampleShape { timeframes: vec![timeframe("M1", 3), timeframe("M5", 2)], outputs: 1 };
        let ends = [[2, 3, 4, 8, 9, 10, 11], [1, 1, 1, 1, 2, 2, 2]];
        let series = [vec![0.0; 12], vec![0.0; 3]];
        let batch = |list: &[usize]| {
            let ends = ends.iter().map(|ends| list.iter().map(|&sample| ends[sample]).collect());
            SeriesBatch::new(&shape, &series, ends.collect())
        };
        for (list, longest, expected) in [
            (&[0, 1, 2, 3, 4, 5, 6][..], 9, &[0..3, 3..7][..]),
            // Cells are cut by position, runs within them where bars are missing.
            (&[0, 1, 2, 3, 4, 5, 6], 2, &[0..2, 2..3, 3..4, 4..6, 6..7]),
            (&[4, 5, 0, 1], 9, &[0..2, 2..4]),
            (&[0, 2], 2, &[0..1, 1..2]),
            (&[1, 0], 9, &[0..1, 1..2]),
            (&[], 9, &[]),
        ] {
            let runs = Runs { longest, at_once: 1, piece: usize::MAX };
            assert_eq!(runs.in_batch(&batch(list).view(), 0), expected, "{list:?}");
        }
        // Shards by where their runs begin, and where the last one ends.
        let shards = |all: &[&[usize]]| -> Vec<Vec<Range<usize>>> {
            all.iter().map(|ends| ends.windows(2).map(|pair| pair[0]..pair[1]).collect()).collect()
        };
        // Pieces of three, of which the batch has the last sample of the first one.
        let batch_of_pieces = batch(&[3, 4, 5, 6, 0, 1, 2]);
        let runs = Runs { longest: 3, at_once: 2, piece: 3 };
        assert_eq!(runs.in_batch(&batch_of_pieces.view(), 2), [0..1, 1..4, 4..7]);
        assert_eq!(runs.shards_of_batch(&batch_of_pieces.view(), 2), shards(&[&[0, 1, 4], &[4, 7]]));
        // Runs that end at a gap leave shards of the other blocks alone.
        let batch = batch(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(runs.shards_of_batch(&batch.view(), 0), shards(&[&[0, 2, 3], &[3, 6]]));
        let wide = Runs { longest: 2, at_once: 2, piece: 2 };
        assert_eq!(wide.shards_of_batch(&batch.view(), 0), shards(&[&[0, 2, 4], &[4, 6]]));
        assert_eq!(wide.shards_of_batch(&batch.view(), 1), shards(&[&[0, 1, 2], &[2, 3], &[3, 5, 6]]));
    }
}
