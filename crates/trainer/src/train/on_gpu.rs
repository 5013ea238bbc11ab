#![forbid(unsafe_code)]

//! Steps on a GPU, which does not wait for the host.
//!
//! ```text
//! host     batches of n + 1    wait for report n   check, tell   end of n + 1   batches of n + 2 …
//! device   batches of n, end of n, report n  │  batches of n + 1   │  end of n + 1 …
//! ```
//!
//! Only the gradients of step n + 1 are submitted before report n is read: they change neither
//! weights nor the optimizer. If the run stops or rolls back after step n, they are dropped.

use std::time::Instant;

use megabatch_amp::ops::{StepReport, StepSettings};
use megabatch_amp::{LossScaler, Overflow};
use megabatch_nn_cpu::Totals;
use megabatch_nn_cuda::Accelerator;

use super::step::{BatchPipeline, StepPlan, UpdateOutcome};
use super::{Run, Trainer};
use crate::config::Config;
use crate::config::divergence::DivergenceState;
use crate::config::optimizer::OptimizerConfig;
use crate::data::prefetch::{BatchFeed, GatherMode, Source, with_batches};
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};

impl Trainer {
    /// One step: its plan, the sums over its batches, and the device's report of them, with weights
    /// that are updated where nothing spoke against it. The batches of the next step are submitted
    /// by then.
    pub(super) fn step_on_gpu(
        &mut self,
        pipeline: &mut BatchPipeline<'_, '_>,
        lr: f64,
        schedule: &Schedule,
        run: &Run<'_>,
    ) -> Result<(StepPlan, Totals, StepReport)> {
        let start = Instant::now();
        let mut plan = match pipeline.ahead.take() {
            Some(submitted) => submitted?,
            None => self.submit(self.step, pipeline.feed, schedule, run)?,
        };
        // The step before may have changed the scale since. This is for the log: kernels read the
        // device's.
        plan.objective.scale = self.scale();
        let settings = step_settings(&self.config, &self.divergence, plan.objective.count, lr);
        self.accelerator_mut().apply_gradients(&settings)?;
        if self.can_submit_ahead(self.step + 1, schedule, run) {
            pipeline.ahead = Some(self.submit(self.step + 1, pipeline.feed, schedule, run));
        }
        let report = self.accelerator_mut().report()?;
        // Host time of the whole step, with its wait for data: GPU passes are not timed apart.
        let (terms, forward) = (report.terms as usize, start.elapsed());
        let totals = Totals { loss_sum: report.loss_sum, terms, forward, ..Totals::default() };
        if !totals.loss_sum.is_finite() {
            return Err(self.blame_step(&plan, totals, schedule, run));
        }
        Ok((plan, totals, report))
    }

    /// Gives the device the batches of step `step`, counted from 0.
    fn submit(&mut self, step: u64, feed: &mut BatchFeed<'_>, schedule: &Schedule, run: &Run<'_>) -> Result<StepPlan> {
        let plan = self.plan_step(step, schedule, run)?;
        let Trainer { accelerator, parameters, optimizer, scaler, .. } = self;
        let accelerator = accelerator.as_mut().expect(ON_GPU);
        accelerator.begin_step(&mut optimizer.host(parameters), scaler.as_ref())?;
        for positions in &plan.batches {
            let batch = feed.next()?.expect("the feed has the batches of every step");
            accelerator.accumulate(&batch, plan.objective_over(&batch, positions))?;
        }
        Ok(plan)
    }

    /// True if neither a validation nor a checkpoint follows after `steps` steps: these would
    /// overwrite what was submitted ahead.
    fn can_submit_ahead(&self, steps: u64, schedule: &Schedule, run: &Run<'_>) -> bool {
        let due = self.due(steps, schedule, run);
        steps < schedule.steps && !due.validation && !due.checkpoint
    }

