//! Repair of a Python environment: packages to remove, and wheels to install.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::knowledge::{CpuArchitecture, Extension, Wheel, has_cuda_wheels, index};
use crate::python::Python;
use crate::quote::quote;
use crate::version::{Capability, CudaVersion, Version};

/// Packages released together with PyTorch, from its index.
const COMPANIONS: &[&str] = &["torchvision", "torchaudio"];

/// Packages to install, and the installer.
#[derive(Clone, Debug)]
pub struct Repair {
    pub(crate) installer: Installer,
    /// The PyTorch to install; `None` if the installed one stays.
    pub(crate) wheel: Option<Wheel>,
    /// The PyTorch that extensions are for, after the repair.
    pub(crate) torch: Version,
    /// The CUDA version that it was built with.
    pub(crate) cuda: CudaVersion,
    /// Installed packages of [`COMPANIONS`].
    pub(crate) companions: Vec<&'static str>,
    /// Extensions to install anew.
    pub(crate) extensions: Vec<&'static Extension>,
    /// True if torch_scatter is installed after the repair.
    pub(crate) has_scatter: bool,
    /// The CPU architecture, which decides if extensions have wheels.
    pub(crate) cpu: CpuArchitecture,
    /// The GPUs to compile for if there are no wheels.
    pub(crate) gpus: Vec<Capability>,
}

/// The program that installs packages for an interpreter.
#[derive(Clone, Debug)]
pub(crate) struct Installer {
    python: PathBuf,
    /// Environments made by uv have no pip of their own.
    has_pip: bool,
}

impl Installer {
    pub(crate) fn for_python(python: &Python) -> Self {
        // If no package is seen at all, the folders were not found, and pip is the better guess.
        let has_pip = python.distributions.is_empty() || python.distribution("pip").is_some();
        Installer { python: python.executable.clone(), has_pip }
    }

    pub(crate) fn python(&self) -> String {
        quote(&self.python.to_string_lossy())
    }

    /// `pip ACTION ARGUMENTS` for this interpreter.
    pub(crate) fn pip(&self, action: &str, arguments: &[String]) -> String {
        let words = arguments.iter().map(|word| format!(" {}", quote(word))).collect::<String>();
        if self.has_pip {
            let yes = if action == "uninstall" { " -y" } else { "" };
            return format!("{} -m pip {action}{yes}{words}", self.python());
        }
        format!("uv pip {action} --python {}{words}", self.python())
    }

    /// The command that empties the cache of downloaded and built wheels.
    pub(crate) fn purge(&self) -> String {
        if self.has_pip { format!("{} -m pip cache purge", self.python()) } else { "uv cache clean".to_owned() }
    }

    fn no_cache(&self) -> String {
        if self.has_pip { "--no-cache-dir" } else { "--no-cache" }.to_owned()
    }
}

impl Repair {
    /// The commands, in their order: what does not fit is uninstalled first, because pip takes a
    /// CPU build for a CUDA build of the same version.
    pub fn commands(&self) -> Vec<String> {
        let mut leaving = self.extensions.iter().map(|extension| extension.package.to_owned()).collect::<Vec<_>>();
        if self.wheel.is_some() {
            leaving.splice(0..0, std::iter::once("torch").chain(self.companions.iter().copied()).map(str::to_owned));
        }
        let mut commands = vec![self.installer.pip("uninstall", &leaving)];
        commands.extend(self.wheel.as_ref().map(|wheel| self.install_torch(wheel)));
        commands.extend(self.install_extensions());
        commands
    }

    fn install_torch(&self, wheel: &Wheel) -> String {
        let mut arguments = vec![self.installer.no_cache(), format!("torch=={}", wheel.torch.public())];
        arguments.extend(self.companions.iter().map(|&name| name.to_owned()));
        arguments.extend(["--index-url".to_owned(), wheel.index()]);
        self.installer.pip("install", &arguments)
    }

    fn install_extensions(&self) -> Option<String> {
        if self.extensions.is_empty() {
            return None;
        }
        Some(if has_cuda_wheels(self.cpu) { self.install_wheels() } else { self.build() })
    }

    /// Installs wheels; fails if there is none, because a build from source would lack CUDA.
    fn install_wheels(&self) -> String {
        let packages: Vec<String> = self.extensions.iter().map(|extension| extension.package.to_owned()).collect();
        let mut arguments = vec![self.installer.no_cache()];
        arguments.extend(packages.iter().map(|package| format!("--only-binary={package}")));
        arguments.extend(packages);
        arguments.extend(["-f".to_owned(), index(&self.torch, self.cuda)]);
        self.installer.pip("install", &arguments)
    }

    /// Builds from source, with the toolkit of the CUDA version that PyTorch was built with.
    fn build(&self) -> String {
        let mut gpus: Vec<String> = self.gpus.iter().map(ToString::to_string).collect();
        gpus.dedup();
        let list =
            if gpus.is_empty() { String::new() } else { format!("TORCH_CUDA_ARCH_LIST={} ", quote(&gpus.join(";"))) };
        let mut arguments = vec![self.installer.no_cache(), "--no-build-isolation".to_owned()];
        arguments.extend(self.extensions.iter().map(|extension| format!("--no-binary={}", extension.package)));
        arguments.extend(self.extensions.iter().map(|extension| match extension.package {
            // It is not on PyPI.
            "pyg-lib" => "git+https://github.com/pyg-team/pyg-lib.git".to_owned(),
            package => package.to_owned(),
        }));
        format!("FORCE_CUDA=1 CUDA_HOME={} {list}{}", self.toolkit(), self.installer.pip("install", &arguments))
    }

    /// True if something is compiled on this machine.
    pub(crate) fn builds(&self) -> bool {
        !self.extensions.is_empty() && !has_cuda_wheels(self.cpu)
    }

    /// Usual location of the toolkit that PyTorch was built with.
    pub(crate) fn toolkit(&self) -> String {
        format!("/usr/local/cuda-{}", self.cuda)
    }
}

impl Serialize for Repair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.commands())
    }
}

/// The companions of PyTorch that an environment has.
pub(crate) fn companions(python: &Python) -> Vec<&'static str> {
    COMPANIONS.iter().copied().filter(|name| python.distribution(name).is_some()).collect()
}
