//! Releases of PyTorch: CUDA versions, CPU architectures and GPUs of their wheels.

use super::{CpuArchitecture, FactSource};
use crate::version::{CompiledFor, CudaVersion, Version};

/// A release of PyTorch, patches included.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// Its first two numbers, such as 2 and 7.
    pub version: (u32, u32),
    /// First and last release of Python that it has wheels for.
    pub python: [(u32, u32); 2],
    /// Its wheels that use CUDA.
    pub builds: &'static [ReleaseBuild],
    /// Source of the CUDA versions and Pythons.
    pub source: FactSource,
}

/// The wheels of a release for one CUDA version.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseBuild {
    /// The CUDA version.
    pub cuda: CudaVersion,
    /// The cuDNN that it was built with and asks for.
    pub cudnn: &'static str,
    /// GPUs that the wheels for x86-64 are for, as a list for compilers; empty where it is not
    /// known.
    pub x86: &'static str,
    /// GPUs that those for aarch64 are for; `None` where there are no such wheels.
    pub arm: Option<&'static str>,
    /// Source of the GPUs.
    pub source: FactSource,
}

impl Release {
    /// True if it has wheels for a Python.
    pub fn serves(&self, python: (u32, u32)) -> bool {
        (self.python[0]..=self.python[1]).contains(&python)
    }

    /// Its wheels for `cuda` and `cpu`.
    pub fn build(&self, cuda: CudaVersion, cpu: CpuArchitecture) -> Option<&'static ReleaseBuild> {
        self.builds.iter().find(|build| build.cuda == cuda && build.is_for(cpu))
    }
}

impl ReleaseBuild {
    /// True if it is published for `cpu`.
    pub fn is_for(&self, cpu: CpuArchitecture) -> bool {
        cpu == CpuArchitecture::X86 || self.arm.is_some()
    }

    /// The GPUs that the wheels for `cpu` are for; empty where it is not known.
    pub fn gpus(&self, cpu: CpuArchitecture) -> CompiledFor {
        let list = match cpu {
            CpuArchitecture::X86 => self.x86,
            CpuArchitecture::Arm => self.arm.unwrap_or_default(),
        };
        CompiledFor::parse(list.split(' '))
    }
}

/// The release that `torch` belongs to; `None` where the table does not have it.
pub fn release(torch: &Version) -> Option<&'static Release> {
    RELEASES.iter().find(|release| release.version == torch.minor())
}

const MATRIX: FactSource = FactSource::Confirmed(super::RELEASE_MATRIX);
/// The build script as a pull request quotes it: GPUs of 2.6 and 2.7 on x86-64.
const BUILDER: FactSource = FactSource::Confirmed("https://github.com/mlverse/torch/pull/1348");
/// The build script when 2.8 was made: GPUs of 2.8 on x86-64.
const SCRIPT_OF_2_8: FactSource =
    FactSource::Confirmed("https://github.com/pytorch/pytorch/blob/main/.ci/manywheel/build_cuda.sh");
/// The matrix of 2.9, 2.10 and 2.11, and what became of Volta.
const MATRIX_OF_2_11: FactSource = FactSource::Confirmed("https://github.com/pytorch/pytorch/pull/175253");

const UP_TO_HOPPER: &str = "5.0 6.0 7.0 7.5 8.0 8.6 9.0";
const FROM_VOLTA: &str = "7.0 7.5 8.0 8.6 9.0 10.0 12.0";
const FROM_TURING: &str = "7.5 8.0 8.6 9.0 10.0 12.0";
const FROM_TURING_PTX: &str = "7.5 8.0 8.6 9.0 10.0 12.0+PTX";
const ARM_HOPPER: &str = "8.0 9.0";
const ARM_BLACKWELL: &str = "8.0 9.0 10.0 12.0";
const ARM_THOR_PTX: &str = "8.0 9.0 10.0 11.0 12.0+PTX";

const fn build(cuda: CudaVersion, cudnn: &'static str, x86: &'static str) -> ReleaseBuild {
    ReleaseBuild { cuda, cudnn, x86, arm: None, source: MATRIX }
}

impl ReleaseBuild {
    const fn on_arm(mut self, gpus: &'static str) -> Self {
        self.arm = Some(gpus);
        self
    }

    const fn with_source(mut self, source: FactSource) -> Self {
        self.source = source;
        self
    }
}

const fn release_of(
    version: (u32, u32),
    first_python: (u32, u32),
    last_python: (u32, u32),
    builds: &'static [ReleaseBuild],
) -> Release {
    Release { version, python: [first_python, last_python], builds, source: MATRIX }
}

