//! Actions of a run that gets less memory than was planned, see
//! [`oom_fallback`](crate::train::oom_fallback).

use std::ops::ControlFlow;

use super::distributed::ProcessGroup;
use super::{Run, Trainer};
use crate::error::{Error, Result};
use crate::train::events::{Event, Observer, ShortageEvent};
use crate::train::oom_fallback::SampleForm;

impl Trainer {
    /// Cuts what the run takes of its device because of `error`, and says so.
    ///
    /// # Errors
    /// [`Error::CannotReduceFurther`] at the end of the fallback. What is done of the run is saved
    /// then.
    pub(super) fn cut(&mut self, error: Error, run: &Run<'_>, observer: &mut Observer<'_>) -> Result<ControlFlow<()>> {
        // What is done of the run is on the host then, for the steps with less and for a
        // checkpoint.
        self.sync_to_host_or_tell()?;
        let form = self.sample_form(run);
        let before = self.fallback.limits().for_samples(form);
        let Some(limits) = self.fallback.next_level(form) else {
            return Err(self.give_up(error, run, observer));
        };
        let cut = self.backend.cut(&self.model, &self.config, limits);
        let lost = match self.agree_on(cut) {
            Ok(()) => None,
            Err(Error::Peer(lost)) => Some(lost),
            Err(error) if error.is_shortage() => return Err(self.give_up(error, run, observer)),
            Err(error) => return Err(error),
        };
        let event = ShortageEvent::new(self.step, &error, before, limits, self.config.batch_size);
        let asked = observer(Event::Shortage(event));
        let asked = self.share_answer(asked);
        lost.map_or(Ok(asked), |lost| self.reform(lost, observer))
    }

    /// Form of the samples of `run`, which all ranks know of each other.
    fn sample_form(&self, run: &Run<'_>) -> SampleForm {
        let form = SampleForm::new(run.samples);
        let Some(ProcessGroup { has_chunks, any_rank_releases, .. }) = &self.process_group else { return form };
        SampleForm { has_chunks: *has_chunks, any_rank_releases: *any_rank_releases, ..form }
    }

    /// Tells what was cut before there was anybody to tell.
    pub(super) fn tell_cuts(&mut self, observer: &mut Observer<'_>) -> ControlFlow<()> {
        let mut asked = ControlFlow::Continue(());
        for cut in std::mem::take(&mut self.cut_before) {
            let answer = self.share_answer(observer(Event::Shortage(cut)));
            asked = if asked.is_break() { asked } else { answer };
        }
        asked
    }

    /// Saves what is done, as far as it can be, for a later session with more memory.
    fn give_up(&self, error: Error, run: &Run<'_>, observer: &mut Observer<'_>) -> Error {
        let is_saved = |step| self.step == 0 || step == Some(self.step);
        let last = run.checkpoints.and_then(|checkpoints| checkpoints.list().ok()?.last().map(|(step, _)| *step));
        // Weights that nothing could go on from, and a full disk: the checkpoints before are as
        // good as ever.
        if self.is_first()
            && !is_saved(last)
            && self.check_weights().is_ok()
            && let Ok(Some(path)) = self.save_checkpoint(run)
        {
            // The run ends whatever is answered.
            let _ends = observer(Event::Checkpoint { step: self.step, path: &path });
        }
        Error::CannotReduceFurther {
            step: self.step + 1,
            batch_size: self.fallback.limits().batch_size,
            source: Box::new(error),
        }
    }
}
