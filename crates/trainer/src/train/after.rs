//! Actions after a step: validations, checkpoints, the end of an epoch and of the run.

use std::ops::ControlFlow;

use megabatch_nn_cpu::Carried;
use megabatch_order::StepSamples;

use super::{End, Run, Trainer};
use crate::config::Config;
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::evaluate::pass::evaluate;
use crate::evaluate::predictions::Predictions;
use crate::evaluate::selection::Selection;
use crate::train::checkpoint::{Best, State};
use crate::train::events::{EpochEvent, Event, Observer, ValidatingEvent, ValidationEvent};

/// Actions after a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    epoch_ends: bool,
    pub(super) validation: bool,
    pub(super) checkpoint: bool,
}

impl Due {
    /// Actions after `steps` steps.
    pub(super) fn after(steps: u64, config: &Config, schedule: &Schedule, run: &Run<'_>) -> Due {
        let epoch_ends = steps.is_multiple_of(schedule.steps_per_epoch);
        let due = |every: Option<u64>| every.is_some_and(|every| steps.is_multiple_of(every));
        let validates = epoch_ends || due(config.validate_every_steps) || steps == schedule.steps;
        let saves = run.checkpoints.is_some_and(|checkpoints| epoch_ends || due(checkpoints.every_steps));
        Due { epoch_ends, validation: validates && !run.validation.is_empty(), checkpoint: saves }
    }
}

impl Trainer {
    /// Does what follows the last step, unless that is done. A validation that is due is done even
    /// if the observer asked to stop, unless it breaks the validation too: the resumed run, which
    /// begins after it, must know the same best.
    pub(super) fn finish_step(
        &mut self,
        run: &Run<'_>,
        schedule: &Schedule,
        observer: &mut Observer<'_>,
    ) -> Result<Option<End>> {
        let Some(asked) = self.unfinished else { return Ok(None) };
        let is_validated = self.is_followed_up();
        let validation = match Due::after(self.step, &self.config, schedule, run).validation && !is_validated {
            true => match self.validate(run, schedule, observer) {
                Err(Error::Interrupted { .. }) => return self.stop_unfinished(run, observer).map(Some),
                event => Some(event?),
            },
            false => None,
        };
        let end = self.after_validation(run, schedule, asked, validation, observer)?;
        self.unfinished = None;
        Ok(end)
    }

    /// True once what follows the last step was done here: its validation, and what is told of it.
    pub(super) fn is_followed_up(&self) -> bool {
        self.validated.is_some_and(|(step, _)| step == self.step)
    }

    /// Saves the run as it stands before the validation of its last step, which the run that goes
    /// on begins with.
    fn stop_unfinished(&mut self, run: &Run<'_>, observer: &mut Observer<'_>) -> Result<End> {
        self.sync_to_host_or_tell()?;
        self.check_weights()?;
        self.unfinished = Some(ControlFlow::Continue(()));
        if let Some(path) = self.on_first_rank(|trainer| trainer.save_checkpoint(run))? {
            // The run ends whatever is answered.
            let _ends = observer(Event::Checkpoint { step: self.step, path: &path });
        }
        Ok(End::Stopped)
    }

