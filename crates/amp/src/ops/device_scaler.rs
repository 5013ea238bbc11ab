#![forbid(unsafe_code)]

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::{AsyncDownload, Buffer, Result, Scope, Staging};

use super::tensors::{NONE, Tensors};
use crate::error::Error;
use crate::gradients::Place;
use crate::optimizer::{OptimizerSettings, Rates};
use crate::scaler::{LossScaler, Overflow, ScaleChange, ScalerConfig, ScalerState};

/// State of an optimizer's steps on a device, which stays there: the loss scale, the findings about
/// the gradients, the number of updates.
#[derive(Debug)]
pub struct DeviceScaler {
    scaler: Option<ScalerConfig>,
    /// Settings of the last step that was begun.
    step: Option<StepSettings>,
    pub(super) step_on_device: Buffer<Step>,
    staging: Staging,
    pub(super) scale: Buffer<f32>,
    pub(super) state: Buffer<State>,
}

/// Settings of a step that the host knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSettings {
    /// Terms of the losses that gradients were divided by, > 0. Where they turned out to be others,
    /// as [`examine`](super::examine()) is told, gradients are multiplied by the quotient.
    pub count: f64,
    /// The largest mean of the losses that weights follow.
    pub loss_max: f64,
    /// The norm that gradients are clipped to.
    pub clip_norm: Option<f64>,
    /// Optimizer settings of the step.
    pub optimizer: OptimizerSettings,
}

impl Default for StepSettings {
    /// Gradients of one term, however large its loss is, which are not clipped, and the optimizer's
    /// defaults.
    fn default() -> Self {
        StepSettings { count: 1.0, loss_max: f64::INFINITY, clip_norm: None, optimizer: OptimizerSettings::default() }
    }
}

/// `Step` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Step {
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

impl Step {
    fn new(of: &StepSettings) -> Self {
        // The number of the step matters to none of these.
        let rates = Rates::<f32>::new(&of.optimizer, 1);
        Step {
            count: of.count,
            loss_max: of.loss_max,
            clip_norm: of.clip_norm.unwrap_or(f64::INFINITY),
            lr: of.optimizer.lr,
            beta1: of.optimizer.beta1,
            beta2: of.optimizer.beta2,
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

/// `State` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct State {
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
    /// 1 where weights follow the gradients.
    pub(super) follows: u32,
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

/// A device's report on its last step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The sum of the losses.
    pub loss_sum: f64,
    /// The number of its terms.
    pub terms: f64,
    /// As of [`Examined::norm`](crate::Examined::norm).
    pub norm: f64,
    /// The first gradient that was infinite or NaN once it was unscaled, for which the update was
    /// skipped.
    pub non_finite: Option<Place>,
    /// The scale of the loss whose gradients these were; 1 of a loss that is not scaled.
    pub scale: f32,
    /// The scaler after the step; None of a loss that is not scaled.
    pub scaler: Option<ScalerState>,
    /// Updates done, without those that were skipped.
    pub steps: u64,
    pub(super) change: u32,
}

impl Report {
    /// Change of the scale by the step, as [`LossScaler::update`] reports it. `overflow` names the
    /// element of [`Report::non_finite`].
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

/// Report on a step, on its way from the device: what is submitted after it is not waited for.
#[derive(Debug)]
#[must_use = "how a step went is known when its report was waited for"]
pub struct PendingReport {
    state: AsyncDownload<State>,
    is_scaled: bool,
}

impl PendingReport {
    /// The report of the step, which was over `tensors`.
    ///
    /// # Errors
    /// As [`AsyncDownload::wait`].
    pub fn wait(self, tensors: &Tensors) -> Result<Report> {
        let state = self.state.wait()?[0];
        let State { scale_after: scale, clean_steps, overflows, bad_chunk, bad_index, .. } = state;
        Ok(Report {
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

impl DeviceScaler {
    /// The control of a run that did `steps` updates, with the scale of `scaler`, or of 1 without
    /// one.
    ///
    /// # Errors
    /// Of [`Buffer::from_slice`].
    pub fn new(scope: &Scope, scaler: Option<&LossScaler>, steps: u64) -> Result<Self> {
        let of = scaler.map(LossScaler::state);
        let state = State {
            loss: 0.0,
            terms: 0.0,
            norm: 0.0,
            steps,
            inverse_scale: 1.0,
            clip: 1.0,
            step_size: 0.0,
            root_correction2: 1.0,
            scale_before: of.map_or(1.0, |of| of.scale),
            scale_after: of.map_or(1.0, |of| of.scale),
            bad_chunk: NONE,
            bad_index: NONE,
            clean_steps: of.map_or(0, |of| of.clean_steps),
            overflows: of.map_or(0, |of| of.overflows),
            change: NO_CHANGE,
            follows: 0,
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

    /// Bytes on a device.
    pub const BYTES: usize = size_of::<Step>() + size_of::<f32>() + size_of::<State>();

    /// Has [`examine`](super::examine()) and [`update`](super::update()) do as `of` says from now
    /// on. The device learns of it by a copy that nobody waits for.
    ///
    /// # Errors
    /// Of [`Staging::send`].
    ///
    /// # Panics
    /// If the count is not a positive finite number.
    pub fn begin(&mut self, of: &StepSettings) -> Result<()> {
        assert!(of.count > 0.0 && of.count.is_finite(), "a count of {}", of.count);
        self.staging.send(&[Step::new(of)], &mut self.step_on_device)?;
        self.step = Some(*of);
        Ok(())
    }

    /// Settings of the step that the host knows.
    ///
    /// # Panics
    /// If none was begun.
    pub(super) fn step(&self) -> StepSettings {
        self.step.expect("a step was begun")
    }

    /// `[1]`: what the loss of the next step is to be multiplied by.
    pub fn scale(&self) -> &Buffer<f32> {
        &self.scale
    }

    /// Waits for the device, once, and tells how the last step over `tensors` went.
    ///
    /// # Errors
    /// Of [`PendingReport::wait`].
    pub fn report(&self, tensors: &Tensors) -> Result<Report> {
        self.fetch_report()?.wait(tensors)
    }

    /// Report on the step that was submitted last. Does not wait.
    ///
    /// # Errors
    /// Of [`Buffer::fetch`].
    pub fn fetch_report(&self) -> Result<PendingReport> {
        Ok(PendingReport { state: self.state.fetch()?, is_scaled: self.scaler.is_some() })
    }

    /// For the kernels.
    pub(super) fn rules(&self) -> Rules {
        self.scaler.map_or_else(Rules::default, |of| Rules {
            growth_factor: of.growth_factor,
            backoff_factor: of.backoff_factor,
            growth_interval: of.growth_interval,
            hysteresis: of.hysteresis,
            min_scale: of.min_scale,
            max_scale: of.max_scale,
        })
    }

    /// The loss scaler of the plain form.
    pub(super) fn scaler(&self) -> Option<LossScaler> {
        let State { clean_steps, overflows, .. } = self.state.as_slice()[0];
        let state = ScalerState { scale: self.scale.as_slice()[0], clean_steps, overflows };
        self.scaler
            .map(|config| LossScaler::resume(config, state).expect("a scale between floor and ceiling stays there"))
    }
}
