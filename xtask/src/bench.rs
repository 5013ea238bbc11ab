//! Benchmarks: the criterion suite, and megabatch beside what a user would run instead.

use anyhow::Result;

use crate::tools::{self, Venv};
use crate::workspace::{Workspace, cargo, succeed};

/// What `benches/peers` imports. PyTorch brings its CUDA libraries along, 6 GB, also on a machine without a GPU.
const PEER_PACKAGES: &[&str] = &["torch", "setuptools>=77.0.3", "numpy", "h5py", "safetensors"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let mut bench = cargo(&workspace.root, &["bench", "--package", "megabatch-benches", "--"]);
    bench.args(args);
    succeed(tools::with_cmake(&mut bench, &workspace)?)
}

/// Each comparison by its name on the command line; the first is the default.
const COMPARISONS: &[(&str, &str)] = &[("training", "lstm_step.py"), ("loading", "loading.py")];

/// Runs a script of `benches/peers` against a release build, both sides interleaved in one sitting.
pub(crate) fn peers(args: &[String]) -> Result<()> {
    let named = |(name, _): &&(&str, &str)| args.first().is_some_and(|first| first == name);
    let (script, args) = match COMPARISONS.iter().find(named) {
        Some((_, script)) => (*script, &args[1..]),
        None => (COMPARISONS[0].1, args),
    };
    let workspace = Workspace::load()?;
    let mut build = cargo(&workspace.root, &["build", "--release", "--package", "megabatch"]);
    succeed(tools::with_cmake(&mut build, &workspace)?)?;
    let venv = Venv::open(workspace.target_dir.join("peers"))?;
    venv.ensure("peer-packages", PEER_PACKAGES)?;
    let mut compare = std::process::Command::new(venv.python());
    compare.arg(workspace.root.join("benches/peers").join(script));
    compare.arg("--megabatch").arg(workspace.target_dir.join("release/megabatch")).args(args);
    succeed(&mut compare)
}
