//! The two passes from gradients to weights and rounding by chance on a device, each in a file of
//! its own: the function with its one match on the device, its plain form on the CPU, which is this
//! crate's own, and the launch of its kernels, whose source lies beside it as `.cu`.
//!
//! What one pass leaves for the next stays on the device: the norm, what gradients are multiplied
//! by, whether one is not finite, the loss scale and the number of updates are in a
//! [`DeviceScaler`]. A step is
//!
//! ```text
//! forward and backward, of the loss times the number in control.scale()
//! begin       what the host knows of the step, to the control
//! examine     whether the loss stands; norm, first gradient that is not finite, clip coefficient; the loss scale of the next step
//! update      nothing where the loss does not stand or a gradient was not finite, else a step of SGD, Adam or AdamW
//! ```
//!
//! and nobody waits for the device in it. What changes from step to step is read on the device, so
//! that the launches of all steps are the same. [`DeviceScaler::report`] does, for a log or a
//! checkpoint; [`DeviceScaler::fetch_report`] asks for the same, so that more can be submitted
//! before it is waited for.

pub mod conformance;
mod device_scaler;
mod examine;
#[cfg(test)]
mod harness;
mod tensors;
mod update;

pub use device_scaler::{DeviceScaler, PendingReport, Report, StepSettings};
pub use examine::{Examinee, examine};
pub use tensors::Tensors;
pub use update::{Moments, Weights, WorkingCopy, update};
