//! Drivers: their CUDA versions, and the oldest driver for each.

use crate::version::{CudaVersion, Version};

/// The first driver for a version of CUDA.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// The version of CUDA whose PTX and features this driver and later ones support.
    pub cuda: CudaVersion,
    /// The driver that came with it, on Linux.
    pub version: &'static str,
}

const fn driver(major: u32, minor: u32, version: &'static str) -> Driver {
    Driver { cuda: CudaVersion::new(major, minor), version }
}

/// The drivers that the versions of CUDA came with, newest first. Source, all confirmed: table 3 of
/// NVIDIA's release notes, <https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html>;
/// those before 12.1 from use.
pub const DRIVERS: &[Driver] = &[
    driver(13, 2, "595.45.04"),
    driver(13, 1, "590.44.01"),
    driver(13, 0, "580.65.06"),
    driver(12, 9, "575.51.03"),
    driver(12, 8, "570.26"),
    driver(12, 6, "560.28.03"),
    driver(12, 5, "555.42.02"),
    driver(12, 4, "550.54.14"),
    driver(12, 3, "545.23.06"),
    driver(12, 2, "535.54.03"),
    driver(12, 1, "530.30.02"),
    driver(12, 0, "525.60.13"),
    driver(11, 8, "520.61.05"),
    driver(11, 7, "515.43.04"),
];

/// By the first number of a CUDA version, the oldest driver that runs programs made with any of its
/// versions, in so far as they bring machine code for the GPU. Source, confirmed:
/// <https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html>, which
/// gives the branches 580, 525 and 450; the full numbers are those of the drivers that CUDA 13.0
/// and 12.0 came with, and 450.80.02 as NVIDIA's release notes have it.
pub const OLDEST_DRIVERS: &[(u32, &str)] = &[(13, "580.65.06"), (12, "525.60.13"), (11, "450.80.02")];

/// The newest CUDA version that came with `driver` or an older one; `None` for drivers older than
/// the table.
pub fn cuda_of_driver(driver: &Version) -> Option<CudaVersion> {
    let came_with = |row: &&Driver| version(row.version) <= *driver;
    DRIVERS.iter().find(came_with).map(|row| row.cuda)
}

/// The oldest driver that runs programs made with `cuda`; `None` where the table does not have it.
pub fn oldest_driver(cuda: CudaVersion) -> Option<Version> {
    OLDEST_DRIVERS.iter().find(|(major, _)| *major == cuda.major).map(|(_, text)| version(text))
}

fn version(text: &str) -> Version {
    Version::parse(text).expect("the tables hold versions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_knows_the_cuda_it_came_with_and_all_before() {
        for (driver, expected) in [
            ("570.124.06", Some((12, 8))),
            ("570.26", Some((12, 8))),
            ("565.57.01", Some((12, 6))),
            ("580.65.06", Some((13, 0))),
            ("610.43.02", Some((13, 2))),
            ("470.57.02", None),
        ] {
            let found = cuda_of_driver(&version(driver)).map(|cuda| (cuda.major, cuda.minor));
            assert_eq!(found, expected, "{driver}");
        }
        assert_eq!(oldest_driver(CudaVersion::new(12, 8)), Some(version("525.60.13")));
        assert_eq!(oldest_driver(CudaVersion::new(14, 0)), None);
    }

    #[test]
    fn the_table_falls() {
        assert!(DRIVERS.is_sorted_by(|one, next| one.cuda > next.cuda && version(one.version) > version(next.version)));
    }
}
