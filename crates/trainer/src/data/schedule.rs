//! The samples of each optimizer step: a pure function of the step's number, so that a resumed run
//! needs no other state.

use std::ops::Range;

use megabatch_nn::batch::{Grain, Runs};
use megabatch_nn_cpu::SHARD_SAMPLES;
use megabatch_order::{self as order, Batches, Batching, EpochOrder, Order, Rank, StepSamples};

use crate::config::Config;
use crate::data::sample_ranges::SampleRanges;
use crate::error::{Error, Result};

/// The steps of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    batches: Batches,
    /// Samples that are computed at once. Larger batches are cut.
    micro_batch_size: usize,
    /// The runs of dense training, and where batches of them end.
    runs: Option<(Runs, Grain)>,
    /// True for steps of graphs.
    is_of_graphs: bool,
    /// Rank whose blocks [`Schedule::own_batches`] has.
    rank: Rank,
    pub(crate) steps_per_epoch: u64,
    /// Number of steps after which training ends.
    pub(crate) steps: u64,
}

impl Schedule {
    pub(crate) fn new(config: &Config, samples: usize) -> Result<Self> {
        let order = Order::new(samples, config.run_samples(), config.seed)?;
        let batching = Batching {
            batch_size: config.batch_size,
            gradient_accumulation_steps: config.gradient_accumulation_steps,
            last_batch: config.last_batch,
            ..Batching::default()
        };
        let batches = Batches::new(order, batching).map_err(|error| match error {
            order::Error::NoStep { samples, .. } => {
                let advice =
                    "with the last batch dropped, there must be a whole batch; add data or use a smaller batch";
                Error::NothingLeft { part: "training", before: samples, after: 0, advice }
            }
            other => Error::Order(other),
        })?;
        let steps_per_epoch = batches.steps_per_epoch();
        let steps = config.max_steps.unwrap_or(config.epochs.saturating_mul(steps_per_epoch));
        let runs = config.purpose().runs().map(|runs| (runs, Grain::Shards));
        let is_of_graphs = config.model.is_over_graphs();
        let (micro_batch_size, rank) = (config.batch_size, Rank::default());
        Ok(Schedule { batches, micro_batch_size, runs, is_of_graphs, rank, steps_per_epoch, steps })
    }

    /// The same steps in batches of `micro_batch_size` samples; in dense training, of as many runs
    /// or shards of runs as fit.
    pub(crate) fn cut_into(self, micro_batch_size: usize, grain: Grain) -> Self {
        Schedule { micro_batch_size, runs: self.runs.map(|(runs, _)| (runs, grain)), ..self }
    }

    /// The same steps, with the part of `rank`.
    pub(crate) fn for_rank(self, rank: Rank) -> Self {
        Schedule { rank, ..self }
    }

    /// Samples in the largest batch, as they are cut.
    pub(crate) fn capacity(&self) -> usize {
        match self.runs {
            Some((runs, Grain::Shards)) => self.micro_batch_size.max(runs.samples()),
            _ => self.micro_batch_size,
        }
    }

    /// The samples of step `step`, counted from 0: positions in the order of its epoch.
    pub(crate) fn step(&self, step: u64) -> StepSamples {
        self.batches.step(step)
    }

    /// The order of the epoch of a step.
    pub(crate) fn epoch(&self, step: &StepSamples) -> EpochOrder {
        self.batches.epoch(step.epoch)
    }

    /// The batches of a step: positions in the order of its epoch.
    pub(crate) fn batches_of(&self, step: &StepSamples) -> Vec<Range<usize>> {
        if let Some((runs, grain)) = self.runs {
            return runs.batches_of_step(step.positions.clone(), self.micro_batch_size, grain);
        }
        let parts = |batch: Range<usize>| {
            let end = batch.end;
            batch
                .step_by(self.micro_batch_size)
                .map(move |start| start..end.min(start.saturating_add(self.micro_batch_size)))
        };
        self.batches.batches_of(step).flat_map(parts).collect()
    }

    /// The reduction blocks of a step: positions whose gradients are one term of its sum.
    pub(crate) fn blocks_of(&self, step: &StepSamples) -> Vec<Range<usize>> {
        let size = if self.is_of_graphs { 1 } else { SHARD_SAMPLES };
        let batch_blocks = |batch: Range<usize>| match self.runs {
            Some((runs, _)) => runs.batches_of_step(batch, 1, Grain::Shards),
            None => {
                let end = batch.end;
                batch.step_by(size).map(|start| start..end.min(start.saturating_add(size))).collect()
            }
        };
        self.batches_of(step).into_iter().flat_map(batch_blocks).collect()
    }

    /// The batches of this rank's blocks of a step.
    pub(crate) fn own_batches_of(&self, step: &StepSamples) -> Vec<Range<usize>> {
        let all = self.batches_of(step);
        if self.rank == Rank::default() {
            return all;
        }
        let own = self.rank.slice_of_blocks(&self.blocks_of(step));
        let parts = all.into_iter().map(|batch| batch.start.max(own.start)..batch.end.min(own.end));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// This rank's blocks of the largest step.
    pub(crate) fn own_blocks_max(&self) -> usize {
        // Steps of one epoch have the same size, but for the last one, which is no larger.
        self.rank.slice(0..self.blocks_of(&self.step(0)).len()).len()
    }

    /// The indices of each batch of the steps in `steps`, out of the training samples `train`.
    pub(crate) fn batches<'a>(
        self,
        steps: Range<u64>,
        train: &'a SampleRanges,
    ) -> impl Iterator<Item = Vec<usize>> + 'a {
        self.lists(steps, train, Schedule::batches_of)
    }

    /// The same of the batches that this rank computes.
    pub(crate) fn own_batches<'a>(
        self,
        steps: Range<u64>,
        train: &'a SampleRanges,
    ) -> impl Iterator<Item = Vec<usize>> + 'a {
        self.lists(steps, train, Schedule::own_batches_of)
    }

    fn lists<'a>(
        self,
        steps: Range<u64>,
        train: &'a SampleRanges,
        batches_of: fn(&Schedule, &StepSamples) -> Vec<Range<usize>>,
    ) -> impl Iterator<Item = Vec<usize>> + 'a {
        steps.flat_map(move |step| {
            let samples = self.step(step);
            let list: Vec<usize> = self.batches.lists(step..step + 1).flatten().collect();
            let start = samples.positions.start;
            let part = |part: Range<usize>| list[part.start - start..part.end - start].iter();
            let batches = batches_of(&self, &samples).into_iter();
            batches.map(|batch| part(batch).map(|&position| train.sample_at(position)).collect()).collect::<Vec<_>>()
        })
    }
}

