#![forbid(unsafe_code)]

//! One optimizer step.

use std::time::Instant;

use megabatch_amp::{LossScaler, Overflow, Threads, examine};
use megabatch_order::StepSamples;

use super::{Run, Trainer};
use crate::carried::Carried;
use crate::error::{Error, Result};
use crate::events::StepEvent;
use crate::prefetch::Feed;
use crate::schedule::Schedule;
use crate::step::{Changes, Objective, Totals};
use crate::view::BatchView;

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
        let totals = self.accumulate(feed, schedule.batches_of(&work), objective)?;
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
        let inverse = (count as f64 / terms as f64 / f64::from(objective.scale)) as f32;
        let examined = examine(&[self.gradients.values()], inverse, Threads::Caller);
        let overflow = self.note_scale(examined.non_finite.is_some())?;
        let lr = self.config.lr_schedule.rate(self.config.optimizer.lr, self.step, schedule.steps);
        let lr = lr * self.course.rate_factor();
        // None where a gradient overflowed.
        if let Some(factors) = examined.factors(self.config.clip_norm) {
            if learns {
                self.optimizer.step(&mut self.parameters, &self.gradients, (lr, factors));
            }
            self.carried.iter_mut().for_each(Carried::commit);
        }
        if learns {
            self.course.note(loss);
        }
        self.step += 1;
        self.device.step();

        let (waited, waits) = feed.take_waited();
        Ok(StepEvent {
            step: self.step,
            steps: schedule.steps,
            epoch: work.epoch,
            samples: work.positions.len(),
            loss,
            loss_terms: (totals.terms < count).then_some(totals.terms),
            grad_norm: examined.norm,
            loss_scale: self.scaler.as_ref().map(|_| objective.scale),
            overflow,
            lr,
            data_wait_s: waited.as_secs_f64(),
            data_waits: waits,
            forward_s: totals.forward.as_secs_f64(),
            backward_s: totals.backward.as_secs_f64(),
            optimizer_s: update_start.elapsed().as_secs_f64(),
            samples_per_s: work.positions.len() as f64 / start.elapsed().as_secs_f64(),
            allocated_bytes: self.device.usage().allocated_bytes,
        })
    }

    /// The sums over so many batches, whose gradients are then in place.
    fn accumulate(&mut self, feed: &mut Feed<'_>, batches: usize, objective: Objective) -> Result<Totals> {
        let mut totals = Totals::default();
        self.gradients.clear();
        // What a step noted that failed halfway.
        self.carried.iter_mut().for_each(Carried::discard);
        self.engine.load(&self.model, &self.parameters);
        for _ in 0..batches {
            let batch = feed.next()?.expect("the feed has the batches of every step");
            let model = (&self.model, &self.parameters);
            let changes = Changes { gradients: &mut self.gradients, carried: self.carried.as_mut() };
            let before = totals.loss_sum;
            totals = self.engine.accumulate(model, &batch, objective, (changes, totals));
            let may_overflow = self.scaler.is_some();
            let finite = totals.loss_sum.is_finite() && (may_overflow || self.gradients.first_non_finite().is_none());
            if !finite {
                objective.loss.check_targets(batch.targets())?;
                return Err(self.blame(&batch, (totals.loss_sum - before) / objective.count as f64));
            }
        }
        Ok(totals)
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
            None => self.config.loss.terms_of(work.positions.len() * outputs),
        }
    }

    /// Finds the first number that is not finite, in the order of computation: the batch, the weights, the outputs, the
    /// gradients.
    fn blame(&mut self, batch: &BatchView<'_>, loss: f64) -> Error {
        let mut outputs = vec![0.0; self.model.outputs_len(batch)];
        self.engine.predict(&self.model, &self.parameters, batch, &mut outputs);
        let weights = self.parameters.first_non_finite().map(|(name, index)| (name.to_owned(), index));
        let outputs = outputs.iter().position(|y| !y.is_finite()).map(|index| ("outputs".to_owned(), index));
        let gradients =
            self.gradients.first_non_finite().map(|(name, index)| (format!("the gradient of {name}"), index));
        let found = batch.first_non_finite().or(weights).or(outputs).or(gradients);
        let (tensor, index) = found.expect("a loss or a gradient that is not finite comes from one of these");
        Error::NotFinite { step: self.step + 1, loss, tensor, index }
    }
}
