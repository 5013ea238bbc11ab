//! Sizes of batches by buckets. Numbers of distinct windows and of bars differ from batch to batch
//! where windows are shared; so do the steps of the longest run of samples in dense training. Each
//! is padded to the size of its bucket: few shapes are left, and most of them come again. The
//! padding repeats the last window and the last bar of a batch; nobody reads it, so that its
//! gradients are zero. A batch of graphs is padded by one graph more, whose nodes have no edges, no
//! features and no targets. Its edges are not padded, as no launch depends on their number, but
//! there is memory for as many as their bucket has: addresses change only with larger buckets.

use std::borrow::Cow;

use megabatch_nn::memory::{DenseBatch, LargestBatch};
use megabatch_nn::model::Model;

use crate::ComputeConfig;

/// Padding of all sizes together is less than this part of them.
const SHARE: usize = 16;

/// Sizes of all timeframes, each padded to a multiple of the same power of two but to no more
/// than it can have at `most`. Larger sizes become no smaller ones.
fn bucket_sizes(sizes: &[usize], most: impl Fn(usize) -> usize) -> Vec<usize> {
    let each = sizes.iter().sum::<usize>() / (SHARE * sizes.len().max(1));
    let quantum = each.checked_ilog2().map_or(1, |log| 1 << log);
    sizes.iter().enumerate().map(|(k, &size)| size.next_multiple_of(quantum).min(most(k)).max(size)).collect()
}

/// Steps of the windows of each timeframe, by those of the longest, where samples that follow one
/// another are read at `longest` steps of one at most.
pub fn bucket_steps(longest: &[usize], sample_steps: &[usize], most: usize) -> Vec<usize> {
    bucket_sizes(longest, |k| sample_steps[k] + most - 1)
}

/// Windows and bars of each timeframe of a batch of so many samples, by those that are distinct and
/// the `steps` of a window.
pub(super) fn bucket_batch(samples: usize, windows: &[usize], bars: &[usize], steps: &[usize]) -> [Vec<usize>; 2] {
    let windows = bucket_sizes(windows, |_| samples);
    let bars = bucket_sizes(bars, |k| windows[k] * steps[k]);
    [windows, bars]
}

/// Nodes of a batch of graphs of `nodes` nodes, with those that pad: one, as a graph has nodes, and
/// less than a sixteenth of all of these.
pub(super) fn bucket_nodes(nodes: usize) -> usize {
    bucket_sizes(&[nodes + 1], |_| usize::MAX)[0]
}

/// Places of edges that there is memory for where a batch of graphs has `places`: less than a
/// sixteenth more.
pub(super) fn bucket_places(places: usize) -> usize {
    bucket_sizes(&[places], |_| usize::MAX)[0]
}

/// Distinct windows of a timeframe in a batch, and the bars that they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchSizes {
    pub(super) windows: usize,
    pub(super) bars: usize,
}

/// The largest batch, padded as batches are.
pub(super) fn bucket_largest<'a>(
    model: &Model,
    config: &ComputeConfig,
    batch: &'a LargestBatch,
) -> Cow<'a, LargestBatch> {
    if !batch.dense.is_empty() {
        let padded = batch.dense.iter().map(bucket_dense).collect();
        return Cow::Owned(batch.clone().with_dense(padded));
    }
    let Some(&samples) = batch.sizes.iter().max().filter(|_| !model.recurrent_layers().is_empty()) else {
        return Cow::Borrowed(batch);
    };
    let sample_steps: Vec<usize> = model.recurrent_layers().iter().map(|lstm| lstm.sizes.steps).collect();
    let steps = bucket_steps(&batch.steps, &sample_steps, config.runs.map_or(1, |runs| runs.longest));
    let padded = |samples: usize, windows: &[usize], bars: &[usize]| {
        let longer = steps.iter().zip(&batch.steps).map(|(padded, steps)| padded - steps);
        let bars = bars.iter().zip(windows).zip(longer).map(|((bars, windows), longer)| bars + windows * longer);
        bucket_batch(samples, windows, &bars.collect::<Vec<_>>(), &steps)
    };
    let [windows, bars] = padded(samples, &batch.windows, &batch.bars);
    let samples_learnt = batch.sizes_learnt.iter().copied().max().unwrap_or(0);
    let [windows_learnt, bars_learnt] = padded(samples_learnt, &batch.windows_learnt, &batch.bars_learnt);
    Cow::Owned(LargestBatch { steps, windows, bars, windows_learnt, bars_learnt, ..batch.clone() })
}

