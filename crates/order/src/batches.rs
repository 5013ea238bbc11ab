use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::order::{EpochOrder, Order};
use crate::ranks::Rank;

/// Batching of the samples of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Samples in a batch, of all ranks together.
    pub batch_size: usize,
    /// Batches in a step, whose gradients are accumulated. A step has the samples of one batch of
    /// `batch_size` times this number.
    pub gradient_accumulation_steps: usize,
    /// Treatment of samples at an epoch's end that do not fill a step.
    pub last_batch: LastBatch,
    /// Rank whose part of each batch is taken.
    pub rank: Rank,
}

impl Default for Batching {
    fn default() -> Self {
        Batching { batch_size: 64, gradient_accumulation_steps: 1, last_batch: LastBatch::Keep, rank: Rank::default() }
    }
}

/// Treatment of samples at an epoch's end that are fewer than a step takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// They make a smaller step, whose loss and gradients are means over themselves.
    #[default]
    Keep,
    /// They are excluded from this epoch; the order draws other ones in each epoch.
    Drop,
}

/// The batches of a run, step by step and epoch by epoch without end: a pure function of a step's
/// number.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    order: Order,
    batching: Batching,
    steps_per_epoch: u64,
}

/// The samples of one step, of all ranks together: positions in an epoch's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSamples {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The positions, as [`EpochOrder::sample`](crate::EpochOrder::sample) takes them.
    pub positions: Range<usize>,
}

impl Batches {
    /// The samples of `order`, cut up as `batching` says.
    ///
    /// # Errors
    /// [`Error::Zero`] for batches or steps of nothing, [`Error::NoStep`] for too few samples to
    /// make a step of.
    pub fn new(order: Order, batching: Batching) -> Result<Self> {
        let Batching { batch_size, gradient_accumulation_steps, last_batch, .. } = batching;
        for (size, value) in
            [("batch size", batch_size), ("number of accumulated batches", gradient_accumulation_steps)]
        {
            if value == 0 {
                return Err(Error::Zero { size });
            }
        }
        let (samples, step_samples) = (order.len(), batching.step_samples());
        let steps_per_epoch = match last_batch {
            LastBatch::Keep => samples.div_ceil(step_samples),
            LastBatch::Drop => samples / step_samples,
        } as u64;
        if steps_per_epoch == 0 {
            return Err(Error::NoStep { samples, step_samples });
        }
        Ok(Batches { order, batching, steps_per_epoch })
    }

    /// Steps in an epoch, 1 or more.
    pub fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    /// The samples of step `step`, counted from 0 through all epochs.
    pub fn step(&self, step: u64) -> StepSamples {
        let step_samples = self.batching.step_samples();
        let start = (step % self.steps_per_epoch) as usize * step_samples;
        let end = self.order.len().min(start.saturating_add(step_samples));
        StepSamples { epoch: step / self.steps_per_epoch, positions: start..end }
    }

    /// The order of one epoch, counted from 0.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        self.order.epoch(epoch)
    }

    /// The batches of a step: the positions of each, of all ranks together.
    pub fn batches_of(&self, step: &StepSamples) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let (size, end) = (self.batching.batch_size, step.positions.end);
        step.positions.clone().step_by(size).map(move |start| start..end.min(start.saturating_add(size)))
    }

    /// This rank's samples of each batch of the steps in `steps`. It starts equally fast at every
    /// step.
    pub fn lists(&self, steps: Range<u64>) -> impl Iterator<Item = Vec<usize>> + use<> {
        let batches = *self;
        steps.flat_map(move |step| {
            let step = batches.step(step);
            let order = batches.order.epoch(step.epoch);
            let own = move |batch| batches.batching.rank.slice(batch).map(|position| order.sample(position)).collect();
            batches.batches_of(&step).map(own)
        })
    }
}

