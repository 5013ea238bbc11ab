#![forbid(unsafe_code)]

//! One optimizer step.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use megabatch_amp::{LossScaler, NonFiniteTrace, Overflow, Threads, unscale_and_check};
use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::{Loss, Objective, Tasks};
use megabatch_nn::model::{StepDropout, StepSeed};
use megabatch_nn_cpu::{Carried, Changes, Totals};
use megabatch_order::StepSamples;

use super::{Run, Trainer};
use crate::data::prefetch::BatchFeed;
use crate::data::samples::TargetReader;
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::train::events::StepEvent;

/// Terms of each task, [`Tasks::count`].
type TaskCounts = [usize; Tasks::MAX];

pub(super) const ON_PROCESSOR: &str = "the run is on the processor";

/// The batches of a run.
pub(super) struct BatchPipeline<'f, 'a> {
    pub(super) feed: &'f mut BatchFeed<'a>,
    /// The next step, where a GPU was given its batches already; or what kept it from that, which
    /// is that step's error.
    pub(super) ahead: Option<Result<StepPlan>>,
}

/// Plan of a step.
pub(super) struct StepPlan {
    samples: StepSamples,
    /// The batches that it is computed in: positions in the order of its epoch.
    pub(super) batches: Vec<Range<usize>>,
    pub(super) objective: Objective,
    /// Task counts, where the first batch has to know of the last.
    counts: Option<TaskCounts>,
    /// Terms of the loss, if all targets are known.
    terms_max: usize,
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

/// Outcome of the gradients of a step.
pub(super) struct UpdateOutcome {
    pub(super) norm: f64,
    /// The first that overflowed.
    pub(super) overflow: Option<String>,
}

impl Trainer {
    /// Gradients of the step's batches, norm, clip, update. With the event comes the wish of any
    /// rank's observer before it that the run end.
    ///
    /// # Errors
    /// [`Error::NotFinite`], [`Targets`](megabatch_nn::Error::Targets), [`Error::Scale`] and
    /// [`Error::LossSpike`] before anything is updated.
    pub(super) fn training_step(
        &mut self,
        pipeline: &mut BatchPipeline<'_, '_>,
        schedule: &Schedule,
        run: &Run<'_>,
    ) -> Result<(StepEvent, ControlFlow<()>)> {
        let start = Instant::now();
        let lr = self.rate(schedule);
        let mut agreed = ControlFlow::Continue(());
        let (plan, totals, report) = if self.accelerator.is_some() {
            let (plan, totals, report) = self.step_on_gpu(pipeline, lr, schedule, run)?;
            (plan, totals, Some(report))
        } else if self.process_group.is_some() {
            let plan = self.plan_step(self.step, schedule, run);
            let (plan, totals, asked) = self.step_together(pipeline.feed, plan)?;
            agreed = asked;
            (plan, totals, None)
        } else {
            let plan = self.plan_step(self.step, schedule, run)?;
            let totals = self.accumulate(pipeline.feed, &plan)?;
            (plan, totals, None)
        };
        let StepPlan { samples, objective, terms_max, .. } = plan;
        assert!(
            totals.terms <= terms_max && (run.samples.graphs().is_none() || totals.terms == terms_max),
            "{} terms of the loss in step {}, and {terms_max} as `Graphs::labelled` has it",
            totals.terms,
            self.step + 1
        );
        let update_start = Instant::now();
        // In a step without any known target there is nothing to learn, and no term to divide by.
        let (learns, terms) = (totals.terms > 0, totals.terms.max(1));
        let loss = totals.loss_sum / terms as f64;
        self.config.divergence.check_loss(&self.divergence, self.step + 1, loss)?;
        // Which targets are known shows as batches are computed: gradients are those of the sum
        // over `count` until here.
        let share = objective.count as f64 / terms as f64;
        let UpdateOutcome { norm, overflow } = match report {
            None => self.apply_gradients(share, objective.scale, lr, learns)?,
            Some(report) => self.note_report(&report, loss)?,
        };
        if learns {
            self.divergence.note(loss);
        }
        self.step += 1;
        self.device.step();
        self.accelerator.iter().for_each(|accelerator| accelerator.device().step());

        let (waited, waits) = pipeline.feed.take_waited();
        let gpu_s = self.gpu_timer.take_step_s(self.accelerator.as_mut())?;
        let captures = self.gpu_timer.take_captures(self.accelerator.as_ref());
        let event = StepEvent {
            step: self.step,
            steps: schedule.steps,
            epoch: samples.epoch,
            samples: samples.positions.len(),
            loss,
            loss_terms: (totals.terms < objective.count).then_some(totals.terms),
            grad_norm: norm,
            loss_scale: self.scaler.as_ref().map(|_| objective.scale),
            overflow,
            lr,
            data_wait_s: waited.as_secs_f64(),
            data_waits: waits,
            forward_s: totals.forward.as_secs_f64(),
            backward_s: totals.backward.as_secs_f64(),
            optimizer_s: update_start.elapsed().as_secs_f64(),
            gpu_s,
            captures,
            samples_per_s: samples.positions.len() as f64 / start.elapsed().as_secs_f64(),
            allocated_bytes: self.device().usage().allocated_bytes,
            profile: self.config.profile.then(|| Box::new(self.engine.take_profile(&self.model))),
        };
        Ok((event, agreed))
    }

