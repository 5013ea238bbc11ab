#![forbid(unsafe_code)]

//! Which samples each optimizer step takes: a pure function of the step's number, so that a resumed run needs no other memory.

use std::ops::Range;

use crate::config::{Config, LastBatch};
use crate::error::{Error, Result};
use crate::order::Order;

/// The steps of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    order: Order,
    step_samples: usize,
    batch_size: usize,
    pub(crate) steps_per_epoch: u64,
    /// Number of steps after which training ends.
    pub(crate) steps: u64,
}

/// The samples of one step: positions in an epoch's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepSamples {
    pub(crate) epoch: u64,
    pub(crate) positions: Range<usize>,
}

impl Schedule {
    pub(crate) fn new(config: &Config, samples: usize) -> Result<Self> {
        let step_samples = config.step_samples();
        let steps_per_epoch = match config.last_batch {
            LastBatch::Keep => samples.div_ceil(step_samples),
            LastBatch::Drop => samples / step_samples,
        } as u64;
        if steps_per_epoch == 0 {
            let advice = "with the last batch dropped, there must be a whole batch; add data or use a smaller batch";
            return Err(Error::NothingLeft { part: "training", before: samples, after: 0, advice });
        }
        Ok(Schedule {
            order: Order::new(samples, config.run_samples(), config.seed)?,
            step_samples,
            batch_size: config.batch_size,
            steps_per_epoch,
            steps: config.max_steps.unwrap_or(config.epochs * steps_per_epoch),
        })
    }

    /// The samples of step `step`, counted from 0.
    pub(crate) fn step(&self, step: u64) -> StepSamples {
        let start = (step % self.steps_per_epoch) as usize * self.step_samples;
        let end = self.order.len().min(start + self.step_samples);
        StepSamples { epoch: step / self.steps_per_epoch, positions: start..end }
    }

    /// The batches that a step is computed in.
    pub(crate) fn batches_of(&self, step: &StepSamples) -> usize {
        step.positions.len().div_ceil(self.batch_size)
    }

    /// The indices of each batch of the steps in `steps`, out of the training samples `train`.
    pub(crate) fn batches<'a>(self, steps: Range<u64>, train: &'a [usize]) -> impl Iterator<Item = Vec<usize>> + 'a {
        steps.flat_map(move |step| {
            let StepSamples { epoch, positions } = self.step(step);
            let order = self.order.epoch(epoch);
            let batch = move |start: usize| {
                let end = positions.end.min(start + self.batch_size);
                (start..end).map(|position| train[order.sample(position)]).collect()
            };
            (self.step(step).positions).step_by(self.batch_size).map(batch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(samples: usize, config: &Config) -> Result<Schedule> {
        Schedule::new(config, samples)
    }

    fn config(batch_size: usize, accumulation_steps: usize) -> Config {
        Config { batch_size, accumulation_steps, epochs: 3, ..Config::default() }
    }

    #[test]
    fn an_epoch_takes_every_sample_once() {
        let schedule = schedule(23, &config(3, 2)).unwrap();
        assert_eq!((schedule.steps_per_epoch, schedule.steps), (4, 12));
        let train: Vec<usize> = (100..123).collect();
        for epoch in 0..3 {
            let batches: Vec<Vec<usize>> = schedule.batches(epoch * 4..(epoch + 1) * 4, &train).collect();
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 3, 3, 3, 3, 2]);
            let mut all = batches.concat();
            all.sort_unstable();
            assert_eq!(all, train);
        }
        let last = schedule.step(7);
        assert_eq!(last, StepSamples { epoch: 1, positions: 18..23 });
        assert_eq!(schedule.batches_of(&last), 2);
    }

    #[test]
    fn accumulation_takes_the_samples_of_the_large_batch() {
        let train: Vec<usize> = (0..50).collect();
        let all = |config| schedule(50, &config).unwrap().batches(0..8, &train).collect::<Vec<_>>().concat();
        assert_eq!(all(config(2, 6)), all(config(12, 1)));
    }

    #[test]
    fn the_last_batch_may_be_dropped() {
        let drop = |samples| schedule(samples, &Config { last_batch: LastBatch::Drop, ..config(3, 2) });
        assert_eq!(drop(23).unwrap().steps_per_epoch, 3);
        assert!(matches!(drop(5), Err(Error::NothingLeft { before: 5, .. })));
    }

    #[test]
    fn max_steps_decides_whatever_epochs_says() {
        for max_steps in [1, 1000] {
            let config = Config { max_steps: Some(max_steps), ..config(3, 2) };
            assert_eq!(schedule(23, &config).unwrap().steps, max_steps);
        }
    }
}
