//! Releases of PyTorch: CUDA versions, CPU architectures and GPUs of their wheels.

use std::sync::LazyLock;

use super::CpuArchitecture;
use crate::version::{CompiledFor, CudaVersion, Version};

/// A release of PyTorch, patches included.
#[derive(Clone, Debug)]
pub struct Release {
    /// Its first two numbers, such as 2 and 7.
    pub version: (u32, u32),
    /// First and last release of Python that it has wheels for.
    pub python: [(u32, u32); 2],
    /// Its wheels that use CUDA.
    pub builds: Vec<ReleaseBuild>,
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
    /// GPUs that those for aarch64 are for; empty where there are no such wheels.
    pub arm: &'static str,
}

impl Release {
    /// True if it has wheels for a Python.
    pub fn serves(&self, python: (u32, u32)) -> bool {
        (self.python[0]..=self.python[1]).contains(&python)
    }

    /// Its wheels for `cuda` and `cpu`.
    pub fn build(&self, cuda: CudaVersion, cpu: CpuArchitecture) -> Option<&ReleaseBuild> {
        self.builds.iter().find(|build| build.cuda == cuda && build.is_for(cpu))
    }
}

impl ReleaseBuild {
    /// True if it is published for `cpu`.
    pub fn is_for(&self, cpu: CpuArchitecture) -> bool {
        cpu == CpuArchitecture::X86 || !self.arm.is_empty()
    }

    /// The GPUs that the wheels for `cpu` are for; empty where it is not known.
    pub fn gpus(&self, cpu: CpuArchitecture) -> CompiledFor {
        let list = match cpu {
            CpuArchitecture::X86 => self.x86,
            CpuArchitecture::Arm => self.arm,
        };
        CompiledFor::parse(list.split(' '))
    }
}

/// The release that `torch` belongs to; `None` where the table does not have it.
pub fn release(torch: &Version) -> Option<&'static Release> {
    RELEASES.iter().find(|release| release.version == torch.minor())
}

/// The releases, newest first, as of [`AS_OF`](super::AS_OF): `releases.tsv`.
pub static RELEASES: LazyLock<Vec<Release>> = LazyLock::new(|| {
    let minor = |text: &str| Version::parse(text).expect("the table holds versions").minor();
    let mut releases: Vec<Release> = Vec::new();
    for row in include_str!("releases.tsv").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&'static str> = row.split('\t').collect();
        let [torch, first_python, last_python, cuda, cudnn, x86, arm, _source] = columns[..] else {
            panic!("a row of the table has eight columns: {row}")
        };
        if releases.last().is_none_or(|last| last.version != minor(torch)) {
            let python = [minor(first_python), minor(last_python)];
            releases.push(Release { version: minor(torch), python, builds: Vec::new() });
        }
        let cuda = CudaVersion::parse(cuda).expect("the table holds versions of CUDA");
        let builds = &mut releases.last_mut().expect("it was added").builds;
        builds.push(ReleaseBuild { cuda, cudnn, x86, arm });
    }
    releases
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{Capability, GpuCompatibility};

    #[test]
    fn the_table_falls_and_its_lists_are_lists_of_gpus() {
        assert!(RELEASES.is_sorted_by(|one, next| one.version > next.version));
        for release in RELEASES.iter() {
            assert!(release.builds.is_sorted_by(|one, next| one.cuda < next.cuda), "{:?}", release.version);
            for build in &release.builds {
                for list in [build.x86, build.arm].into_iter().filter(|list| !list.is_empty()) {
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
