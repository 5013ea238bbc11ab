use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::{AsyncDownload, Buffer, Result, Scope, Staging};

use super::tensors::{ChunkedTensors, NONE};
use crate::error::Error;
use crate::gradients::ElementIndex;
use crate::optimizer::{OptimizerSettings, Rates};
use crate::scaler::{LossScaler, Overflow, ScaleChange, ScalerConfig, ScalerState};

/// Loss scaler whose state stays on the device: loss scale, norm and finiteness of the gradients,
/// number of updates.
#[derive(Debug)]
pub struct DeviceScaler {
    scaler: Option<ScalerConfig>,
    /// Settings of the last step that was begun.
    step: Option<StepSettings>,
    pub(super) step_on_device: Buffer<DeviceStep>,
    staging: Staging,
    pub(super) scale: Buffer<f32>,
    pub(super) state: Buffer<DeviceState>,
}

/// Settings of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSettings {
    /// Number of loss terms that gradients were divided by, > 0. Where the step's number differs,
    /// as [`unscale_and_check`](super::unscale_and_check()) is told, gradients are multiplied by
    /// the quotient.
    pub count: f64,
    /// Largest mean loss with which weights are updated.
    pub loss_max: f64,
    /// Norm that gradients are clipped to; `None` for no clipping.
    pub clip_norm: Option<f64>,
    /// Optimizer settings of the step.
    pub optimizer: OptimizerSettings,
}

impl Default for StepSettings {
    /// One loss term, no limit on the loss, no clipping, and the optimizer's defaults.
    fn default() -> Self {
        StepSettings { count: 1.0, loss_max: f64::INFINITY, clip_norm: None, optimizer: OptimizerSettings::default() }
    }
}

/// `DeviceStep` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct DeviceStep {
    count: f64,
    loss_max: f64,
    clip_norm: f64,
    lr: f64,
    beta1: f64,
    beta2: f64,
    rates: FixedRates,
    none: u32,
}

/// Factors of an update that do not depend on how many there were before: `Rates` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct FixedRates {
    lr: f32,
    coupled_decay: f32,
    shrink: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    epsilon: f32,
}

impl DeviceStep {
    fn new(settings: &StepSettings) -> Self {
        // The number of the step matters to none of these.
        let rates = Rates::new(&settings.optimizer, 1);
        DeviceStep {
            count: settings.count,
            loss_max: settings.loss_max,
            clip_norm: settings.clip_norm.unwrap_or(f64::INFINITY),
            lr: settings.optimizer.lr,
            beta1: settings.optimizer.beta1,
            beta2: settings.optimizer.beta2,
            rates: FixedRates {
                lr: rates.lr,
                coupled_decay: rates.coupled_decay,
                shrink: rates.shrink,
                one_minus_beta1: rates.one_minus_beta1,
                beta2: rates.beta2,
                one_minus_beta2: rates.one_minus_beta2,
                epsilon: rates.epsilon,
            },
            none: 0,
        }
    }
}

/// `DeviceState` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct DeviceState {
    /// The sum of the losses, and the number of its terms.
    pub(super) loss: f64,
    pub(super) terms: f64,
    pub(super) norm: f64,
    /// Updates done.
    pub(super) steps: u64,
    pub(super) inverse_scale: f32,
    pub(super) clip: f32,
    pub(super) step_size: f32,
    pub(super) root_correction2: f32,
    /// The loss scale that the gradients were examined with.
    pub(super) scale_before: f32,
    pub(super) scale_after: f32,
    /// Chunk of the first non-finite gradient; [`NONE`] where all are finite.
    pub(super) bad_chunk: u32,
    pub(super) bad_index: u32,
    pub(super) clean_steps: u32,
    pub(super) overflows: u32,
    /// Change of the loss scale: [`NO_CHANGE`] and those after it.
    pub(super) change: u32,
    /// 1 where the update is applied.
    pub(super) applied: u32,
}

pub(super) const NO_CHANGE: u32 = 0;
pub(super) const GROWTH: u32 = 1;
pub(super) const BACKOFF: u32 = 2;
pub(super) const COLLAPSE: u32 = 3;

