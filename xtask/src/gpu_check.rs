//! `cargo xtask gpu-check`: the programs that `scripts/gpu-check build` packs for a machine without
//! Rust.

use anyhow::{Result, bail};

use crate::limits::succeed;
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// The checks and measurements with all their kernels compiled in, and megabatch itself. They are
/// built together, so that they share what they are made of.
const PROGRAMS: &[&str] = &[
    "--package",
    "megabatch-gpu-core",
    "--package",
    "megabatch-nn",
    "--package",
    "megabatch-trainer",
    "--package",
    "megabatch",
    "--features",
    "megabatch-gpu-core/cuda",
    "--example",
    "gpu-check",
    "--example",
    "gpu_layers",
    "--example",
    "gpu_operations",
    "--bin",
    "megabatch",
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(stray) = args.first() {
        bail!("gpu-check takes no arguments, but there is `{stray}`; scripts/gpu-check runs what it builds");
    }
    let workspace = Workspace::load()?;
    let mut build = cargo(&workspace.root, &["build", "--release", "--locked"]);
    succeed(tools::with_cmake(build.args(PROGRAMS), &workspace)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Scripts that `scripts/gpu-check build` packs, without their ending.
    fn packed(root: &Path) -> BTreeSet<String> {
        let script = fs::read_to_string(root.join("scripts/gpu-check")).unwrap();
        let list = script.lines().find_map(|line| line.trim().strip_prefix("for script in ")?.strip_suffix("; do"));
        list.expect("a list of scripts").split(' ').map(str::to_owned).collect()
    }

    /// On the machine with the GPU there is nothing but what was packed.
    #[test]
    fn scripts_are_packed_with_what_they_import() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (packed, peers) = (packed(root), root.join("benches/peers"));
        assert!(packed.contains("gpu_speed"));
        for script in &packed {
            let text = fs::read_to_string(peers.join(format!("{script}.py"))).unwrap();
            let modules = text.lines().filter_map(|line| line.strip_prefix("from ")?.split(' ').next());
            for module in modules.filter(|module| peers.join(format!("{module}.py")).exists()) {
                assert!(packed.contains(module), "{script}.py imports {module}.py, which is not packed");
            }
        }
    }
}
