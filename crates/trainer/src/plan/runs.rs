//! Sizes of the batches of dense training, and upper bounds of them.

use std::collections::BTreeSet;
use std::iter::successors;
use std::ops::Range;

use megabatch_nn::batch::{Grain, Runs, SeriesView};
use megabatch_nn::memory::DenseBatch;
use megabatch_nn::model::SampleShape;
use megabatch_nn_cuda::bucket_steps;
use megabatch_order::{EpochOrder, Rank};

use crate::config::Config;
use crate::data::sample_ranges::SampleRanges;
use crate::data::schedule::Schedule;

/// The pieces of consecutive samples of which a training batch consists: at most `count`, of at
/// most `len` samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) count: usize,
    pub(super) len: usize,
}

impl Pieces {
    /// Pieces of a batch of training on `samples` samples. Runs begin at multiples of their length
    /// in the order of an epoch, and batches at multiples of theirs.
    pub(super) fn new(config: &Config, samples: usize) -> Self {
        let (batch, run) = (config.batch_size, config.run_samples());
        let count = match () {
            () if run >= samples || run.is_multiple_of(batch) => 1,
            () if batch.is_multiple_of(run) => batch / run,
            () => batch.div_ceil(run) + 1,
        };
        Pieces { count, len: batch.min(run) }
    }

    /// Pieces, by their length, of a `part` of such a batch: positions in the order of an epoch.
    pub(super) fn in_part(self, config: &Config, part: &Range<usize>) -> Vec<Self> {
        let run = config.run_samples();
        if self.count == 1 || !config.batch_size.is_multiple_of(run) {
            // The same part of another batch may begin anywhere in a piece.
            let count = part.len().saturating_sub(1).div_ceil(run) + 1;
            return vec![Pieces { count: self.count.min(count), len: self.len.min(part.len()) }];
        }
        let first_end = part.start.next_multiple_of(run).min(part.end);
        let last_start = (part.end / run * run).max(first_end);
        let first = Pieces { count: 1, len: first_end - part.start };
        let between = Pieces { count: (last_start - first_end) / run, len: run };
        let last = Pieces { count: 1, len: part.end - last_start };
        [first, between, last].into_iter().filter(|pieces| pieces.count * pieces.len > 0).collect()
    }
}

/// Most runs of a batch, and their greatest length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MostRuns {
    pub(super) count: usize,
    /// Steps of the longest in each timeframe.
    pub(super) steps: Vec<usize>,
}

impl MostRuns {
    /// Bounds of batches that consist of `pieces` of `list`.
    pub(super) fn new(
        runs: Runs,
        shape: &SampleShape,
        view: &SeriesView<'_>,
        list: &SampleRanges,
        pieces: Pieces,
    ) -> Self {
        let end = |k: usize, position: usize| view.timeframes[k].ends[list.sample_at(position)];
        let ends =
            |longest| ends_of_runs(list.len(), longest, |first, position| runs.goes_on(shape, end, first, position));
        let by_length = ends(runs.longest);
        // As few as can be: a batch that begins elsewhere, or has its pieces side by side, has no
        // more.
        let runs_in_piece = |first: usize| {
            let end = list.len().min(first + pieces.len);
            successors(Some(first), |&position| by_length.get(position).copied())
                .take_while(|&position| position < end)
                .count()
        };
        let count = pieces.count * (0..list.len()).map(runs_in_piece).max().unwrap_or(0);
        let is_ordered = (1..list.len())
            .all(|position| (0..shape.timeframes.len()).all(|k| end(k, position - 1) <= end(k, position)));
        // Of several pieces, one may go on where another ends, or some samples later.
        let farthest = if pieces.count == 1 { by_length } else { ends(usize::MAX) };
        let reach = |k: usize| match is_ordered || pieces.count == 1 {
            true => {
                farthest.iter().enumerate().map(|(first, &after)| end(k, after - 1) - end(k, first)).max().unwrap_or(0)
            }
            false => runs.longest as i64 - 1,
        };
        let steps = shape.timeframes.iter().enumerate().map(|(k, timeframe)| timeframe.steps + reach(k) as usize);
        MostRuns { count, steps: steps.collect() }
    }
}