/// A batch of dense training, whose steps are padded, with windows and bars padded as well.
fn bucket_dense(batch: &DenseBatch) -> DenseBatch {
    let [windows, bars] = bucket_batch(batch.samples, &batch.windows, &batch.bars, &batch.steps);
    DenseBatch { windows, bars, ..batch.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbouring_sizes_become_one() {
        let round = |windows: [usize; 3]| bucket_batch(128, &windows, &windows.map(|n| n + 10), &[11; 3]);
        assert_eq!(round([128, 26, 3]), [vec![128, 26, 4], vec![138, 36, 14]]);
        assert_eq!(round([128, 25, 4]), round([128, 26, 3]));
        // Windows that share nothing stay as many.
        assert_eq!(bucket_batch(99, &[99, 99], &[990, 198], &[10, 2]), [vec![99, 99], vec![990, 198]]);
        assert_eq!(bucket_batch(0, &[0], &[0], &[3]), [vec![0], vec![0]]);
    }

    #[test]
    fn steps_of_runs_become_few_numbers_and_those_of_windows_stay() {
        let round = |slow: usize| bucket_steps(&[991, slow, 103], &[480, 96, 96], 512);
        assert_eq!(round(198), [991, 208, 112]);
        assert_eq!(round(199), round(198));
        // No run is longer than that.
        assert_eq!(bucket_steps(&[85], &[80], 6), [85]);
        assert_eq!(bucket_steps(&[50, 7], &[50, 7], 1), [50, 7]);
    }

    #[test]
    fn numbers_of_nodes_become_few() {
        assert_eq!([0, 1, 30, 31, 32].map(bucket_nodes), [1, 2, 31, 32, 34]);
        assert!((144..152).all(|nodes| bucket_nodes(nodes) == 152));
    }

    #[test]
    fn numbers_of_places_become_few() {
        assert_eq!([0, 1, 31, 32, 33].map(bucket_places), [0, 1, 31, 32, 34]);
        assert!((289..=304).all(|places| bucket_places(places) == 304));
    }

    proptest! {
        #[test]
        fn there_are_some_nodes_more_and_few(nodes in 0usize..100_000) {
            let padded = bucket_nodes(nodes);
            prop_assert!(nodes < padded && padded <= bucket_nodes(nodes + 1));
            prop_assert!(SHARE * (padded - nodes - 1) <= nodes + 1, "{} of {}", padded, nodes);
        }

        #[test]
        fn little_is_added_and_the_plan_holds(
            timeframes in prop::collection::vec((1usize..3000, 0usize..500, 1usize..40), 1..6), samples in 1usize..3000, more in 0usize..500,
        ) {
            let steps: Vec<usize> = timeframes.iter().map(|timeframe| timeframe.2).collect();
            let sizes_with = |added: usize| {
                let windows: Vec<usize> = timeframes.iter().map(|timeframe| (timeframe.0 + added * timeframe.1).min(samples + added * more)).collect();
                let bars: Vec<usize> = windows.iter().zip(&steps).map(|(windows, steps)| windows + steps - 1).collect();
                let padded = bucket_batch(samples + added * more, &windows, &bars, &steps);
                ([windows, bars], padded)
            };
            let ((sizes, padded), (_, larger_sizes)) = (sizes_with(0), sizes_with(1));
            for ((sizes, padded), larger) in sizes.iter().zip(&padded).zip(&larger_sizes) {
                let [before, after] = [sizes, padded].map(|sizes| sizes.iter().sum::<usize>());
                prop_assert!(SHARE * (after - before) <= before, "{} of {}", after, before);
                prop_assert!(sizes.iter().zip(padded).all(|(size, padded)| size <= padded));
                prop_assert!(padded.iter().zip(larger).all(|(padded, larger)| padded <= larger));
            }
        }
    }
}
