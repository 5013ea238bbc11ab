//! A Python environment, by its interpreter's answers, or by its files if it does not answer.

mod answer;
mod find;
mod metadata;
mod requirement;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

pub use find::wheel_library_folders;
pub use metadata::Distribution;
pub use requirement::PackageRequirement;

use crate::knowledge::EXTENSIONS;
use crate::system::System;
use crate::version::{Capability, CompiledFor, CudaVersion, Version};

/// A Python environment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Python {
    /// The interpreter, as it was named or found.
    pub executable: PathBuf,
    /// Way in which it was found, such as `VIRTUAL_ENV`.
    pub found_by: &'static str,
    /// Its version.
    pub version: Option<Version>,
    /// The architecture that it was built for.
    pub machine: Option<String>,
    /// Reason for which it did not answer, or not completely; the rest is then read from files.
    #[serde(rename = "trouble")]
    pub failure: Option<String>,
    /// Its PyTorch.
    pub torch: Option<Torch>,
    /// Its extensions of PyTorch.
    pub extensions: Vec<Installed>,
    /// Operations that were run on devices.
    pub runs: Vec<OperationRun>,
    /// The packages that are installed.
    #[serde(skip)]
    pub distributions: Vec<Distribution>,
}

/// A PyTorch.
#[derive(Clone, Debug, Serialize)]
pub struct Torch {
    /// Its version, such as `2.7.0+cu128`.
    pub version: Version,
    /// The CUDA version that it was built with; `None` for a build without CUDA.
    pub cuda: Option<CudaVersion>,
    /// True if it was built for AMD's GPUs.
    pub is_rocm: bool,
    /// The GPUs that it was compiled for; empty where only files were read.
    pub compiled_for: CompiledFor,
    /// True if it sees a GPU that it can use; `None` where only files were read.
    pub is_available: Option<bool>,
    /// The GPUs that it sees.
    pub gpus: Vec<TorchGpu>,
    /// The cuDNN that it loaded.
    pub cudnn: Option<Version>,
    /// Why it cannot be imported.
    pub import_error: Option<String>,
}

/// A GPU as PyTorch sees it.
#[derive(Clone, Debug, Serialize)]
pub struct TorchGpu {
    /// Its name.
    pub name: String,
    /// The version of its instruction set.
    pub capability: Capability,
}

/// An extension that is installed.
#[derive(Clone, Debug, Serialize)]
pub struct Installed {
    /// Its module, such as `torch_scatter`.
    pub module: &'static str,
    /// Its version with its build, such as `2.1.2+pt27cu128`.
    pub version: Option<Version>,
    /// CUDA version that it reports: `Some(None)` for a build without CUDA, `None` if it reports
    /// nothing.
    pub tells: Option<Option<CudaVersion>>,
    /// Why it cannot be imported.
    pub import_error: Option<String>,
}

/// An operation that was run.
#[derive(Clone, Debug, Serialize)]
pub struct OperationRun {
    /// The operation, such as `torch_scatter.scatter_max`.
    pub operation: String,
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Reason of a failure.
    pub error: Option<String>,
}

/// Target of an extension, by its version or its own report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltFor {
    /// A GPU, with this CUDA version.
    Cuda(CudaVersion),
    /// No GPU.
    Cpu,
    /// Unknown; perhaps it was built on this machine.
    Unknown,
}

impl Installed {
    pub(crate) fn built_for(&self) -> BuiltFor {
        let tag = self.version.as_ref().and_then(Version::local).unwrap_or_default();
        match (self.tells, CudaVersion::from_tag(tag)) {
            (Some(Some(cuda)), _) | (None, Some(cuda)) => BuiltFor::Cuda(cuda),
            (Some(None), _) => BuiltFor::Cpu,
            (None, None) if tag.ends_with("cpu") => BuiltFor::Cpu,
            (None, None) => BuiltFor::Unknown,
        }
    }

    /// The release of PyTorch that it was built for: 2 and 7 of `pt27cu128`, 2 and 12 of
    /// `pt212cu130`.
    pub(crate) fn built_for_torch(&self) -> Option<(u32, u32)> {
        let digits = self.version.as_ref()?.local()?.strip_prefix("pt")?;
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        let (major, minor) = digits.split_at_checked(1)?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Python {
    /// The package `name`, where it is installed.
    pub(crate) fn distribution(&self, name: &str) -> Option<&Distribution> {
        self.distributions.iter().find(|distribution| distribution.name == name)
    }
}

/// Finds the environment of `named`, or the active one, and examines it; `None` if there is none.
pub(crate) fn look(system: &System, named: Option<&Path>, limit: Duration) -> Option<Python> {
    let (executable, found_by) = find::interpreter(system, named)?;
    let answer = answer::ask(system, &executable, limit);
    let mut sites: Vec<PathBuf> = answer.sites.iter().map(PathBuf::from).collect();
    if sites.is_empty() {
        sites = find::sites(system, &executable);
    }
    let distributions = metadata::read(system, &sites);
    let version = answer.version.as_deref().and_then(Version::parse);
    let mut python = Python {
        version: version.or_else(|| sites.iter().find_map(|site| find::version_of(site))),
        machine: answer.machine.clone(),
        failure: answer.failure.clone(),
        torch: answer.torch(),
        extensions: answer.extensions(),
        runs: answer.runs.clone(),
        distributions,
        executable,
        found_by,
    };
    complete(&mut python, system, &sites, answer.torch_error);
    Some(python)
}

/// Adds facts from files: versions of extensions, and PyTorch if it was not imported.
fn complete(python: &mut Python, system: &System, sites: &[PathBuf], torch_error: Option<String>) {
    if python.torch.is_none() {
        python.torch = sites.iter().find_map(|site| metadata::torch(system, site));
        if let Some(torch) = &mut python.torch {
            torch.import_error = torch_error;
        }
    }
    for extension in EXTENSIONS {
        let Some(found) = python.distribution(extension.package) else { continue };
        let version = Some(found.version.clone());
        match python.extensions.iter_mut().find(|installed| installed.module == extension.module) {
            Some(installed) => installed.version = version,
            None => {
                let installed = Installed { module: extension.module, version, tells: None, import_error: None };
                python.extensions.push(installed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_tells_what_it_was_built_for() {
        let installed = |version: &str, tells| Installed {
            module: "torch_scatter",
            version: Version::parse(version),
            tells,
            import_error: None,
        };
        let cuda = CudaVersion::new(12, 8);
        for (version, tells, built_for, torch) in [
            ("2.1.2+pt27cu128", None, BuiltFor::Cuda(cuda), Some((2, 7))),
            ("2.1.2+pt212cu128", None, BuiltFor::Cuda(cuda), Some((2, 12))),
            ("2.1.2+pt27cpu", None, BuiltFor::Cpu, Some((2, 7))),
            ("2.1.2", None, BuiltFor::Unknown, None),
            ("2.1.2", Some(None), BuiltFor::Cpu, None),
            ("2.1.2", Some(Some(cuda)), BuiltFor::Cuda(cuda), None),
            ("2.1.2+pt27cpu", Some(Some(cuda)), BuiltFor::Cuda(cuda), Some((2, 7))),
        ] {
            let extension = installed(version, tells);
            assert_eq!((extension.built_for(), extension.built_for_torch()), (built_for, torch), "{version} {tells:?}");
        }
    }
}