/// `Rules` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Rules {
    growth_factor: f64,
    backoff_factor: f64,
    /// 0 for a loss that is not scaled.
    growth_interval: u32,
    hysteresis: u32,
    min_scale: f32,
    max_scale: f32,
}

/// Report on the last step of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The sum of the losses.
    pub loss_sum: f64,
    /// The number of its terms.
    pub terms: f64,
    /// As of [`CheckedGradients::norm`](crate::CheckedGradients::norm).
    pub norm: f64,
    /// The first gradient that was infinite or NaN once it was unscaled, for which the update was
    /// skipped.
    pub non_finite: Option<ElementIndex>,
    /// The scale of the loss whose gradients these were; 1 of a loss that is not scaled.
    pub scale: f32,
    /// The scaler after the step; None of a loss that is not scaled.
    pub scaler: Option<ScalerState>,
    /// Updates done, without those that were skipped.
    pub steps: u64,
    pub(super) change: u32,
}

impl StepReport {
    /// Change of the scale by the step, as [`LossScaler::update`] reports it. `overflow` names the
    /// element of [`StepReport::non_finite`].
    ///
    /// # Errors
    /// [`Error::ScaleCollapsed`] where the scale would have had to fall below its floor; it then
    /// stayed as it was.
    pub fn scale_change(&self, overflow: Option<Overflow<'_>>) -> crate::Result<ScaleChange> {
        match (self.change, overflow) {
            (GROWTH, _) => Ok(ScaleChange::Growth),
            (BACKOFF, _) => Ok(ScaleChange::Backoff),
            (COLLAPSE, Some(Overflow { tensor, index })) => {
                Err(Error::ScaleCollapsed { scale: self.scale, tensor: tensor.to_owned(), index })
            }
            _ => Ok(ScaleChange::None),
        }
    }
}

/// Report on a step, being downloaded. Waiting for it does not wait for work submitted later.
#[derive(Debug)]
#[must_use = "how a step went is known when its report was waited for"]
pub struct PendingReport {
    state: AsyncDownload<DeviceState>,
    is_scaled: bool,
}

impl PendingReport {
    /// The report of the step, which was over `tensors`.
    ///
    /// # Errors
    /// As [`AsyncDownload::wait`].
    pub fn wait(self, tensors: &ChunkedTensors) -> Result<StepReport> {
        let state = self.state.wait()?[0];
        let DeviceState { scale_after: scale, clean_steps, overflows, bad_chunk, bad_index, .. } = state;
        Ok(StepReport {
            loss_sum: state.loss,
            terms: state.terms,
            norm: state.norm,
            non_finite: (bad_chunk != NONE).then(|| tensors.place(bad_chunk, bad_index)),
            scale: state.scale_before,
            scaler: self.is_scaled.then_some(ScalerState { scale, clean_steps, overflows }),
            steps: state.steps,
            change: state.change,
        })
    }
}

/// Addresses of a step's outcome on the device, see [`DeviceScaler::verdict_addresses`].
#[derive(Clone, Copy, Debug)]
pub struct VerdictAddresses {
    /// A u32: 0 where the weights were not updated.
    pub applied: u64,
    /// A u32: [`u32::MAX`] where all gradients were finite.
    pub bad_chunk: u64,
    /// An f64: the number of the loss terms.
    pub terms: u64,
}

