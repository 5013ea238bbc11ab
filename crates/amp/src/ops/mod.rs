//! The two passes from gradients to weights on a device, each in its own file: the public function
//! with one match on the device, the CPU form, and the launch of its kernels, whose source is the
//! `.cu` beside it.
//!
//! The results of one pass stay on the device for the next: norm, gradient factors, first
//! non-finite gradient, loss scale and number of updates are in a [`DeviceScaler`]. A step is
//!
//! ```text
//! forward, backward    of the loss times scaler.scale()
//! begin                settings of the step, to the device
//! unscale_and_check    loss accepted?, norm, first non-finite gradient, clip coefficient, next loss scale
//! update               a step of SGD, Adam or AdamW if the loss and all gradients were accepted
//! ```
//!
//! None of these waits for the device. Values that change from step to step are read on the device,
//! so that the launches of all steps are equal and can be captured. [`DeviceScaler::report`] waits,
//! for a log or a checkpoint; [`DeviceScaler::fetch_report`] starts the download and returns at
//! once.

pub mod conformance;
mod device_scaler;
#[cfg(test)]
mod harness;
mod tensors;
mod unscale_and_check;
mod update;

pub use device_scaler::{DeviceScaler, PendingReport, StepReport, StepSettings};
pub use tensors::ChunkedTensors;
pub use unscale_and_check::{ScaledGradients, unscale_and_check};
pub use update::{MomentBuffers, OptimizerBuffers, WorkingCopyBuffer, update};
