//! Dated tables of PyTorch's wheels, of the extensions built for it and of NVIDIA's drivers, with
//! their sources.
//!
//! Facts outside the tables are reported as unknown: nothing is extrapolated.

mod drivers;
mod extensions;
mod releases;
mod wheel;

pub use drivers::{DRIVERS, Driver, OLDEST_DRIVERS, cuda_of_driver, oldest_driver};
pub use extensions::{EXTENSIONS, Extension, has_cuda_wheels, index};
pub use releases::{RELEASES, Release, ReleaseBuild, release};
pub use wheel::{Wheel, WheelRequirements, choose};

/// The day on which the tables were last compared with their sources.
pub const AS_OF: &str = "2026-11-22";

/// CPU architectures that wheels are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuArchitecture {
    /// Intel and AMD.
    X86,
    /// ARM with 64 bits, such as Grace.
    Arm,
}

impl CpuArchitecture {
    /// By its name in Linux and Python; `None` for architectures without CUDA wheels.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "AMD64" => Some(CpuArchitecture::X86),
            "aarch64" | "arm64" => Some(CpuArchitecture::Arm),
            _ => None,
        }
    }
}
