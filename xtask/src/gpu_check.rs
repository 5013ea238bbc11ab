//! `cargo xtask gpu-check`: the programs that `scripts/gpu-check build` packs for a machine without Rust.

use anyhow::{Result, bail};

use crate::tools;
use crate::workspace::{Workspace, cargo, succeed};

/// The checks with all their kernels compiled in, and megabatch itself.
const PROGRAMS: [&[&str]; 3] = [
    &["--package", "megabatch-gpu-core", "--features", "cuda", "--example", "gpu-check"],
    &["--package", "megabatch-trainer", "--example", "gpu_operations"],
    &["--package", "megabatch"],
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(stray) = args.first() {
        bail!("gpu-check takes no arguments, but there is `{stray}`; scripts/gpu-check runs what it builds");
    }
    let workspace = Workspace::load()?;
    for program in PROGRAMS {
        let mut build = cargo(&workspace.root, &["build", "--release", "--locked"]);
        succeed(tools::with_cmake(build.args(program), &workspace)?)?;
    }
    Ok(())
}