impl Batching {
    /// Samples of a whole step, saturating; such a step has all samples of an epoch.
    fn step_samples(&self) -> usize {
        self.batch_size.saturating_mul(self.gradient_accumulation_steps)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batches(samples: usize, batching: Batching) -> Result<Batches> {
        Batches::new(Order::new(samples, 4, 9).unwrap(), batching)
    }

    fn batching(batch_size: usize, gradient_accumulation_steps: usize) -> Batching {
        Batching { batch_size, gradient_accumulation_steps, ..Batching::default() }
    }

    #[test]
    fn an_epoch_takes_every_sample_once() {
        let batches = batches(23, batching(3, 2)).unwrap();
        assert_eq!(batches.steps_per_epoch(), 4);
        for epoch in 0..3 {
            let lists: Vec<Vec<usize>> = batches.lists(epoch * 4..(epoch + 1) * 4).collect();
            assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 3, 3, 3, 3, 2]);
            let mut all = lists.concat();
            all.sort_unstable();
            assert_eq!(all, (0..23).collect::<Vec<_>>());
        }
        let last = batches.step(7);
        assert_eq!(last, StepSamples { epoch: 1, positions: 18..23 });
        assert_eq!(batches.batches_of(&last).collect::<Vec<_>>(), [18..21, 21..23]);
    }

    #[test]
    fn accumulation_takes_the_samples_of_the_large_batch() {
        let all = |batching| batches(50, batching).unwrap().lists(0..8).collect::<Vec<_>>().concat();
        assert_eq!(all(batching(2, 6)), all(batching(12, 1)));
    }

    #[test]
    fn the_last_batch_may_be_dropped() {
        let dropping = |samples| batches(samples, Batching { last_batch: LastBatch::Drop, ..batching(3, 2) });
        assert_eq!(dropping(23).unwrap().steps_per_epoch(), 3);
        assert_eq!(dropping(23).unwrap().lists(2..4).map(|list| list.len()).collect::<Vec<_>>(), [3; 4]);
        assert_eq!(dropping(5).unwrap_err(), Error::NoStep { samples: 5, step_samples: 6 });
    }

    #[test]
    fn there_are_no_batches_of_nothing() {
        assert_eq!(batches(5, batching(0, 1)).unwrap_err(), Error::Zero { size: "batch size" });
        assert_eq!(batches(5, batching(1, 0)).unwrap_err(), Error::Zero { size: "number of accumulated batches" });
        assert_eq!(batches(0, batching(3, 1)).unwrap_err(), Error::NoStep { samples: 0, step_samples: 3 });
        let whole = batches(5, batching(usize::MAX, 2)).unwrap();
        assert_eq!(whole.lists(0..1).collect::<Vec<_>>().len(), 1, "a batch may be larger than all there is");
    }

    proptest! {
        /// Whatever the world: the ranks' parts of each batch, one after the other, are the batch
        /// of a world of one.
        #[test]
        fn every_world_takes_the_same_samples_in_the_same_order(
            (samples, run_length, seed) in (1usize..300, 1usize..40, any::<u64>()),
            (batch_size, gradient_accumulation_steps, drops) in (1usize..50, 1usize..4, any::<bool>()),
            world in prop::sample::select(vec![2usize, 3, 4, 7]),
        ) {
            let order = Order::new(samples, run_length, seed).unwrap();
            let last_batch = if drops { LastBatch::Drop } else { LastBatch::Keep };
            let lists = |rank| {
                let batching = Batching { batch_size, gradient_accumulation_steps, last_batch, rank };
                let batches = Batches::new(order, batching)?;
                Ok::<_, Error>(batches.lists(0..2 * batches.steps_per_epoch()).collect::<Vec<_>>())
            };
            let Ok(alone) = lists(Rank::default()) else { return Ok(()) };
            let by_rank: Vec<_> =
                (0..world).map(|rank| lists(Rank::new(rank, world).unwrap()).unwrap()).collect();
            for (n, batch) in alone.iter().enumerate() {
                let parts: Vec<&Vec<usize>> = by_rank.iter().map(|lists| &lists[n]).collect();
                prop_assert_eq!(&parts.iter().copied().flatten().copied().collect::<Vec<_>>(), batch);
                let len = |parts: &Vec<&Vec<usize>>| parts.iter().map(|part| part.len()).collect::<Vec<_>>();
                prop_assert!(len(&parts).iter().max().unwrap() - len(&parts).iter().min().unwrap() <= 1);
            }
            prop_assert!(by_rank.iter().all(|lists| lists.len() == alone.len()));
        }

        /// Beginning at a step gives what is left of a run that began at the first.
        #[test]
        fn a_run_goes_on_at_any_step(
            (samples, run_length, seed) in (1usize..120, 1usize..20, any::<u64>()),
            (batch_size, gradient_accumulation_steps) in (1usize..20, 1usize..4),
            (rank, world) in prop::sample::select(vec![(0usize, 1usize), (1, 2), (3, 4)]),
        ) {
            let order = Order::new(samples, run_length, seed).unwrap();
            let rank = Rank::new(rank, world).unwrap();
            let batching = Batching { batch_size, gradient_accumulation_steps, rank, ..Batching::default() };
            let batches = Batches::new(order, batching).unwrap();
            let steps = batches.steps_per_epoch() + 2;
            let whole: Vec<Vec<usize>> = batches.lists(0..steps).collect();
            let mut before = 0;
            for step in 0..steps {
                prop_assert_eq!(&batches.lists(step..steps).collect::<Vec<_>>()[..], &whole[before..]);
                before += batches.batches_of(&batches.step(step)).len();
            }
        }
    }
}