impl DeviceScaler {
    /// The scaler of a run that did `steps` updates, with the scale of `scaler`, or 1 without one.
    ///
    /// # Errors
    /// Errors of [`Buffer::from_slice`].
    pub fn new(scope: &Scope, scaler: Option<&LossScaler>, steps: u64) -> Result<Self> {
        let state = scaler.map(LossScaler::state);
        let state = DeviceState {
            loss: 0.0,
            terms: 0.0,
            norm: 0.0,
            steps,
            inverse_scale: 1.0,
            clip: 1.0,
            step_size: 0.0,
            root_correction2: 1.0,
            scale_before: state.map_or(1.0, |state| state.scale),
            scale_after: state.map_or(1.0, |state| state.scale),
            bad_chunk: NONE,
            bad_index: NONE,
            clean_steps: state.map_or(0, |state| state.clean_steps),
            overflows: state.map_or(0, |state| state.overflows),
            change: NO_CHANGE,
            applied: 0,
        };
        Ok(DeviceScaler {
            scaler: scaler.map(|scaler| *scaler.config()),
            step: None,
            step_on_device: Buffer::zeros(scope, 1)?,
            staging: Staging::default(),
            scale: Buffer::from_slice(scope, &[state.scale_before])?,
            state: Buffer::from_slice(scope, &[state])?,
        })
    }

    /// Sets the settings of the next [`unscale_and_check`](super::unscale_and_check()) and
    /// [`update`](super::update()). The copy to the device is not waited for.
    ///
    /// # Errors
    /// Errors of [`Staging::send`].
    ///
    /// # Panics
    /// If the count is not a positive finite number.
    pub fn begin(&mut self, settings: &StepSettings) -> Result<()> {
        assert!(settings.count > 0.0 && settings.count.is_finite(), "a count of {}", settings.count);
        self.staging.send(&[DeviceStep::new(settings)], &mut self.step_on_device)?;
        self.step = Some(*settings);
        Ok(())
    }

    /// Settings of the step that the host knows.
    ///
    /// # Panics
    /// If none was begun.
    pub(super) fn step(&self) -> StepSettings {
        self.step.expect("a step was begun")
    }

    /// `[1]`: the factor of the next step's loss.
    pub fn scale(&self) -> &Buffer<f32> {
        &self.scale
    }

    /// Waits for the device and returns the report on the last step, which was over `tensors`.
    ///
    /// # Errors
    /// Errors of [`PendingReport::wait`].
    pub fn report(&self, tensors: &ChunkedTensors) -> Result<StepReport> {
        self.fetch_report()?.wait(tensors)
    }

    /// Report on the step that was submitted last. Does not wait.
    ///
    /// # Errors
    /// Errors of [`Buffer::fetch`].
    pub fn fetch_report(&self) -> Result<PendingReport> {
        Ok(PendingReport { state: self.state.fetch()?, is_scaled: self.scaler.is_some() })
    }

    /// Addresses of the last step's outcome, for kernels on the device. A step is accepted where
    /// weights were updated or, with finite gradients, the loss had no terms.
    pub fn verdict_addresses(&self) -> VerdictAddresses {
        let address = |offset: usize| self.state.address() + offset as u64;
        VerdictAddresses {
            applied: address(offset_of!(DeviceState, applied)),
            bad_chunk: address(offset_of!(DeviceState, bad_chunk)),
            terms: address(offset_of!(DeviceState, terms)),
        }
    }

    /// True if nothing was wrong with the last step: the weights were updated or, where the loss
    /// had no terms, there was nothing to learn. For a scaler on the CPU.
    #[cfg(any(test, feature = "conformance"))]
    pub fn is_accepted(&self) -> bool {
        let DeviceState { applied, bad_chunk, terms, .. } = self.state.as_slice()[0];
        applied != 0 || (bad_chunk == NONE && terms == 0.0)
    }

    /// For the kernels.
    pub(super) fn rules(&self) -> Rules {
        self.scaler.map_or_else(Rules::default, |config| Rules {
            growth_factor: config.growth_factor,
            backoff_factor: config.backoff_factor,
            growth_interval: config.growth_interval,
            hysteresis: config.hysteresis,
            min_scale: config.floor,
            max_scale: config.ceiling,
        })
    }

    /// The loss scaler, for the CPU form.
    pub(super) fn scaler(&self) -> Option<LossScaler> {
        let DeviceState { clean_steps, overflows, .. } = self.state.as_slice()[0];
        let state = ScalerState { scale: self.scale.as_slice()[0], clean_steps, overflows };
        self.scaler
            .map(|config| LossScaler::resume(config, state).expect("a scale between floor and ceiling stays there"))
    }
}