/// The batches of a rank in dense training, looked up step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LookedUpBatches {
    /// Numbers of samples, each once.
    pub(super) sizes: BTreeSet<usize>,
    /// The batches of which no other one is at least as large in every size.
    pub(super) largest: Vec<DenseBatch>,
}

impl LookedUpBatches {
    /// Most runs of samples that a plan looks up, of all ranks together: about half a second.
    const RUNS_MAX: u64 = 1 << 20;

    /// The batches of `rank` in a run with `config` on the samples `list` of `view`; `None` of a
    /// run that is too long to look them up.
    pub(super) fn new(
        config: &Config,
        shape: &SampleShape,
        view: &SeriesView<'_>,
        list: &SampleRanges,
        rank: Rank,
    ) -> Option<Self> {
        let runs = config.purpose().runs()?;
        let schedule = Schedule::new(config, list.len()).ok()?;
        let schedule = schedule.cut_into(config.batch_size, Grain::Runs).for_rank(rank);
        // A step may begin and end within a cell. A cell has a run or more, and each rank finds
        // the cells of all.
        let step_cells = (config.step_samples() / runs.longest).saturating_add(2) as u64;
        if schedule.steps.saturating_mul(step_cells).saturating_mul(rank.world() as u64) > Self::RUNS_MAX {
            return None;
        }
        let samples = DenseSamples::new(runs, shape, view, list);
        // Where bars are missing, or samples lie far apart, there are more runs than cells.
        let epochs = schedule.steps.div_ceil(schedule.steps_per_epoch);
        let in_epochs = epochs.saturating_mul(samples.runs_in(0..list.len()).count() as u64);
        if in_epochs.min(schedule.steps.saturating_mul(config.step_samples() as u64)) > Self::RUNS_MAX {
            return None;
        }
        let mut found = LookedUpBatches::default();
        for step in (0..schedule.steps).map(|step| schedule.step(step)) {
            let order = schedule.epoch(&step);
            schedule.own_batches_of(&step).into_iter().for_each(|batch| found.add(samples.batch(&order, batch)));
        }
        Some(found)
    }

    fn add(&mut self, batch: DenseBatch) {
        self.sizes.insert(batch.samples);
        if !self.largest.iter().any(|other| other.is_at_least(&batch)) {
            self.largest.retain(|other| !batch.is_at_least(other));
            self.largest.push(batch);
        }
    }
}

/// Samples of dense training, of which batches are made.
struct DenseSamples<'a> {
    runs: Runs,
    shape: &'a SampleShape,
    view: &'a SeriesView<'a>,
    list: &'a SampleRanges,
    /// End of the run that begins at each sample of the list.
    run_ends: Vec<usize>,
}

impl<'a> DenseSamples<'a> {
    fn new(runs: Runs, shape: &'a SampleShape, view: &'a SeriesView<'a>, list: &'a SampleRanges) -> Self {
        let mut samples = DenseSamples { runs, shape, view, list, run_ends: Vec::new() };
        let end = |k: usize, position: usize| samples.end(k, position);
        let goes_on = |first, position| runs.goes_on(shape, end, first, position);
        samples.run_ends = ends_of_runs(list.len(), runs.longest, goes_on);
        samples
    }

    /// Last bar of the window of timeframe `k` of the sample at `position` of the list.
    fn end(&self, k: usize, position: usize) -> i64 {
        self.view.timeframes[k].ends[self.list.sample_at(position)]
    }

    /// Sizes of the batch of the samples at the positions `batch` of `order`, as a GPU lays it.
    fn batch(&self, order: &EpochOrder, batch: Range<usize>) -> DenseBatch {
        let samples = batch.len();
        let in_list = |cell: Range<usize>| {
            // Samples of a cell follow one another in the list.
            let first = order.sample(cell.start);
            first..first + cell.len()
        };
        let runs: Vec<Range<usize>> = self.runs.cells(batch).flat_map(|cell| self.runs_in(in_list(cell))).collect();
        let timeframes = || self.shape.timeframes.iter().enumerate();
        let longest = timeframes().map(|(k, timeframe)| {
            let reach = runs.iter().map(|run| self.end(k, run.end - 1).saturating_sub(self.end(k, run.start)));
            timeframe.steps + reach.max().unwrap_or(0) as usize
        });
        let sample_steps: Vec<usize> = timeframes().map(|(_, timeframe)| timeframe.steps).collect();
        let steps = bucket_steps(&longest.collect::<Vec<_>>(), &sample_steps, self.runs.longest);
        let (mut windows, mut bars) = (Vec::new(), Vec::new());
        for (k, &steps) in steps.iter().enumerate() {
            // Windows that begin at one bar are one.
            let firsts: BTreeSet<i64> = runs.iter().map(|run| self.end(k, run.start)).collect();
            let own_bars = |(before, first): (&i64, &i64)| steps.min(first.saturating_sub(*before) as usize);
            windows.push(firsts.len());
            bars.push(firsts.iter().zip(firsts.iter().skip(1)).map(own_bars).sum::<usize>() + steps);
        }
        DenseBatch { samples, steps, windows, bars }
    }