    /// The learning rate of the next step.
    fn rate(&self, schedule: &Schedule) -> f64 {
        let lr = self.config.lr_schedule.rate(self.config.optimizer.lr, self.step, schedule.steps);
        lr * self.divergence.rate_factor()
    }

    /// Factor of the loss.
    pub(super) fn scale(&self) -> f32 {
        self.scaler.as_ref().map_or(1.0, LossScaler::scale)
    }

    /// Plan of step `step`, counted from 0.
    pub(super) fn plan_step(&self, step: u64, schedule: &Schedule, run: &Run<'_>) -> Result<StepPlan> {
        let samples = schedule.step(step);
        let terms_max = self.terms_max(step, &samples, schedule, run);
        let objective = Objective {
            loss: self.config.loss,
            count: terms_max.max(1),
            position: samples.positions.start,
            dropout: StepDropout {
                between_layers: self.config.dropout_of_step(step)?,
                in_graphs: StepSeed { seed: self.config.seed, step },
            },
            scale: self.scale(),
        };
        let batches = schedule.own_batches_of(&samples);
        let is_whole = self.process_group.is_none() && batches.len() == 1;
        let counts = if is_whole { None } else { self.counts_ahead(step, schedule, run)? };
        Ok(StepPlan { samples, batches, objective, counts, terms_max })
    }

    /// Norm, clip, update along the gradients times `share` over the loss scale. Nothing is updated
    /// where they overflowed.
    fn apply_gradients(&mut self, share: f64, scale: f32, lr: f64, learns: bool) -> Result<UpdateOutcome> {
        let inverse = (share / f64::from(scale)) as f32;
        let gradients = self.gradients.as_ref().expect(ON_PROCESSOR);
        let examined = self.engine.on_pool(|| unscale_and_check(&[gradients.values()], inverse, Threads::Pool));
        let first = examined.non_finite.filter(|_| self.scaler.is_some()).and_then(|_| gradients.first_non_finite());
        let overflow = first.map(|(tensor, index)| format!("{tensor}[{index}]"));
        if let Some(scaler) = &mut self.scaler {
            scaler.update(first.map(|(tensor, index)| Overflow { tensor, index })).map_err(Error::Scale)?;
        }
        if let Some(factors) = examined.factors(self.config.clip_norm) {
            if learns {
                let (optimizer, parameters) = (&mut self.optimizer, &mut self.parameters);
                self.engine.on_pool(|| optimizer.step(parameters, gradients, lr, factors, Threads::Pool));
            }
            self.carried.iter_mut().for_each(Carried::commit);
        }
        Ok(UpdateOutcome { norm: examined.norm, overflow })
    }

