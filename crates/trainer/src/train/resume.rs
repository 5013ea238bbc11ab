//! Checkpoints of a run, and its resumption.

use std::ops::ControlFlow;
use std::path::PathBuf;

use megabatch_amp::LossScaler;
use megabatch_nn_cpu::Carried;
use megabatch_order::StepSamples;

use super::{Run, Trainer};
use crate::config::TargetScaling;
use crate::data::carried_rows::SlicedSeries;
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::train::checkpoint::{Arithmetic, Resumed, RunSettings, State};

impl Trainer {
    /// Goes back to the latest checkpoint of `run` that can be read, from which [`Trainer::train`]
    /// goes on bit for bit as the uninterrupted run would have, unless [`Resumed`] says what is
    /// different now. `None` when there is no checkpoint. What a killed run left unfinished is
    /// removed. A run that had ended, ends at once when it is trained.
    ///
    /// # Errors
    /// [`Error::OtherRun`] when a setting that must be the checkpoint's is not, see
    /// [`RunSettings`]; when no checkpoint can be read, why the newest cannot. The trainer is then
    /// as before.
    pub fn resume(&mut self, run: &Run<'_>) -> Result<Option<Resumed>> {
        self.restore(run, None)
    }

    /// Goes back to the latest checkpoint of less than `before` steps, if that is given. Rank 0
    /// reads it for all.
    pub(super) fn restore(&mut self, run: &Run<'_>, before: Option<u64>) -> Result<Option<Resumed>> {
        let Some(checkpoints) = run.checkpoints else { return Ok(None) };
        let settings = self.run_settings(&Schedule::new(&self.config, run.train.len())?, run);
        self.carry_states_of(run)?;
        let resumed = self.on_first_rank(|trainer| {
            let arithmetic = Arithmetic::here(trainer.config.precision);
            let before = before.unwrap_or(u64::MAX);
            let carried = trainer.carried.as_mut().map(Carried::states_mut);
            let (parameters, optimizer) = (&mut trainer.parameters, &mut trainer.optimizer);
            checkpoints.load_latest(before, &settings, &arithmetic, parameters, optimizer, carried)
        })?;
        let resumed = self.share_restored(resumed)?;
        if let Some(Resumed { state, skipped_paths, .. }) = &resumed {
            self.unreadable.extend(skipped_paths.iter().cloned());
            self.backend.mark_host_dirty();
            (self.step, self.best, self.early_stopping) = (state.step, state.best, state.early_stopping);
            self.divergence = state.divergence.clone();
            self.target_scales = state.target_scales.clone();
            self.config.target_scaling =
                if state.target_scales.is_some() { TargetScaling::Auto } else { TargetScaling::None };
            self.unfinished = state.unfinished.then_some(ControlFlow::Continue(()));
            if let (Some(scaler), Some(mut state)) = (&mut self.scaler, state.scaler) {
                // The floor and the ceiling may be others now.
                state.scale = state.scale.clamp(scaler.config().floor, scaler.config().ceiling);
                *scaler = LossScaler::resume(*scaler.config(), state).map_err(Error::Scale)?;
            }
        }
        Ok(resumed)
    }

    /// Saves the weights and the optimizer as they are now as a checkpoint of `run`; its folder, or
    /// `None` where the run keeps none.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written: the checkpoints before it are
    /// then still there. [`Error::NothingLeft`] for a run without
    /// training samples; [`Error::NeedsSeries`] for carried state of samples
    /// that are stored as windows.
    pub fn save_checkpoint(&self, run: &Run<'_>) -> Result<Option<PathBuf>> {
        let Some(checkpoints) = run.checkpoints else { return Ok(None) };
        let state = self.state(&Schedule::new(&self.config, run.train.len())?, run);
        let rows = if self.carried.is_none() { self.carried_rows(run)? } else { None };
        let fresh = rows.map(|rows| self.fresh_states(&rows)).transpose()?;
        let carried = self.carried.as_ref().or(fresh.as_ref()).map(Carried::states);
        checkpoints.save(&state, &self.parameters, &self.optimizer, carried).map(Some)
    }

    /// Makes ready to carry the states of `run`; those that are carried already stay, if they are
    /// of the same bars.
    pub(super) fn carry_states_of(&mut self, run: &Run<'_>) -> Result<()> {
        let Some(rows) = self.carried_rows(run)? else { return Ok(()) };
        if !self.carried.as_ref().is_some_and(|carried| carried.is_of(&rows)) {
            // Given back before the new ones are taken.
            self.carried = None;
            self.carried = Some(self.fresh_states(&rows)?);
        }
        Ok(())
    }

    /// The bars whose states are carried in `run`, if any are.
    fn carried_rows(&self, run: &Run<'_>) -> Result<Option<Vec<Vec<usize>>>> {
        let read = || SlicedSeries::new(run.samples)?.carried_rows(run.train);
        self.config.carry_state.then(read).transpose()
    }

    /// States of zero at these bars.
    fn fresh_states(&self, rows: &[Vec<usize>]) -> Result<Carried> {
        let step_samples = self.backend.held_step_samples(&self.config);
        Ok(Carried::new(&self.device.scope("carried"), &self.model, rows, step_samples)?)
    }

    pub(super) fn state(&self, schedule: &Schedule, run: &Run<'_>) -> State {
        let StepSamples { epoch, positions } = schedule.step(self.step);
        State {
            format_version: State::VERSION,
            step: self.step,
            epoch,
            position_in_epoch: positions.start,
            run: self.run_settings(schedule, run),
            arithmetic: Arithmetic::here(self.config.precision),
            best: self.best,
            early_stopping: self.early_stopping,
            divergence: self.divergence.clone(),
            target_scales: self.target_scales.clone(),
            scaler: self.scaler.as_ref().map(LossScaler::state),
            unfinished: self.unfinished.is_some(),
            updates: self.optimizer.steps(),
        }
    }

    fn run_settings(&self, schedule: &Schedule, run: &Run<'_>) -> RunSettings {
        RunSettings::new(&self.config, self.model.shape(), schedule.steps, run)
    }
}
