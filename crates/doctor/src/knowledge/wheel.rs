//! The wheel of PyTorch that suits a machine.

use super::{CpuArchitecture, RELEASES, Release, ReleaseBuild, cuda_of_driver, oldest_driver, release};
use crate::version::{Capability, CudaVersion, GpuCompatibility, Version};

/// Requirements on a wheel.
#[derive(Clone, Debug)]
pub struct WheelRequirements {
    /// The CPU architecture.
    pub cpu: CpuArchitecture,
    /// The Python's first two numbers, where they are known.
    pub python: Option<(u32, u32)>,
    /// The driver, where it is known.
    pub driver: Option<Version>,
    /// Capabilities of the GPUs, as far as known.
    pub gpus: Vec<Capability>,
    /// The installed PyTorch: its release is kept if one of its wheels suits.
    pub torch: Option<Version>,
}

/// A wheel of PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wheel {
    /// The version to install, such as `2.7.0`.
    pub torch: Version,
    /// The CUDA version that it was built with.
    pub cuda: CudaVersion,
}

impl Wheel {
    /// The index that has it. Confirmed: <https://github.com/pytorch/pytorch/issues/160162>.
    pub fn index(&self) -> String {
        format!("https://download.pytorch.org/whl/{}", self.cuda.tag())
    }
}

/// The wheel to install; `None` where the table has none that suits.
///
/// The installed release is kept if one of its wheels suits. Otherwise, the newest release with a
/// wheel for the driver's CUDA version, or for the one before it, with which extensions can be
/// compiled. If there is none, the newest release with any suitable wheel.
pub fn choose(need: &WheelRequirements) -> Option<Wheel> {
    kept(need).or_else(|| newest(need))
}

fn kept(need: &WheelRequirements) -> Option<Wheel> {
    let torch = need.torch.as_ref()?;
    let cuda = best(release(torch)?, need)?.cuda;
    Some(Wheel { torch: Version::parse(torch.public())?, cuda })
}

fn newest(need: &WheelRequirements) -> Option<Wheel> {
    let candidates = RELEASES.iter().filter_map(|release| Some((release, best(release, need)?.cuda)));
    let rank = |(release, cuda): &(&Release, CudaVersion)| {
        let is_native = made_for(need).is_none_or(|known| *cuda <= known && cuda.major == known.major);
        (is_native.then_some(*cuda), release.version)
    };
    let (release, cuda) = candidates.max_by_key(rank)?;
    let (major, minor) = release.version;
    Some(Wheel { torch: Version::parse(&format!("{major}.{minor}.0"))?, cuda })
}

/// The CUDA version that the driver was made for; `None` where either is not known.
fn made_for(need: &WheelRequirements) -> Option<CudaVersion> {
    cuda_of_driver(need.driver.as_ref()?)
}

fn best(release: &'static Release, need: &WheelRequirements) -> Option<&'static ReleaseBuild> {
    if need.python.is_some_and(|python| !release.serves(python)) {
        return None;
    }
    let suiting = || release.builds.iter().filter(|build| suits(build, need));
    let native = suiting().rfind(|build| made_for(need).is_none_or(|known| build.cuda <= known));
    native.or_else(|| suiting().next())
}

fn suits(build: &ReleaseBuild, need: &WheelRequirements) -> bool {
    let runs = || {
        let gpus = build.gpus(need.cpu);
        // A table row without GPUs suits no machine: a wheel that may not run is no advice.
        need.gpus.is_empty() || need.gpus.iter().all(|&gpu| is_run(&gpus, gpu, build.cuda, need.driver.as_ref()))
    };
    let driver = need.driver.as_ref();
    let is_driven = driver.zip(oldest_driver(build.cuda)).is_none_or(|(driver, oldest)| *driver >= oldest);
    build.is_for(need.cpu) && is_driven && runs()
}

/// The driver must be at least as new as the compiler of the PTX.
fn is_run(gpus: &crate::CompiledFor, gpu: Capability, cuda: CudaVersion, driver: Option<&Version>) -> bool {
    match gpus.fit(gpu) {
        GpuCompatibility::Binary => true,
        GpuCompatibility::Ptx => driver.and_then(cuda_of_driver).is_none_or(|known| known >= cuda),
        GpuCompatibility::Nothing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(cpu: CpuArchitecture, python: (u32, u32), driver: &str, gpu: Capability, torch: &str) -> Option<String> {
        let need = WheelRequirements {
            cpu,
            python: Some(python),
            driver: Version::parse(driver),
            gpus: vec![gpu],
            torch: Version::parse(torch),
        };
        choose(&need).map(|wheel| format!("{} {}", wheel.torch, wheel.cuda.tag()))
    }

    #[test]
    fn the_release_is_kept_where_it_can_be() {
        use CpuArchitecture::{Arm, X86};
        for (cpu, python, driver, gpu, torch, expected) in [
            // An RTX 50 with wheels for CUDA 12.6 gets those for 12.8 of the same release.
            (X86, (3, 11), "570.124.06", (12, 0), "2.7.0+cu126", Some("2.7.0 cu128")),
            // A GH200 with the CPU build of 2.0.1, of which there is no CUDA build for ARM.
            (Arm, (3, 10), "570.124.06", (9, 0), "2.0.1", Some("2.11.0 cu128")),
            (Arm, (3, 9), "570.124.06", (9, 0), "2.0.1", Some("2.8.0 cu128")),
            (Arm, (3, 8), "570.124.06", (9, 0), "2.0.1", None),
            (Arm, (3, 10), "570.124.06", (9, 0), "2.8.0", Some("2.8.0 cu128")),
            // A driver of 2022 runs what was made with CUDA 12, if not what came later.
            (X86, (3, 11), "525.60.13", (8, 6), "2.14.0+cu130", Some("2.14.0 cu126")),
            (X86, (3, 11), "470.57.02", (8, 6), "2.14.0+cu130", Some("2.7.0 cu118")),
            // Maxwell is in the wheels for 12.6 alone.
            (X86, (3, 11), "580.65.06", (5, 2), "2.14.0+cu130", Some("2.14.0 cu126")),
            (X86, (3, 11), "580.65.06", (3, 5), "2.14.0+cu130", None),
            // PyTorch out of the table.
            (X86, (3, 11), "595.45.04", (9, 0), "2.15.0+cpu", Some("2.14.0 cu132")),
        ] {
            let found = chosen(cpu, python, driver, Capability::new(gpu.0, gpu.1), torch);
            assert_eq!(found.as_deref(), expected, "{cpu:?} {python:?} {driver} {gpu:?} {torch}");
        }
    }
}
