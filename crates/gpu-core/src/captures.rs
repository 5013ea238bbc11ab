use crate::cuda;
use crate::device::Device;
use crate::error::{Error, Result};

/// Captured work that is replayed: a CUDA graph on a GPU, submitted by one call instead of one for
/// each kernel.
///
/// Commands submitted to the default stream in [`Captures::run`] (kernels, copies on the device,
/// zeros) are held back until something else is asked of the GPU: a copy from or to the host,
/// another stream, a wait, memory of the driver, the end. It is then looked for by all that it
/// does, which kernels, grids, arguments and addresses included. What comes for the second time is
/// captured, and replayed when it comes again; all else is submitted as it is. So results do not
/// depend on what is captured, and there is nothing to be kept in step: where sizes or addresses
/// have changed, it is other work. The last 16 captures are kept.
///
/// A driver that cannot capture something is not asked again, and everything is submitted as it is.
///
/// ```
/// use megabatch_gpu_core::{Buffer, Captures, Device};
///
/// let device = Device::cpu();
/// let mut captures = Captures::default();
/// let mut sums = Buffer::<f32>::zeros(&device.scope("example"), 3)?;
/// for _ in 0..3 {
///     // On a GPU, four launches and more become one.
///     captures.run(&device, || sums.set_zero())?;
/// }
/// # Ok::<(), megabatch_gpu_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Captures {
    captures: cuda::Captures,
}

impl Captures {
    /// Number of captures made so far, those that are not kept any more included; 0 on the CPU and
    /// where the driver cannot capture.
    pub fn made(&self) -> u64 {
        self.captures.made()
    }

    /// From now on, [`Captures::run`] times what it submits, by the GPU's events.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn time_work(&mut self, device: &Device) -> Result<()> {
        let Device::Cuda(cuda) = device else { return Ok(()) };
        cuda.shared_gpu().time_work(&mut self.captures)
    }

    /// Seconds of the work that the GPU has done since the last call, or since
    /// [`Captures::time_work`]; 0 on the CPU. Copies from and to the host do not count. Does not
    /// wait: work under way counts at a later call.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn take_busy_s(&mut self, device: &Device) -> Result<f64> {
        let Device::Cuda(cuda) = device else { return Ok(0.0) };
        cuda.shared_gpu().take_busy_s(&mut self.captures)
    }

    /// The error of the driver that ended capturing; `None` if there was none.
    pub fn refusal(&self) -> Option<&Error> {
        self.captures.refusal()
    }

    /// Does `work`, with what it submits to the device's default stream held back as described
    /// above. When this returns, all of it has been submitted. Within another such call on the same
    /// GPU, `work` is done as a part of that.
    ///
    /// # Errors
    /// Errors of `work`; [`Error::Driver`] where recorded commands could not be submitted.
    ///
    /// # Panics
    /// If there are captures of another GPU.
    pub fn run<R, E: From<Error>>(
        &mut self,
        device: &Device,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let Device::Cuda(cuda) = device else { return work() };
        let (done, submitted): (_, Result<()>) = cuda.shared_gpu().hold_back(&mut self.captures, work);
        let done = done?;
        submitted?;
        Ok(done)
    }

    /// Submits what [`Captures::run`] holds back so far. What follows is looked for by itself, so
    /// that it is replayed also where this is other work every time.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn cut(device: &Device) -> Result<()> {
        let Device::Cuda(cuda) = device else { return Ok(()) };
        cuda.shared_gpu().submit_held_back()
    }
}