#[cfg(test)]
mod tests {
    use megabatch_order::LastBatch;
    use proptest::prelude::*;

    use super::*;

    fn schedule(samples: usize, config: &Config) -> Result<Schedule> {
        Schedule::new(config, samples)
    }

    fn config(batch_size: usize, gradient_accumulation_steps: usize) -> Config {
        Config { batch_size, gradient_accumulation_steps, epochs: 3, ..Config::default() }
    }

    #[test]
    fn an_epoch_takes_every_training_sample_once() {
        let schedule = schedule(23, &config(3, 2)).unwrap();
        assert_eq!((schedule.steps_per_epoch, schedule.steps), (4, 12));
        let train = SampleRanges::from(100..123);
        for epoch in 0..3 {
            let batches: Vec<Vec<usize>> = schedule.batches(epoch * 4..(epoch + 1) * 4, &train).collect();
            let per_step = (epoch * 4..(epoch + 1) * 4).map(|step| schedule.batches_of(&schedule.step(step)).len());
            assert_eq!(batches.len(), per_step.sum::<usize>());
            let mut all = batches.concat();
            all.sort_unstable();
            assert_eq!(SampleRanges::from_iter(all), train);
        }
    }

    proptest! {
        /// Batches of ranges are those of a list, position by position.
        #[test]
        fn batches_of_ranges_are_those_of_the_list(
            runs in prop::collection::vec((0_usize..400, 1_usize..90), 1..8), seed in any::<u64>(),
            (batch_size, gradient_accumulation_steps, world) in (1_usize..70, 1_usize..3, 1_usize..4),
            run_length in prop_oneof![Just(None), (1_usize..50).prop_map(Some)],
        ) {
            let list: Vec<usize> = runs.into_iter().flat_map(|(first, len)| first..first + len).collect();
            let train: SampleRanges = list.iter().copied().collect();
            let config = Config { run_length, seed, ..config(batch_size, gradient_accumulation_steps) };
            let schedule = schedule(list.len(), &config).unwrap();
            let order = Order::new(list.len(), config.run_samples(), seed).unwrap();
            let expected = |schedule: &Schedule, step: u64| -> Vec<Vec<usize>> {
                let epoch = order.epoch(step / schedule.steps_per_epoch);
                let batch_samples = |batch: Range<usize>| batch.map(|position| list[epoch.sample(position)]).collect();
                schedule.own_batches_of(&schedule.step(step)).into_iter().map(batch_samples).collect()
            };
            for step in [0, schedule.steps_per_epoch - 1, schedule.steps_per_epoch] {
                let batches: Vec<Vec<usize>> = schedule.batches(step..step + 1, &train).collect();
                prop_assert_eq!(batches, expected(&schedule, step));
                for rank in 0..world {
                    let own = schedule.for_rank(Rank::new(rank, world).unwrap());
                    let batches: Vec<Vec<usize>> = own.own_batches(step..step + 1, &train).collect();
                    prop_assert_eq!(batches, expected(&own, step), "rank {} of {}", rank, world);
                }
            }
        }
    }

    /// Whatever the world, ranks take whole blocks, and together the step.
    #[test]
    fn ranks_take_whole_blocks() {
        let dense = Config { loss_on: megabatch_nn::batch::LossOn::EveryStep, run_length: Some(10), ..config(48, 2) };
        let mut graphs = config(5, 2);
        graphs.model.graph = Some(megabatch_nn::model::GraphConfig::default());
        graphs.model.readout = Some(megabatch_nn::model::Readout::Node);
        for (config, micro_batch_size) in
            [(config(100, 2), 100), (config(100, 2), 64), (dense.clone(), 48), (dense, 30), (graphs, 3)]
        {
            let schedule = schedule(431, &config).unwrap().cut_into(micro_batch_size, Grain::Shards);
            for step in [0, schedule.steps_per_epoch - 1] {
                let samples = schedule.step(step);
                let blocks = schedule.blocks_of(&samples);
                assert_eq!(
                    (blocks[0].start, blocks[blocks.len() - 1].end),
                    (samples.positions.start, samples.positions.end)
                );
                for world in 1..12 {
                    let for_rank = |rank| schedule.for_rank(Rank::new(rank, world).unwrap());
                    let own: Vec<_> = (0..world).map(|rank| for_rank(rank).own_batches_of(&samples)).collect();
                    let ends: Vec<usize> = blocks.iter().map(|block| block.end).collect();
                    assert!(
                        own.iter()
                            .flatten()
                            .all(|batch| ends.contains(&batch.end) && batch.len() <= schedule.capacity())
                    );
                    let positions: Vec<usize> = own.into_iter().flatten().flatten().collect();
                    assert_eq!(positions, samples.positions.clone().collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn dropping_the_last_batch_must_leave_one() {
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
