//! Dated tables of PyTorch's wheels, of the extensions built for it and of NVIDIA's drivers, each
//! row with its source.
//!
//! What the tables do not have is unknown, and said to be: nothing is extrapolated from the rows
//! that are there.

mod drivers;
mod extensions;
mod releases;
mod wheel;

pub use drivers::{DRIVERS, Driver, OLDEST_DRIVERS, cuda_of_driver, oldest_driver};
pub use extensions::{EXTENSIONS, Extension, KNOWN_INDEXES, has_cuda_wheels, index};
pub use releases::{Build, NEWEST, RELEASES, Release, release};
pub use wheel::{Need, Wheel, choose};

/// The day on which the tables were last compared with their sources.
pub const AS_OF: &str = "2026-11-22";

/// The releases of PyTorch with the CUDA and cuDNN of each, and the GPUs that those of 2.12 to 2.14
/// were compiled for.
pub const RELEASE_MATRIX: &str = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md";

/// Origin of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It was read at this address.
    Confirmed(&'static str),
    /// It is known from use, and no page was found that says it.
    Unconfirmed,
}

/// An architecture of processors that wheels are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// Intel and AMD.
    X86,
    /// ARM with 64 bits, such as Grace.
    Arm,
}

impl Processor {
    /// By the name that Linux and Python have for it; `None` for those that no CUDA wheels are made
    /// for.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "AMD64" => Some(Processor::X86),
            "aarch64" | "arm64" => Some(Processor::Arm),
            _ => None,
        }
    }
}
