//! The driver's module of the kernel, by its own account.

use serde::Serialize;

use crate::system::System;
use crate::version::Version;

/// The module of the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct DriverModule {
    /// Its version, such as `570.124.06`.
    pub version: Version,
    /// True if it is the open one, which GPUs from Blackwell on need.
    pub is_open: bool,
}

pub(super) fn look(system: &System) -> Option<DriverModule> {
    module(&system.read("/proc/driver/nvidia/version")?)
}

/// Reads `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 12 ...`.
fn module(account: &str) -> Option<DriverModule> {
    let line = account.lines().find(|line| line.starts_with("NVRM version"))?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let version = line.split_whitespace().find(is_version).and_then(Version::parse)?;
    Some(DriverModule { version, is_open: line.contains("Open Kernel Module") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_module_are_read() {
        for (account, version, is_open) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: gcc 11.4.0\n",
                "550.54.15",
                false,
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.124.06  Release Build  (dvs-builder@U22)\n",
                "570.124.06",
                true,
            ),
        ] {
            let found = module(account).unwrap();
            assert_eq!((found.version.to_string().as_str(), found.is_open), (version, is_open));
        }
        assert!(module("").is_none());
        assert!(module("NVRM version: unknown").is_none());
    }
}
