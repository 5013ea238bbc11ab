#![forbid(unsafe_code)]

//! One optimizer step.

use std::time::Instant;

use megabatch_amp::ops::{Report, StepSettings};
use megabatch_amp::{LossScaler, Overflow, Threads, Trace, examine};
use megabatch_order::StepSamples;

use super::{Run, Trainer};
use crate::carried::Carried;
use crate::config::Config;
use crate::device::Host;
use crate::divergence::Course;
use crate::error::{Error, Result};
use crate::events::StepEvent;
use crate::loss::{Loss, Tasks};
use crate::optimizer::OptimizerConfig;
use crate::prefetch::Feed;
use crate::samples::Targets;
use crate::schedule::Schedule;
use crate::step::{Changes, Objective, Totals};
use crate::view::BatchView;

/// Terms of each task, [`Tasks::count`].
type TaskCounts = [usize; Tasks::MAX];

/// What became of the gradients of a step.
struct Followed {
    norm: f64,
    /// The first that overflowed.
    overflow: Option<String>,
}

impl Trainer {
    /// Gradients of the step's batches, norm, clip, update.
    ///
    /// # Errors
    /// [`Error::NotFinite`], [`Error::Class`], [`Error::Scale`] and [`Error::Exploded`] before anything is updated.
    pub(super) fn training_step(
        &mut self,
        feed: &mut Feed<'_>,
        (schedule, run): (&Schedule, &Run<'_>),
    ) -> Result<StepEvent> {
        let start = Instant::now();
        let work = schedule.step(self.step);
        let terms_max = self.terms_max(&work, (schedule, run));
        let count = terms_max.max(1);
        let objective = Objective {
            loss: self.config.loss,
            count,
            dropout: self.config.dropout_of_step(self.step)?,
            seed_and_step: (self.config.seed, self.step),
            scale: self.scaler.as_ref().map_or(1.0, LossScaler::scale),
        };
        let counts = self.counts_ahead(&work, (schedule, run))?;
        let lr = self.config.lr_schedule.rate(self.config.optimizer.lr, self.step, schedule.steps);
        let lr = lr * self.course.rate_factor();
        let (totals, report) = self.accumulate(feed, (schedule.batches_of(&work), counts), (objective, lr))?;
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
        self.config.divergence.check_loss(&self.course, (self.step + 1, loss))?;
        // Which targets are known shows as batches are computed: gradients are those of the sum over `count` until here.
        let share = count as f64 / terms as f64;
        let Followed { norm, overflow } = match report {
            None => self.follow(share, (objective.scale, lr), learns)?,
            Some(report) => self.note_report(&report, loss)?,
        };
        if learns {
            self.course.note(loss);
        }
        self.step += 1;
        self.device.step();
        self.accelerator.iter().for_each(|accelerator| accelerator.device().step());

        let (waited, waits) = feed.take_waited();
        Ok(StepEvent {
            step: self.step,
            steps: schedule.steps,
            epoch: work.epoch,
            samples: work.positions.len(),
            loss,
            loss_terms: (totals.terms < count).then_some(totals.terms),
            grad_norm: norm,
            loss_scale: self.scaler.as_ref().map(|_| objective.scale),
            overflow,
            lr,
            data_wait_s: waited.as_secs_f64(),
            data_waits: waits,
            forward_s: totals.forward.as_secs_f64(),
            backward_s: totals.backward.as_secs_f64(),
            optimizer_s: update_start.elapsed().as_secs_f64(),
            samples_per_s: work.positions.len() as f64 / start.elapsed().as_secs_f64(),
            allocated_bytes: self.device().usage().allocated_bytes,
            profile: self.config.profile.then(|| Box::new(self.engine.take_profile(&self.model))),
        })
    }

    /// Norm, clip, update along the gradients times `share` over the loss scale. Nothing is updated where they overflowed.
    fn follow(&mut self, share: f64, (scale, lr): (f32, f64), learns: bool) -> Result<Followed> {
        let inverse = (share / f64::from(scale)) as f32;
        let examined = examine(&[self.gradients.values()], inverse, Threads::Caller);
        let overflow = self.note_scale(examined.non_finite.is_some())?;
        if let Some(factors) = examined.factors(self.config.clip_norm) {
            if learns {
                self.optimizer.step(&mut self.parameters, &self.gradients, (lr, factors));
            }
            self.carried.iter_mut().for_each(Carried::commit);
        }
        Ok(Followed { norm: examined.norm, overflow })
    }

    /// What became of the gradients of a step with this `loss` on a GPU.
    fn note_report(&mut self, report: &Report, loss: f64) -> Result<Followed> {
        let place = report.non_finite.map(|place| self.model.layout().element(place.index));
        report.scale_change(place.map(|(tensor, index)| Overflow { tensor, index })).map_err(Error::Scale)?;
        if let (Some(scaler), Some(state)) = (&mut self.scaler, report.scaler) {
            *scaler = LossScaler::resume(*scaler.config(), state).map_err(Error::Scale)?;
        }
        if let (Some((tensor, index)), None) = (place, &self.scaler) {
            let tensor = format!("the gradient of {tensor}");
            return Err(Error::NotFinite { step: self.step + 1, loss, tensor, index });
        }
        Ok(Followed { norm: report.norm, overflow: place.map(|(tensor, index)| format!("{tensor}[{index}]")) })
    }

    /// The sums over so many batches, whose gradients are then in place. On a GPU weights have followed them by then, if nothing speaks against it, and its report says so.
    fn accumulate(
        &mut self,
        feed: &mut Feed<'_>,
        (batches, counts): (usize, Option<TaskCounts>),
        (mut objective, lr): (Objective, f64),
    ) -> Result<(Totals, Option<Report>)> {
        let (mut totals, mut report) = (Totals::default(), None);
        self.gradients.clear();
        // What a step noted that failed halfway.
        self.carried.iter_mut().for_each(Carried::discard);
        match &mut self.accelerator {
            None => self.engine.load(&self.model, &self.parameters),
            Some(accelerator) => {
                let host = &mut Host { parameters: &mut self.parameters, optimizer: &mut self.optimizer };
                accelerator.begin(host, self.scaler.as_ref())?;
            }
        }
        for number in 1..=batches {
            let batch = feed.next()?.expect("the feed has the batches of every step");
            if let Loss::Tasks(tasks) = self.config.loss {
                let of_batch = || tasks.count(batch.targets());
                objective.loss = Loss::Tasks(tasks.of_step(counts.unwrap_or_else(of_batch)));
            }
            let model = (&self.model, &self.parameters);
            let before = totals.loss_sum;
            totals = match &mut self.accelerator {
                None => {
                    let changes = Changes { gradients: &mut self.gradients, carried: self.carried.as_mut() };
                    self.engine.accumulate(model, &batch, objective, (changes, totals))
                }
                Some(accelerator) => {
                    accelerator.accumulate(&batch, objective)?;
                    // Not waited for before the last one.
                    if number == batches {
                        let of = step_settings(&self.config, &self.course, (objective.count, lr));
                        let (sums, of_step) = accelerator.finish(&of)?;
                        report = Some(of_step);
                        sums
                    } else {
                        totals
                    }
                }
            };
            // A GPU's gradients are looked at there, at the end of the step.
            let may_overflow = self.scaler.is_some() || self.accelerator.is_some();
            let finite = totals.loss_sum.is_finite() && (may_overflow || self.gradients.first_non_finite().is_none());
            if !finite {
                objective.loss.check_targets(batch.targets())?;
                return Err(self.blame(&batch, objective, (totals.loss_sum - before) / objective.count as f64));
            }
        }
        Ok((totals, report))
    }

    /// Raises or lowers the loss scale, where there is one; the first gradient that overflowed.
    fn note_scale(&mut self, overflows: bool) -> Result<Option<String>> {
        let Some(scaler) = &mut self.scaler else { return Ok(None) };
        let overflow = if overflows { self.gradients.first_non_finite() } else { None };
        scaler.update(overflow.map(|(tensor, index)| Overflow { tensor, index })).map_err(Error::Scale)?;
        Ok(overflow.map(|(tensor, index)| format!("{tensor}[{index}]")))
    }

    /// Terms of the loss of a step: of graphs those of its known targets, elsewhere those that there are if all targets are known.
    fn terms_max(&self, work: &StepSamples, (schedule, run): (&Schedule, &Run<'_>)) -> usize {
        let outputs = self.model.shape().outputs;
        match run.samples.graphs() {
            Some(graphs) => {
                let batches = schedule.batches(self.step..self.step + 1, run.train);
                let labelled = batches.flatten().map(|graph| graphs.labelled(graph));
                labelled.map(|labelled| self.config.loss.graph_terms(labelled, outputs)).sum()
            }
            None => self.config.loss.terms_max(work.positions.len(), outputs),
        }
    }

    /// Terms of each task in a step of several batches, of which the first has to know how many targets of the last are known; none where the one
    /// batch of the step tells.
    fn counts_ahead(&self, work: &StepSamples, (schedule, run): (&Schedule, &Run<'_>)) -> Result<Option<TaskCounts>> {
        let Loss::Tasks(tasks) = self.config.loss else { return Ok(None) };
        if schedule.batches_of(work) == 1 {
            return Ok(None);
        }
        let batches = schedule.batches(self.step..self.step + 1, run.train);
        let mut targets = Targets::of(run.samples, &self.device.scope("batches"))?;
        let mut counts = TaskCounts::default();
        for sample in batches.flatten() {
            let of_sample = tasks.count(targets.of_sample(sample)?);
            counts.iter_mut().zip(of_sample).for_each(|(count, of_sample)| *count += of_sample);
        }
        Ok(Some(counts))
    }

    /// Finds the first number that is not finite, in the order of computation: the batch, the weights, what each layer gives of the batch, the gradients.
    fn blame(&mut self, batch: &BatchView<'_>, objective: Objective, loss: f64) -> Error {
        let step = self.step + 1;
        if let Some((tensor, index)) = batch.first_non_finite() {
            return Error::NotFinite { step, loss, tensor, index };
        }
        if self.settle().is_err() {
            return Error::NotFinite { step, loss, tensor: "the loss".to_owned(), index: 0 };
        }
        let mut trace = Trace::new(step);
        self.parameters.tensors().for_each(|(name, _, values)| trace.look(("", name), values));
        if trace.first().is_none() {
            let model = (&self.model, &self.parameters);
            if self.accelerator.is_some() {
                self.engine.load(&self.model, &self.parameters);
            }
            self.engine.trace(model, batch, (self.carried.as_ref(), objective), &mut trace);
        }
        for (name, _, values) in self.gradients.tensors() {
            trace.look(("", &format!("the gradient of {name}")), values);
        }
        let Some(first) = trace.first() else {
            // The processor computes this batch otherwise than a GPU does, or an earlier one of the step was to blame.
            assert!(self.accelerator.is_some(), "a loss or a gradient that is not finite comes from one of these");
            return Error::NotFinite { step, loss, tensor: "the loss".to_owned(), index: 0 };
        };
        let of = if first.layer.is_empty() { "" } else { " in " };
        let tensor = format!("{}{of}{}", first.tensor, first.layer);
        Error::NotFinite { step, loss, tensor, index: first.index }
    }
}

/// What a GPU is told of the end of a step whose losses are divided by `count`.
fn step_settings(config: &Config, course: &Course, (count, lr): (usize, f64)) -> StepSettings {
    let optimizer = OptimizerConfig { lr, ..config.optimizer }.settings();
    let loss_max = config.divergence.loss_max(course);
    StepSettings { count: count as f64, loss_max, clip_norm: config.clip_norm, optimizer }
}
