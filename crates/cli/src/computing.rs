//! `--device`: what computes.

use megabatch_gpu_core::Device;
use megabatch_trainer as trainer;

/// The device that the command line names.
pub(crate) struct Named<'a> {
    name: &'a str,
    gpu: Option<Device>,
}

/// What computes.
#[derive(Debug, Default)]
pub(crate) struct Computing {
    /// A GPU in the place of the processor.
    pub(crate) gpu: Option<Device>,
    /// Why a GPU that is there is not used, where the choice was left open.
    pub(crate) passed_over: Option<String>,
}

impl<'a> Named<'a> {
    /// The device called `name`.
    ///
    /// # Errors
    /// As [`Device::select`].
    pub(crate) fn select(name: &'a str) -> megabatch_gpu_core::Result<Self> {
        let device = Device::select(name)?;
        Ok(Named { name, gpu: matches!(device, Device::Cuda(_)).then_some(device) })
    }

    /// The GPU that was named as such; none for `auto`, which leaves it open.
    pub(crate) fn gpu(&self) -> Option<&Device> {
        self.gpu.as_ref().filter(|_| self.name != "auto")
    }

    /// What computes that of which `coverage` says whether a GPU does.
    ///
    /// # Errors
    /// That of `coverage`, where a GPU was named.
    pub(crate) fn computing(self, coverage: trainer::Result<()>) -> trainer::Result<Computing> {
        match (self.gpu, coverage) {
            (Some(gpu), coverage) if self.name == "auto" => {
                Ok(Computing { gpu: None, passed_over: Some(passed_over(&gpu, coverage.err())) })
            }
            (Some(_), Err(reason)) => Err(reason),
            (gpu, _) => Ok(Computing { gpu, passed_over: None }),
        }
    }
}

/// Why `auto` leaves a GPU aside: it does not compute what is asked for, or nothing but that its kernels have never run on one.
fn passed_over(gpu: &Device, not_covered: Option<trainer::Error>) -> String {
    let reason = not_covered.map_or_else(
        || format!("its kernels have run on a fake driver only so far; --device {gpu} computes on it"),
        |reason| reason.to_string(),
    );
    format!("{gpu} is not used: {reason}")
}