    /// Tells of the step's validation, if there was one, and saves where it is due; saves in any
    /// case when the run ends here.
    fn after_validation(
        &mut self,
        run: &Run<'_>,
        schedule: &Schedule,
        asked: ControlFlow<()>,
        validation: Option<ValidationEvent>,
        observer: &mut Observer<'_>,
    ) -> Result<Option<End>> {
        let due = Due::after(self.step, &self.config, schedule, run);
        let mut flow = asked;
        // A run that lost a rank after its validation comes here again.
        let validated = self.validated.filter(|(step, _)| *step == self.step);
        let mut improved = validated.is_some_and(|(_, best)| best);
        if validated.is_none() {
            if let Some(event) = validation {
                improved = event.best;
                let answer = observer(Event::Validation(event));
                let answer = self.share_answer(answer);
                flow = if flow.is_break() { flow } else { answer };
            }
            if due.epoch_ends {
                let answer = observer(Event::Epoch(self.epoch_event(schedule)));
                let answer = self.share_answer(answer);
                flow = if flow.is_break() { flow } else { answer };
            }
            self.validated = Some((self.step, improved));
        }
        if let Some(checkpoints) = run.checkpoints
            && (due.checkpoint || improved || flow.is_break() || self.end(schedule).is_some())
        {
            self.sync_to_host_or_tell()?;
            self.check_weights()?;
            let state = State { unfinished: false, ..self.state(schedule, run) };
            let saved = self.on_first_rank(|trainer| {
                let carried = trainer.carried.as_ref().map(Carried::states);
                checkpoints.save(&state, &trainer.parameters, &trainer.optimizer, carried).map(Some)
            })?;
            if let Some(path) = saved {
                let answer = observer(Event::Checkpoint { step: self.step, path: &path });
                let answer = self.share_answer(answer);
                flow = if flow.is_break() { flow } else { answer };
            }
        }
        // A stop asked for at the very last step changes nothing: the run is finished.
        Ok(self.end(schedule).or(flow.is_break().then_some(End::Stopped)))
    }

    fn epoch_event(&self, schedule: &Schedule) -> EpochEvent {
        let (usage, stats) = (self.device().usage(), self.device().stats());
        EpochEvent {
            step: self.step,
            epoch: schedule.step(self.step - 1).epoch,
            allocated_bytes: usage.allocated_bytes,
            allocated_bytes_peak: usage.allocated_bytes_peak,
            reserved_bytes: stats.reserved_bytes.now,
            reserved_bytes_peak: stats.reserved_bytes.peak,
            inactive_split_bytes: stats.inactive_split_bytes.now,
        }
    }

    /// Why nothing is left to do, if so.
    pub(super) fn end(&self, schedule: &Schedule) -> Option<End> {
        if self.step >= schedule.steps {
            return Some(End::Finished);
        }
        let is_over = self.config.early_stopping.is_some_and(|rule| rule.is_over(self.early_stopping));
        is_over.then_some(End::StoppedEarly)
    }

    /// # Errors
    /// [`Error::Interrupted`] where the observer breaks it; nothing is changed then.
    fn validate(&mut self, run: &Run<'_>, schedule: &Schedule, observer: &mut Observer<'_>) -> Result<ValidationEvent> {
        if self.config.streams() {
            // One pass over each segment is the CPU's.
            self.sync_to_host_or_tell()?;
        } else if let Some(accelerator) = self.backend.accelerator_mut() {
            let loaded = accelerator.load(&mut self.optimizer.host(&mut self.parameters), self.scaler.as_ref());
            self.tell_failure(loaded.map_err(Error::from))?;
        }
        let indices = self.config.evaluated(run.validation).into_owned();
        let states = self.states_for(&indices, run.validation);
        let (selection, loss) = (Selection { samples: run.samples, indices: &indices }, self.config.loss);
        let (step, samples) = (self.step, indices.len());
        let mut told = 0;
        let mut progress = |done: usize| match std::mem::replace(&mut told, done) == done {
            true => observer(Event::Waiting),
            false => observer(Event::Validating(ValidatingEvent { step, done, samples })),
        };
        let evaluation = match self.shares_validations(states) {
            false => {
                let predictions = Predictions { states, ..self.predictions_in_training() };
                let own = evaluate(predictions, selection, loss, None, None, &mut progress);
                self.agree_on(own)?
            }
            true => self.evaluate_together(selection, states, &mut progress)?,
        };
        let loss = evaluation.loss;
        let best = loss.is_finite() && self.best.is_none_or(|best| loss < best.loss);
        if best {
            self.best = Some(Best { step: self.step, loss });
        }
        if let Some(rule) = self.config.early_stopping {
            rule.count(&mut self.early_stopping, loss);
        }
        let StepSamples { epoch, .. } = schedule.step(self.step - 1);
        Ok(ValidationEvent { step: self.step, epoch, loss, best, metrics: evaluation.metrics })
    }
}