/// The newest release of the table.
pub const NEWEST: (u32, u32) = RELEASES[0].version;

/// The releases, newest first, as of [`AS_OF`](super::AS_OF).
///
/// Wheels for aarch64: 2.7's for CUDA 12.8 is on PyTorch's index; 2.8's for 12.8 is named by
/// <https://github.com/pytorch/pytorch/issues/160162> and that for 12.9 by
/// <https://huggingface.co/docs/kernels/builder/build-variants>, which also has those of 2.9 to
/// 2.12. 2.6's for 12.6 is known from use. `pip install torch` without an index gave the CPU build
/// on aarch64 up to 2.9 at least: <https://github.com/pytorch/pytorch/issues/168065>.
pub const RELEASES: &[Release] = &[
    release_of(
        (2, 14),
        (3, 10),
        (3, 15),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).on_arm(ARM_HOPPER),
            build(CudaVersion::new(13, 0), "9.24.0.43", FROM_TURING_PTX).on_arm(ARM_THOR_PTX),
            build(CudaVersion::new(13, 2), "9.24.0.43", FROM_TURING_PTX).on_arm(ARM_THOR_PTX),
        ],
    ),
    release_of(
        (2, 13),
        (3, 10),
        (3, 15),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).on_arm(ARM_HOPPER),
            build(CudaVersion::new(13, 0), "9.20.0.48", FROM_TURING_PTX).on_arm(ARM_THOR_PTX),
            build(CudaVersion::new(13, 2), "9.20.0.48", FROM_TURING_PTX).on_arm(ARM_THOR_PTX),
        ],
    ),
    release_of(
        (2, 12),
        (3, 10),
        (3, 14),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).on_arm(ARM_HOPPER),
            build(CudaVersion::new(13, 0), "9.20.0.48", FROM_TURING_PTX).on_arm(ARM_THOR_PTX),
            build(CudaVersion::new(13, 2), "9.20.0.48", FROM_TURING_PTX).on_arm(ARM_THOR_PTX),
        ],
    ),
    release_of(
        (2, 11),
        (3, 10),
        (3, 14),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).on_arm(ARM_HOPPER).with_source(MATRIX_OF_2_11),
            build(CudaVersion::new(12, 8), "9.17.1.4", FROM_TURING).on_arm(ARM_BLACKWELL).with_source(MATRIX_OF_2_11),
            build(CudaVersion::new(13, 0), "9.17.1.4", FROM_TURING_PTX)
                .on_arm(ARM_THOR_PTX)
                .with_source(MATRIX_OF_2_11),
        ],
    ),
    release_of(
        (2, 10),
        (3, 10),
        (3, 14),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).on_arm(ARM_HOPPER).with_source(MATRIX_OF_2_11),
            build(CudaVersion::new(12, 8), "9.10.2.21", FROM_VOLTA).on_arm(ARM_BLACKWELL).with_source(MATRIX_OF_2_11),
            build(CudaVersion::new(13, 0), "9.15.1.9", FROM_TURING_PTX)
                .on_arm(ARM_THOR_PTX)
                .with_source(MATRIX_OF_2_11),
        ],
    ),
    release_of(
        (2, 9),
        (3, 10),
        (3, 14),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).on_arm(ARM_HOPPER).with_source(MATRIX_OF_2_11),
            build(CudaVersion::new(12, 8), "9.10.2.21", FROM_VOLTA).on_arm(ARM_BLACKWELL).with_source(MATRIX_OF_2_11),
            build(CudaVersion::new(13, 0), "9.13.0.50", FROM_TURING_PTX)
                .on_arm(ARM_THOR_PTX)
                .with_source(MATRIX_OF_2_11),
        ],
    ),
    release_of(
        (2, 8),
        (3, 9),
        (3, 13),
        &[
            build(CudaVersion::new(12, 6), "9.10.2.21", UP_TO_HOPPER).with_source(SCRIPT_OF_2_8),
            build(CudaVersion::new(12, 8), "9.10.2.21", FROM_VOLTA).on_arm(ARM_BLACKWELL).with_source(SCRIPT_OF_2_8),
            build(CudaVersion::new(12, 9), "9.10.2.21", "7.0 7.5 8.0 8.6 9.0 10.0 12.0+PTX")
                .on_arm(ARM_BLACKWELL)
                .with_source(SCRIPT_OF_2_8),
        ],
    ),
    release_of(
        (2, 7),
        (3, 9),
        (3, 13),
        &[
            build(CudaVersion::new(11, 8), "9.1.0.70", "3.7 5.0 6.0 7.0 7.5 8.0 8.6 9.0").with_source(BUILDER),
            build(CudaVersion::new(12, 6), "9.5.1.17", UP_TO_HOPPER).with_source(BUILDER),
            build(CudaVersion::new(12, 8), "9.7.1.26", FROM_TURING_PTX).on_arm(ARM_BLACKWELL).with_source(BUILDER),
        ],
    ),
    release_of(
        (2, 6),
        (3, 9),
        (3, 13),
        &[
            build(CudaVersion::new(11, 8), "9.1.0.70", "3.7 5.0 6.0 7.0 7.5 8.0 8.6 9.0").with_source(BUILDER),
            build(CudaVersion::new(12, 4), "9.1.0.70", UP_TO_HOPPER).with_source(BUILDER),
            build(CudaVersion::new(12, 6), "9.5.1.17", UP_TO_HOPPER)
                .on_arm(ARM_HOPPER)
                .with_source(FactSource::Unconfirmed),
        ],
    ),
    release_of(
        (2, 5),
        (3, 9),
        (3, 12),
        &[
            build(CudaVersion::new(11, 8), "9.1.0.70", ""),
            build(CudaVersion::new(12, 1), "9.1.0.70", ""),
            build(CudaVersion::new(12, 4), "9.1.0.70", ""),
        ],
    ),
    release_of(
        (2, 4),
        (3, 8),
        (3, 12),
        &[
            build(CudaVersion::new(11, 8), "9.1.0.70", ""),
            build(CudaVersion::new(12, 1), "9.1.0.70", ""),
            build(CudaVersion::new(12, 4), "9.1.0.70", ""),
        ],
    ),
    release_of(
        (2, 3),
        (3, 8),
        (3, 11),
        &[build(CudaVersion::new(11, 8), "8.7.0.84", ""), build(CudaVersion::new(12, 1), "8.9.2.26", "")],
    ),
    release_of(
        (2, 2),
        (3, 8),
        (3, 11),
        &[build(CudaVersion::new(11, 8), "8.7.0.84", ""), build(CudaVersion::new(12, 1), "8.9.2.26", "")],
    ),
    release_of(
        (2, 1),
        (3, 8),
        (3, 11),
        &[build(CudaVersion::new(11, 8), "8.7.0.84", ""), build(CudaVersion::new(12, 1), "8.9.2.26", "")],
    ),
    release_of(
        (2, 0),
        (3, 8),
        (3, 11),
        &[build(CudaVersion::new(11, 7), "8.5.0.96", ""), build(CudaVersion::new(11, 8), "8.7.0.84", "")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Capability, GpuCompatibility};

    #[test]
    fn the_table_falls_and_its_lists_are_lists_of_gpus() {
        assert!(RELEASES.is_sorted_by(|one, next| one.version > next.version));
        for release in RELEASES {
            assert!(release.builds.is_sorted_by(|one, next| one.cuda < next.cuda), "{:?}", release.version);
            for build in release.builds {
                for list in [build.x86, build.arm.unwrap_or_default()].into_iter().filter(|list| !list.is_empty()) {
                    let read_back = CompiledFor::parse(list.split(' '));
                    let words = read_back.to_string().split(' ').count();
                    assert!(words >= list.split(' ').count(), "{list}: {read_back}");
                }
            }
        }
    }

    #[test]
    fn rtx_50_needs_cuda_12_8_and_volta_is_gone_from_it_in_2_11() {
        let fit = |release: (u32, u32), cuda, capability| {
            let release = RELEASES.iter().find(|row| row.version == release).unwrap();
            release.build(cuda, CpuArchitecture::X86).unwrap().gpus(CpuArchitecture::X86).fit(capability)
        };
        let (blackwell, volta) = (Capability::new(12, 0), Capability::new(7, 0));
        let (old, new) = (CudaVersion::new(12, 6), CudaVersion::new(12, 8));
        assert_eq!(fit((2, 7), old, blackwell), GpuCompatibility::Nothing);
        assert_eq!(fit((2, 7), new, blackwell), GpuCompatibility::Binary);
        assert_eq!(fit((2, 10), new, volta), GpuCompatibility::Binary);
        assert_eq!(fit((2, 11), new, volta), GpuCompatibility::Nothing);
    }

    #[test]
    fn a_release_out_of_the_table_is_unknown() {
        assert!(release(&Version::parse("2.15.0+cu132").unwrap()).is_none());
        assert!(release(&Version::parse("2.7.1").unwrap()).is_some());
    }
}