    /// The sums over the batches of a step, whose gradients are then in place.
    fn accumulate(&mut self, feed: &mut BatchFeed<'_>, plan: &StepPlan) -> Result<Totals> {
        let mut totals = Totals::default();
        self.gradients.as_mut().expect(ON_PROCESSOR).clear();
        // What a step noted that failed halfway.
        self.carried.iter_mut().for_each(Carried::discard);
        self.engine.load(&self.model, &self.parameters);
        for positions in &plan.batches {
            let batch = feed.next()?.expect("the feed has the batches of every step");
            let (objective, before) = (plan.objective_over(&batch, positions), totals.loss_sum);
            let gradients = self.gradients.as_mut().expect(ON_PROCESSOR);
            let changes = Changes { gradients: &mut *gradients, carried: self.carried.as_mut() };
            totals = self.engine.accumulate(&self.model, &self.parameters, &batch, objective, changes, totals);
            let may_overflow = self.scaler.is_some();
            let finite = totals.loss_sum.is_finite() && (may_overflow || gradients.first_non_finite().is_none());
            if !finite {
                objective.loss.check_rows(batch.targets(), self.model.shape().outputs)?;
                let loss = (totals.loss_sum - before) / objective.count as f64;
                let gradient = gradients.first_non_finite().map(|(tensor, index)| (tensor.to_owned(), index));
                let first = self.locate_non_finite(&batch, objective, gradient);
                let (tensor, index) = first.expect("a loss or a gradient that is not finite comes from one of these");
                return Err(Error::NotFinite { step: self.step + 1, loss, tensor, index });
            }
        }
        Ok(totals)
    }

    /// Terms of the loss of a step: of graphs those of its known targets, elsewhere those that
    /// there are if all targets are known.
    fn terms_max(&self, step: u64, samples: &StepSamples, schedule: &Schedule, run: &Run<'_>) -> usize {
        let outputs = self.model.shape().outputs;
        match run.samples.graphs() {
            Some(graphs) => {
                let batches = schedule.batches(step..step + 1, run.train);
                let labelled = batches.flatten().map(|graph| graphs.labelled(graph));
                labelled.map(|labelled| self.config.loss.graph_terms(labelled, outputs)).sum()
            }
            None => self.config.loss.terms_max(samples.positions.len(), outputs),
        }
    }

    /// Terms of each task in a step of several batches, of which the first has to know how many
    /// targets of the last are known.
    fn counts_ahead(&self, step: u64, schedule: &Schedule, run: &Run<'_>) -> Result<Option<TaskCounts>> {
        let Loss::Tasks(tasks) = self.config.loss else { return Ok(None) };
        let batches = schedule.batches(step..step + 1, run.train);
        let mut targets = TargetReader::new(run.samples, &self.device.scope("batches"))?;
        let mut counts = TaskCounts::default();
        for sample in batches.flatten() {
            let sample_counts = tasks.count(targets.read(sample)?);
            counts.iter_mut().zip(sample_counts).for_each(|(count, sample_counts)| *count += sample_counts);
        }
        Ok(Some(counts))
    }

    /// The first number that is not finite, in the order of computation: the batch, the weights,
    /// what each layer gives of the batch, the gradients, of which `gradient` is the first. The
    /// name of its tensor, and its index there.
    pub(super) fn locate_non_finite(
        &mut self,
        batch: &BatchView<'_>,
        objective: Objective,
        gradient: Option<(String, usize)>,
    ) -> Option<(String, usize)> {
        if let Some(first) = batch.first_non_finite() {
            return Some(first);
        }
        let mut trace = NonFiniteTrace::new(self.step + 1);
        self.parameters.tensors().for_each(|(name, _, values)| trace.look("", name, values));
        if trace.first().is_none() {
            self.engine.trace(&self.model, &self.parameters, batch, self.carried.as_ref(), objective, &mut trace);
        }
        let Some(first) = trace.first() else {
            return gradient.map(|(tensor, index)| (format!("the gradient of {tensor}"), index));
        };
        let preposition = if first.layer.is_empty() { "" } else { " in " };
        Some((format!("{}{preposition}{}", first.tensor, first.layer), first.index))
    }
}
