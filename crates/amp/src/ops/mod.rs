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
//! unscale_and_check    loss accepted?, norm, first non-finite gradient, clip factor, next scale
//! update               a step of SGD, Adam or AdamW if the loss and all gradients were accepted
//! ```
//!
//! None of these waits for the device. Values that change from step to step are read on the device,
//! so that the launches of all steps are equal and can be captured. [`DeviceScaler::report`] waits,
//! for a log or a checkpoint; [`DeviceScaler::fetch_report`] starts the download and returns at
//! once.

mod device_scaler;
mod tensors;
mod unscale_and_check;
mod update;

pub use device_scaler::{DeviceScaler, PendingReport, StepReport, StepSettings, VerdictAddresses};
pub use tensors::ChunkedTensors;
pub use unscale_and_check::{ScaledGradients, unscale_and_check};
pub use update::{MomentBuffers, OptimizerBuffers, update};

#[cfg(test)]
mod harness {
    use megabatch_simt::Harness;

    /// The kernels of this folder on the CPU.
    pub(super) static HARNESS: Harness =
        Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops"), &["unscale_and_check", "update"]);

    /// Numbers from -`most` to `most`.
    pub(super) fn noise(len: usize, most: f32) -> Vec<f32> {
        let unit = |k: u32| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
        (0..len as u32).map(|k| (2.0 * unit(k) - 1.0) * most).collect()
    }
}
