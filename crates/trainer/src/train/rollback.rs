//! Rollback of a run that diverges, see [`Divergence`].

use std::ops::ControlFlow;

use super::{Run, Trainer};
use crate::config::divergence::Divergence;
use crate::error::{Error, Result};
use crate::train::events::{Event, Observer, RollbackEvent};

impl Trainer {
    /// Refuses to go back where there would be nothing to go back to, and saves where nothing is
    /// saved yet.
    pub(super) fn prepare_rollbacks(&mut self, run: &Run<'_>, observer: &mut Observer<'_>) -> Result<ControlFlow<()>> {
        if self.config.divergence.max_rollbacks == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(checkpoints) = run.checkpoints else {
            let max_rollbacks = self.config.divergence.max_rollbacks;
            let expected = "0 where no checkpoints are kept";
            return Err(Error::setting("max_rollbacks", &max_rollbacks, expected));
        };
        let saved = self.on_first_rank(|trainer| {
            if checkpoints.list()?.last().is_some_and(|(step, _)| *step == trainer.step) {
                return Ok(None);
            }
            trainer.save_checkpoint(run)
        })?;
        let Some(path) = saved else { return Ok(ControlFlow::Continue(())) };
        let asked = observer(Event::Checkpoint { step: self.step, path: &path });
        Ok(self.share_answer(asked))
    }

    /// Goes back to the last checkpoint if `error` is a divergence and there are rollbacks left;
    /// else gives it back.
    pub(super) fn roll_back(
        &mut self,
        error: Error,
        run: &Run<'_>,
        observer: &mut Observer<'_>,
    ) -> Result<ControlFlow<()>> {
        let Divergence { max_rollbacks, .. } = self.config.divergence;
        let (failed_step, loss) = match &error {
            Error::NotFinite { step, loss, .. } | Error::LossSpike { step, loss, .. } => (*step, *loss),
            // The loss was finite, and is not at hand any more.
            Error::Scale(_) => (self.step + 1, f64::NAN),
            _ => return Err(error),
        };
        let rollbacks = self.divergence.rollbacks;
        if max_rollbacks == 0 {
            return Err(error);
        }
        if rollbacks >= max_rollbacks {
            return Err(Error::Diverged { rollbacks, source: Box::new(error) });
        }
        let Some(checkpoints) = run.checkpoints else { return Err(error) };
        let last = self.divergence.back_to;
        let before = self.on_first_rank(|_| {
            let all = checkpoints.list()?;
            let has_saved_none = all.last().is_some_and(|(step, _)| Some(*step) == last);
            Ok(last.filter(|_| has_saved_none && all.len() > 1))
        })?;
        if self.restore(run, before)?.is_none() {
            return Err(error);
        }
        self.validated = None;
        self.divergence.rollbacks = rollbacks + 1;
        self.divergence.back_to = Some(self.step);
        // Told before it is saved: a run that is killed in between goes back once more, and must
        // not find it told already.
        let asked = observer(Event::Rollback(RollbackEvent {
            step: self.step,
            failed_step,
            loss,
            cause: error.to_string(),
            rollbacks: self.divergence.rollbacks,
            max_rollbacks,
            rate_factor: self.divergence.rate_factor(),
        }));
        self.on_first_rank(|trainer| {
            trainer.save_checkpoint(run)?;
            // Only now: a run that is killed before goes on from them, and comes here again.
            checkpoints.remove_after(trainer.step).map(Some)
        })?;
        Ok(self.share_answer(asked))
    }

    /// Refuses to save weights that nothing could go on from.
    pub(super) fn check_weights(&self) -> Result<()> {
        let Some((name, index)) = self.parameters.first_non_finite() else { return Ok(()) };
        Err(Error::NotFinite { step: self.step + 1, loss: f64::NAN, tensor: name.to_owned(), index })
    }
}
