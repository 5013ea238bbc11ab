//! NVIDIA's compiler and assembler from PyPI: no toolkit is installed, and every machine has the
//! same.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::ptx;
use crate::tools::Venv;
use crate::workspace::Workspace;

/// To the last digit: another version compiles to other PTX.
const PACKAGES: &[&str] = &[
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// The oldest GPUs that megabatch drives are of compute capability 8.0; newer ones run its PTX.
const OPTIONS: &[&str] = &["-std=c++17", "-O3", "-arch=compute_80", "-ptx"];

pub(super) struct Compiler {
    root: PathBuf,
    programs: PathBuf,
    /// For what is made on the way.
    scratch: PathBuf,
}

impl Compiler {
    /// Finds the compiler, fetching it if it is not there yet (300 MB).
    pub(super) fn install(workspace: &Workspace) -> Result<Self> {
        let venv = Venv::open(workspace.target_dir.join("tools"))?;
        venv.ensure("cuda-compiler", PACKAGES)?;
        let scratch = workspace.target_dir.join("kernels");
        std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        Ok(Compiler { root: workspace.root.clone(), programs: venv.packages()?.join("nvidia/cu13/bin"), scratch })
    }

    /// The PTX of `source`, a path below the root, in the form that is committed.
    pub(super) fn ptx(&self, source: &Path) -> Result<String> {
        let raw = self.scratch.join("raw.ptx");
        self.run(self.program("nvcc").args(OPTIONS).arg(source).arg("-o").arg(&raw))?;
        ptx::committed_form(&std::fs::read_to_string(&raw)?, source)
    }

    /// Report of ptxas on each kernel when it assembles `ptx` for `target`.
    pub(super) fn assemble(&self, ptx: &str, target: &str) -> Result<String> {
        let file = self.scratch.join("committed.ptx");
        std::fs::write(&file, ptx)?;
        let mut ptxas = self.program("ptxas");
        ptxas.arg("-v").arg(format!("-arch={target}")).arg(&file).arg("-o").arg(self.scratch.join("kernels.cubin"));
        self.run(&mut ptxas)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(&self.root);
        command
    }

    /// Runs `command`; what it wrote to the standard error.
    fn run(&self, command: &mut Command) -> Result<String> {
        let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            bail!("{command:?} ended with {}:\n{messages}{}", output.status, String::from_utf8_lossy(&output.stdout));
        }
        Ok(messages)
    }
}
