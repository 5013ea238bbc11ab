//! Plan of an optimizer step: its samples and batches, the objective, and what its gradients come
//! to.

use std::ops::Range;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::{Loss, Objective, Tasks};
use megabatch_nn::memory::LargestBatch;
use megabatch_nn::model::{Model, StepDropout, StepSeed};
use megabatch_order::StepSamples;

use super::Run;
use crate::config::Config;
use crate::data::prefetch::BatchFeed;
use crate::data::samples::TargetReader;
use crate::data::schedule::Schedule;
use crate::error::Result;

/// Terms of each task, [`Tasks::count`].
type TaskCounts = [usize; Tasks::MAX];

/// The batches of a run.
pub(super) struct BatchPipeline<'f, 'a> {
    pub(super) feed: &'f mut BatchFeed<'a>,
    /// The next step, where a GPU was given its batches already; or what kept it from that, which
    /// is that step's error.
    pub(super) ahead: Option<Result<StepPlan>>,
    /// Bound of the batches, until a GPU has taken the memory that they need.
    pub(super) largest: Option<LargestBatch>,
}

/// Plan of a step.
pub(super) struct StepPlan {
    pub(super) samples: StepSamples,
    /// The batches that it is computed in: positions in the order of its epoch.
    pub(super) batches: Vec<Range<usize>>,
    pub(super) objective: Objective,
    /// Task counts, where the first batch has to know of the last.
    counts: Option<TaskCounts>,
    /// Terms of the loss, if all targets are known.
    pub(super) terms_max: usize,
}

impl StepPlan {
    /// The objective over `batch`, whose samples have these positions.
    pub(super) fn objective_over(&self, batch: &BatchView<'_>, positions: &Range<usize>) -> Objective {
        let objective = Objective { position: positions.start, ..self.objective };
        let Loss::Tasks(tasks) = objective.loss else { return objective };
        let counts = self.counts.unwrap_or_else(|| tasks.count(batch.targets()));
        Objective { loss: Loss::Tasks(tasks.with_step_counts(counts)), ..objective }
    }
}

/// Source of the plans of steps.
pub(super) struct StepPlanner<'a> {
    pub(super) config: &'a Config,
    pub(super) model: &'a Model,
    /// Memory of targets that are read ahead.
    pub(super) device: &'a Device,
    pub(super) schedule: &'a Schedule,
    pub(super) run: &'a Run<'a>,
    /// True if several ranks compute a step.
    pub(super) is_shared: bool,
}

/// Outcome of the gradients of a step.
pub(super) struct UpdateOutcome {
    pub(super) norm: f64,
    /// The first that overflowed.
    pub(super) overflow: Option<String>,
}

impl StepPlanner<'_> {
    /// Plan of step `step`, counted from 0.
    pub(super) fn plan(&self, step: u64, scale: f32) -> Result<StepPlan> {
        let samples = self.schedule.step(step);
        let terms_max = self.terms_max(step, &samples);
        let objective = Objective {
            loss: self.config.loss,
            count: terms_max.max(1),
            position: samples.positions.start,
            dropout: StepDropout {
                between_layers: self.config.dropout_of_step(step)?,
                in_graphs: StepSeed { seed: self.config.seed, step },
            },
            scale,
        };
        let batches = self.schedule.own_batches_of(&samples);
        let is_whole = !self.is_shared && batches.len() == 1;
        let counts = if is_whole { None } else { self.counts_ahead(step)? };
        Ok(StepPlan { samples, batches, objective, counts, terms_max })
    }

    /// Terms of the loss of a step: of graphs those of its known targets, elsewhere those that
    /// there are if all targets are known.
    fn terms_max(&self, step: u64, samples: &StepSamples) -> usize {
        let outputs = self.model.shape().outputs;
        match self.run.samples.graphs() {
            Some(graphs) => {
                let batches = self.schedule.batches(step..step + 1, self.run.train);
                let labelled = batches.flatten().map(|graph| graphs.labelled(graph));
                labelled.map(|labelled| self.config.loss.graph_terms(labelled, outputs)).sum()
            }
            None => self.config.loss.terms_max(samples.positions.len(), outputs),
        }
    }

    /// Terms of each task in a step of several batches, of which the first has to know how many
    /// targets of the last are known.
    fn counts_ahead(&self, step: u64) -> Result<Option<TaskCounts>> {
        let Loss::Tasks(tasks) = self.config.loss else { return Ok(None) };
        let batches = self.schedule.batches(step..step + 1, self.run.train);
        let mut targets = TargetReader::new(self.run.samples, &self.device.scope("batches"))?;
        let mut counts = TaskCounts::default();
        for sample in batches.flatten() {
            let sample_counts = tasks.count(targets.read(sample)?);
            counts.iter_mut().zip(sample_counts).for_each(|(count, sample_counts)| *count += sample_counts);
        }
        Ok(Some(counts))
    }
}
