//! NVIDIA's compiler and assembler from PyPI: no toolkit is installed, and every machine has the
//! same.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tools::Venv;
use crate::workspace::Workspace;

/// To the last digit: another version compiles to other PTX.
const PACKAGES: &[&str] = &[
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-nvdisasm==13.2.78",
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

    /// The same compiler for the sources of another tree.
    pub(super) fn for_tree(&self, root: &Path) -> Self {
        Compiler { root: root.to_owned(), programs: self.programs.clone(), scratch: self.scratch.clone() }
    }

    /// The PTX of `source`, a path below the root, in the form that is committed.
    pub(super) fn ptx(&self, source: &Path) -> Result<String> {
        let raw = self.scratch.join("raw.ptx");
        self.run(self.program("nvcc").args(OPTIONS).arg(source).arg("-o").arg(&raw))?;
        committed_form(&std::fs::read_to_string(&raw)?, source)
    }

    /// Report of ptxas on each kernel when it assembles `ptx` for `target`.
    pub(super) fn assemble(&self, ptx: &str, target: &str) -> Result<String> {
        let file = self.scratch.join("committed.ptx");
        std::fs::write(&file, ptx)?;
        let mut ptxas = self.program("ptxas");
        ptxas.arg("-v").arg(format!("-arch={target}")).arg(&file).arg("-o").arg(self.scratch.join("kernels.cubin"));
        self.run(&mut ptxas)
    }

    /// Machine code of `ptx` on `target`, as `nvdisasm -hex` lists it.
    pub(super) fn disassemble(&self, ptx: &str, target: &str) -> Result<String> {
        self.assemble(ptx, target)?;
        let mut nvdisasm = self.program("nvdisasm");
        nvdisasm.args(["-hex", "-c"]).arg(self.scratch.join("kernels.cubin"));
        let output = nvdisasm.output().with_context(|| format!("cannot start {nvdisasm:?}"))?;
        if !output.status.success() {
            bail!("{nvdisasm:?} ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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

/// The version that the text claims. A driver refuses text newer than itself, whatever is in it;
/// this one came with CUDA 11.0 and the 450 drivers of 2020, as did compute capability 8.0. ptxas
/// holds every instruction against it, so that a kernel that uses a newer one does not assemble.
const PTX_VERSION: &str = "7.0";

/// A function of a file's own has a hash of the file's path in its name.
const PATH_HASH: &str = "_INTERNAL_";

fn committed_form(raw: &str, source: &Path) -> Result<String> {
    if raw.contains(PATH_HASH) {
        bail!(
            "{}: a `static` function or variable that was not inlined gets a name that differs by machine; make it `inline`",
            source.display()
        );
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!("// Compiled from {name} by `cargo xtask kernels`.\n.version {PTX_VERSION}\n");
    // Before the version stand comments with the compiler's build.
    let Some((_, body)) = raw.split_once("\n.version ") else {
        bail!("{}: the compiler's output has no .version", source.display());
    };
    for line in body.lines().skip(1) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_replaced_and_the_version_lowered() {
        let raw = "//\n// Compiler Build ID: CL-1\n//\n\n.version 9.0\n.target sm_80\n\tret; \n}\n\n";
        let text = committed_form(raw, Path::new("crates/a/src/fill.cu")).unwrap();
        assert_eq!(
            text,
            "// Compiled from fill.cu by `cargo xtask kernels`.\n.version 7.0\n.target sm_80\n\tret;\n}\n"
        );
    }

    #[test]
    fn what_differs_by_machine_is_refused() {
        let raw = "\n.version 9.0\n.func _INTERNAL_0fe1_4_k_cu_1(\n";
        assert!(committed_form(raw, Path::new("k.cu")).is_err());
        assert!(committed_form(".target sm_80", Path::new("k.cu")).is_err());
    }
}