    /// Outcome of the gradients of a step with this `loss`.
    pub(super) fn note_report(&mut self, report: &StepReport, loss: f64) -> Result<UpdateOutcome> {
        let place = report.non_finite.map(|place| self.model.layout().element(place.index));
        report.scale_change(place.map(|(tensor, index)| Overflow { tensor, index })).map_err(Error::Scale)?;
        if let (Some(scaler), Some(state)) = (&mut self.scaler, report.scaler) {
            *scaler = LossScaler::resume(*scaler.config(), state).map_err(Error::Scale)?;
        }
        if let (Some((tensor, index)), None) = (place, &self.scaler) {
            let tensor = format!("the gradient of {tensor}");
            return Err(Error::NotFinite { step: self.step + 1, loss, tensor, index });
        }
        Ok(UpdateOutcome { norm: report.norm, overflow: place.map(|(tensor, index)| format!("{tensor}[{index}]")) })
    }

    /// Finds what made the loss of a step infinite or NaN. Its batches are read once more, as the
    /// next ones have come since.
    fn blame_step(&mut self, plan: &StepPlan, totals: Totals, schedule: &Schedule, run: &Run<'_>) -> Error {
        let (step, loss) = (self.step + 1, totals.loss_sum / plan.objective.count as f64);
        let not_finite = |tensor, index| Error::NotFinite { step, loss, tensor, index };
        let batches = schedule.batches(self.step..step, run.train);
        let scope = self.device.scope("batches");
        let target_scales = self.target_scales.clone();
        let source = Source {
            gather_mode: GatherMode::Bars,
            target_scales: target_scales.as_ref(),
            ..self.source(run, None, &scope, schedule.capacity())
        };
        let found = with_batches(source, batches, |feed| -> Result<Option<Error>> {
            self.sync_to_host()?;
            self.engine.load(&self.model, &self.parameters);
            for positions in &plan.batches {
                let batch = feed.next()?.expect("the feed has the batches of the step");
                let objective = plan.objective_over(&batch, positions);
                if let Err(error) = objective.loss.check_rows(batch.targets(), self.model.shape().outputs) {
                    return Ok(Some(error.into()));
                }
                if let Some((tensor, index)) = self.locate_non_finite(&batch, objective, None) {
                    return Ok(Some(not_finite(tensor, index)));
                }
            }
            Ok(None)
        });
        // The CPU may compute otherwise than a GPU does, and a device or a source that fails
        // now says less than that the loss was not finite.
        found.ok().flatten().unwrap_or_else(|| not_finite("the loss".to_owned(), 0))
    }

    fn accelerator_mut(&mut self) -> &mut Accelerator {
        self.accelerator.as_mut().expect(ON_GPU)
    }
}

/// Times and captures of a GPU, step by step.
#[derive(Debug, Default)]
pub(super) struct GpuTimer {
    is_on: bool,
    /// Captures made before this step.
    captures_before: u64,
}

impl GpuTimer {
    /// Seconds of the work that the GPU has ended since the last call, where it is timed.
    pub(super) fn take_step_s(&mut self, accelerator: Option<&mut Accelerator>) -> Result<Option<f64>> {
        let timed = accelerator.filter(|_| self.is_on);
        Ok(timed.map(Accelerator::take_busy_s).transpose()?)
    }

    /// Captures made since the last call, if any.
    pub(super) fn take_captures(&mut self, accelerator: Option<&Accelerator>) -> Option<u64> {
        let made = accelerator?.captures_made();
        let before = std::mem::replace(&mut self.captures_before, made);
        (made > before).then(|| made - before)
    }
}

impl Trainer {
    /// From now on, times the work of the GPU by its events ([`StepEvent::gpu_s`]). Nothing on the
    /// CPU.
    ///
    /// # Errors
    /// [`Error::Model`] with the driver's failure.
    ///
    /// [`StepEvent::gpu_s`]: crate::StepEvent::gpu_s
    pub fn time_gpu(&mut self) -> Result<()> {
        self.gpu_timer.is_on = true;
        Ok(self.accelerator.iter_mut().try_for_each(Accelerator::time_work)?)
    }
}

const ON_GPU: &str = "the run is on a GPU";

/// Settings for a GPU at the end of a step whose losses are divided by `count`.
fn step_settings(config: &Config, divergence: &DivergenceState, count: usize, lr: f64) -> StepSettings {
    let optimizer = OptimizerConfig { lr, ..config.optimizer }.settings();
    let loss_max = config.divergence.loss_max(divergence);
    StepSettings { count: count as f64, loss_max, clip_norm: config.clip_norm, optimizer }
}
