//! Weights, gradients and the optimizer's state on a device.

use megabatch_amp::LossScaler;
use megabatch_amp::ops::{
    ChunkedTensors, DeviceScaler, MomentBuffers, OptimizerBuffers, PendingReport, ScaledGradients, StepReport,
    unscale_and_check, update,
};
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::memory::StepPhase;
use megabatch_nn::model::Layout;

use super::Host;
use super::memory_estimate::MemoryEstimate;

#[derive(Debug)]
pub(super) struct Resident {
    scope: Scope,
    pub(super) values: Buffer<f32>,
    pub(super) gradients: Buffer<f32>,
    /// Means of the gradients and of their squares, for a rule that keeps them.
    moments: Option<[Buffer<f32>; 2]>,
    tensors: ChunkedTensors,
    pub(super) control: DeviceScaler,
}

impl Resident {
    /// Buffers for the tensors of `layout`, below `scope`; to be loaded before it is used.
    pub(super) fn new(scope: &Scope, layout: &Layout, has_moments: bool) -> Result<Self> {
        let optimizer_scope = scope.child("optimizer");
        let values = zeros(&scope.child("model/parameters"), layout)?;
        let gradients = zeros(&scope.child("model/gradients"), layout)?;
        let moments = moments(&optimizer_scope, layout, has_moments)?;
        let (tensors, control) = steering(&optimizer_scope, layout)?;
        Ok(Resident { scope: optimizer_scope, values, gradients, moments, tensors, control })
    }

    /// Counts what [`Resident::new`] takes.
    pub(super) fn estimate(estimate: &mut MemoryEstimate<'_>) {
        let (model, has_moments) = (estimate.model, estimate.config.has_moments);
        let layout = model.layout();
        let learnt = [StepPhase::Backward, StepPhase::Optimizer];
        estimate.book("parameters", "weights", &StepPhase::ALL, |scope| zeros(scope, layout));
        estimate.book("gradients", "gradients", &learnt, |scope| zeros(scope, layout));
        estimate.book("optimizer", "moments", &[StepPhase::Optimizer], |scope| moments(scope, layout, has_moments));
        estimate.book("optimizer", "loss scaler and step settings", &learnt, |scope| steering(scope, layout));
    }

    /// Takes weights, moments, the number of updates and the loss scale as they are on the host.
    pub(super) fn load(&mut self, host: &Host<'_>, scaler: Option<&LossScaler>) -> Result<()> {
        self.values.copy_from(host.parameters.values())?;
        if let (Some([mean, square]), Some(from)) = (&mut self.moments, &host.moments) {
            mean.copy_from(from.exp_avg.values())?;
            square.copy_from(from.exp_avg_sq.values())?;
        }
        self.control = DeviceScaler::new(&self.scope, scaler, *host.steps)?;
        Ok(())
    }

    /// Gives weights, moments and the number of updates back to the host. Waits for the device.
    pub(super) fn store(&self, host: &mut Host<'_>) -> Result<()> {
        let report = self.control.report(&self.tensors)?;
        self.values.copy_to(host.parameters.values_mut())?;
        if let (Some([mean, square]), Some(to)) = (&self.moments, &mut host.moments) {
            mean.copy_to(to.exp_avg.values_mut())?;
            square.copy_to(to.exp_avg_sq.values_mut())?;
        }
        *host.steps = report.steps;
        Ok(())
    }

    /// Checks the gradients and `losses` `[2]`, their sum and the number of its terms, and runs the
    /// optimizer if all are finite. Does not wait.
    pub(super) fn update(&mut self, losses: &Buffer<f64>) -> Result<()> {
        let Resident { values, gradients, moments, tensors, control, .. } = self;
        unscale_and_check(tensors, ScaledGradients { gradients, losses }, control)?;
        let moments = moments.as_mut().map(|[exp_avg, exp_avg_sq]| MomentBuffers { exp_avg, exp_avg_sq });
        let mut weights = OptimizerBuffers { values, gradients, moments };
        Ok(update(tensors, &mut weights, control)?)
    }

    /// Report on a step. Waits for what was submitted before the report was asked for.
    pub(super) fn read(&self, report: PendingReport) -> Result<StepReport> {
        Ok(report.wait(&self.tensors)?)
    }
}

/// A number for each of the parameters of `layout`, zero at first.
fn zeros(scope: &Scope, layout: &Layout) -> Result<Buffer<f32>> {
    Ok(Buffer::zeros(scope, layout.len())?)
}

/// The optimizer's means, for a rule that keeps them.
fn moments(scope: &Scope, layout: &Layout, has_moments: bool) -> Result<Option<[Buffer<f32>; 2]>> {
    Ok(if has_moments { Some([zeros(scope, layout)?, zeros(scope, layout)?]) } else { None })
}

/// Chunks of the parameters, and settings of the step, for the passes from gradients to weights.
fn steering(scope: &Scope, layout: &Layout) -> Result<(ChunkedTensors, DeviceScaler)> {
    // All in one, as the CPU takes them: its sums have the same bits.
    let tensors = ChunkedTensors::new(scope, std::slice::from_ref(&(0..layout.len())))?;
    Ok((tensors, DeviceScaler::new(scope, None, 0)?))
}