    /// The runs of the consecutive samples at the positions `cell` of the list.
    fn runs_in(&self, mut cell: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        std::iter::from_fn(move || {
            let run = cell.start..cell.end.min(*self.run_ends.get(cell.start)?);
            cell.start = run.end;
            (!run.is_empty()).then_some(run)
        })
    }
}

/// End of the run that begins at each of `len` samples and has at most `longest` samples.
fn ends_of_runs(len: usize, longest: usize, goes_on: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut end = 0;
    let run_end = |first: usize| {
        // What follows from a run's first sample follows from its second one too.
        end = end.max(first + 1);
        while end < len && end - first < longest && goes_on(first, end) {
            end += 1;
        }
        end
    };
    (0..len).map(run_end).collect()
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;
    use megabatch_nn::batch::{LossOn, Series, Windows};
    use megabatch_nn::model::Timeframe;
    use proptest::prelude::*;

    use super::*;
    use crate::data::samples::{Batch, Samples};
    use crate::data::series_in_memory::SeriesInMemory;

    /// Samples of two timeframes whose windows, of four and two bars, end so many bars after those
    /// of the sample before.
    fn samples(moved: &[(i64, i64)]) -> SeriesInMemory {
        let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 1 };
        let shape = SampleShape { timeframes: vec![timeframe("M1", 4), timeframe("M5", 2)], outputs: 1 };
        let ends = |first: i64, moved: Vec<i64>| -> Vec<i64> {
            let last = moved.into_iter().scan(first, |end, step| {
                *end += step;
                Some(*end)
            });
            last.collect()
        };
        let series = |ends: Vec<i64>, first: i64| {
            let last = ends.last().copied().unwrap_or(first);
            (vec![0.0; last as usize + 1], ends)
        };
        let (m1, m5): (Vec<i64>, Vec<i64>) = moved.iter().copied().unzip();
        let series = vec![series(ends(3, m1), 3), series(ends(1, m5), 1)];
        SeriesInMemory::new(shape, series, vec![0.0; moved.len()]).unwrap()
    }

    fn most(samples: &SeriesInMemory, longest: usize, pieces: Pieces) -> MostRuns {
        let list = SampleRanges::from(0..samples.len());
        let runs = Runs { longest, at_once: 1, piece: usize::MAX };
        MostRuns::new(runs, samples.shape(), &samples.series().unwrap(), &list, pieces)
    }

    #[test]
    fn gaps_make_more_runs_and_slow_timeframes_shorter_ones() {
        let mut moved = vec![(1, 0), (1, 0), (1, 1), (1, 0), (1, 0), (1, 1), (1, 0), (1, 0)];
        let pieces = |count, len| Pieces { count, len };
        assert_eq!(most(&samples(&moved), 4, pieces(1, 4)), MostRuns { count: 1, steps: vec![7, 3] });
        assert_eq!(most(&samples(&moved), 4, pieces(3, 4)), MostRuns { count: 3, steps: vec![7, 3] });
        assert_eq!(most(&samples(&moved), 4, pieces(1, 8)), MostRuns { count: 2, steps: vec![7, 3] });
        moved[4] = (9, 3);
        assert_eq!(most(&samples(&moved), 4, pieces(1, 4)), MostRuns { count: 2, steps: vec![7, 3] });
        assert_eq!(most(&samples(&[]), 4, pieces(1, 4)), MostRuns { count: 0, steps: vec![4, 2] });
        // Two samples share a bar each time: the second of two pieces may take up where the first
        // one ends, and more bars fit then.
        let sharing: Vec<(i64, i64)> = (0..12).map(|n| (n % 2, 0)).collect();
        assert_eq!(most(&samples(&sharing), 4, pieces(1, 4)).steps, [6, 2]);
        assert_eq!(most(&samples(&sharing), 4, pieces(2, 4)).steps, [7, 2]);
    }

    #[test]
    fn a_batch_is_made_of_runs() {
        for (batch_size, run_length, expected) in [
            (64, None, (1, 64)),
            (64, Some(128), (1, 64)),
            (64, Some(16), (4, 16)),
            (64, Some(48), (3, 48)),
            (64, Some(100), (2, 64)),
            (64, Some(1000), (1, 64)),
        ] {
            let config = Config { batch_size, run_length, gradient_accumulation_steps: 2, ..Config::default() };
            let Pieces { count, len } = Pieces::new(&config, 500);
            assert_eq!((count, len), expected, "{run_length:?}");
        }
    }

    #[test]
    fn a_part_of_a_batch_has_a_part_of_its_pieces() {
        let config = Config { batch_size: 64, run_length: Some(16), ..Config::default() };
        let in_part = |config: &Config, part: Range<usize>| -> Vec<(usize, usize)> {
            let pieces = Pieces::new(config, 500).in_part(config, &part);
            pieces.iter().map(|pieces| (pieces.count, pieces.len)).collect()
        };
        assert_eq!(in_part(&config, 0..32), [(2, 16)]);
        assert_eq!(in_part(&config, 20..64), [(1, 12), (2, 16)]);
        assert_eq!(in_part(&config, 72..74), [(1, 2)]);
        assert_eq!(in_part(&config, 72..90), [(1, 8), (1, 10)]);
        let with_runs = |run_length| Config { run_length: Some(run_length), ..config.clone() };
        // Runs that begin elsewhere in each batch, and one that has a batch in it.
        assert_eq!(in_part(&with_runs(48), 0..32), [(2, 32)]);
        assert_eq!(in_part(&with_runs(128), 0..32), [(1, 32)]);
        assert_eq!(in_part(&with_runs(1000), 32..64), [(1, 32)]);
    }

    /// Sizes of the batch of the samples `list`, of which the first is at `position`, as a GPU lays
    /// it.
    fn laid(runs: Runs, samples: &SeriesInMemory, list: &[usize], position: usize) -> DenseBatch {
        let (shape, series) = (samples.shape(), samples.series().unwrap());
        let mut batch = Batch::new(&Device::cpu().scope("test"), shape, list.len()).unwrap();
        batch.take_series(&series, list).unwrap();
        let lens: Vec<usize> = runs.in_batch(&batch.view(), position).iter().map(ExactSizeIterator::len).collect();
        let sample_steps: Vec<usize> = shape.timeframes.iter().map(|timeframe| timeframe.steps).collect();
        let windows_in = |(timeframe, &steps): (&Series<'_>, &usize)| {
            let ends: Vec<usize> = list.iter().map(|&sample| timeframe.ends[sample] as usize).collect();
            let starts: Vec<usize> = ends.iter().map(|end| end + 1 - steps).collect();
            let mut windows = Windows::default();
            windows.set(&starts, &ends, steps, &lens);
            windows
        };
        let mut windows: Vec<Windows> = series.timeframes.iter().zip(&sample_steps).map(windows_in).collect();
        let longest: Vec<usize> = windows.iter().map(Windows::steps).collect();
        let steps = bucket_steps(&longest, &sample_steps, runs.longest);
        windows.iter_mut().zip(&steps).for_each(|(windows, &steps)| windows.go_on_to(steps));
        let each = |size: fn(&Windows) -> usize| windows.iter().map(size).collect();
        DenseBatch { samples: list.len(), steps, windows: each(Windows::len), bars: each(Windows::bars) }
    }

    #[test]
    fn runs_that_are_too_many_are_not_looked_up() {
        let dense = Config { loss_on: LossOn::EveryStep, batch_size: 10, ..Config::default() };
        let train = SampleRanges::from(0..30);
        // Samples that follow one another, three runs an epoch; and those that stand alone, thirty.
        for (moved, max_steps, is_looked_up) in
            [((1, 0), 300, true), ((1, 0), u64::MAX, false), ((5, 3), 300, true), ((5, 3), 300_000, false)]
        {
            let config = Config { max_steps: Some(max_steps), ..dense.clone() };
            let samples = samples(&[moved; 30]);
            let view = samples.series().unwrap();
            let found = LookedUpBatches::new(&config, samples.shape(), &view, &train, Rank::default());
            assert_eq!(found.is_some(), is_looked_up, "{max_steps} steps, {moved:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The largest batches that are looked up are batches of the run, and no batch is larger.
        #[test]
        fn batches_are_looked_up_as_a_gpu_lays_them(
            moved in prop::collection::vec((prop_oneof![8 => 0i64..3, 1 => 4i64..7], prop_oneof![5 => 0i64..2, 1 => 2i64..4]), 1..60),
            (batch_size, gradient_accumulation_steps, ranks, seed) in (1usize..20, 1usize..3, 1usize..4, any::<u64>()),
            run_length in prop_oneof![Just(None), (1usize..16).prop_map(Some)],
        ) {
            let base = Config { batch_size, gradient_accumulation_steps, run_length, seed, ..Config::default() };
            let config = Config { loss_on: LossOn::EveryStep, max_steps: Some(9), ..base };
            let (samples, train) = (samples(&moved), SampleRanges::from(0..moved.len()));
            let (runs, view) = (config.purpose().runs().unwrap(), samples.series().unwrap());
            for rank in 0..ranks {
                let rank = Rank::new(rank, ranks).unwrap();
                let found = LookedUpBatches::new(&config, samples.shape(), &view, &train, rank).unwrap();
                let own = Schedule::new(&config, train.len()).unwrap().cut_into(batch_size, Grain::Runs).for_rank(rank);
                let positions = (0..9).flat_map(|step| own.own_batches_of(&own.step(step)));
                let batches = own.own_batches(0..9, &train).zip(positions);
                let all: Vec<DenseBatch> = batches.map(|(list, part)| laid(runs, &samples, &list, part.start)).collect();
                let is_covered = |batch: &DenseBatch| found.largest.iter().any(|largest| largest.is_at_least(batch));
                prop_assert!(all.iter().all(is_covered), "{:?} of {:?}", found.largest, all);
                prop_assert!(found.largest.iter().all(|largest| all.contains(largest)), "{:?} of {:?}", found.largest, all);
                let sizes: BTreeSet<usize> = all.iter().map(|batch| batch.samples).collect();
                prop_assert_eq!(&found.sizes, &sizes);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Batches of any pieces of the longest run's length, in any order.
        #[test]
        fn no_batch_has_more(
            moved in prop::collection::vec((prop_oneof![8 => 0i64..3, 1 => 4i64..7], prop_oneof![5 => 0i64..2, 1 => 2i64..4]), 1..40),
            (longest, count) in (1usize..9, 1usize..4),
            starts in prop::collection::vec(0usize..40, 3),
        ) {
            let (samples, len) = (samples(&moved), longest.min(moved.len()));
            let most = most(&samples, len, Pieces { count, len });
            let pieces = starts.iter().take(count).map(|start| start % (moved.len() - len + 1));
            let list: Vec<usize> = pieces.flat_map(|start| start..start + len).collect();
            let mut batch = Batch::new(&Device::cpu().scope("test"), samples.shape(), list.len()).unwrap();
            batch.take_series(&samples.series().unwrap(), &list).unwrap();
            let view = batch.view();
            let runs = Runs { longest: len, at_once: 1, piece: usize::MAX }.in_batch(&view, 0);
            prop_assert!(runs.len() <= most.count, "{} runs for {:?}", runs.len(), most);
            for (k, timeframe) in samples.shape().timeframes.iter().enumerate() {
                let reach = |run: &std::ops::Range<usize>| view.starts(k)[run.end - 1] - view.starts(k)[run.start];
                let steps = timeframe.steps + runs.iter().map(reach).max().unwrap_or(0);
                prop_assert!(steps <= most.steps[k], "{} steps of timeframe {} for {:?}", steps, k, most);
            }
        }
    }
}
