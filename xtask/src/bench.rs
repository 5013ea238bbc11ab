//! Benchmarks: the criterion suite, and megabatch beside what a user would run instead.

use anyhow::Result;

use crate::tools::{self, Venv};
use crate::workspace::{Workspace, cargo, succeed};

/// What `benches/peers` imports. PyTorch brings its CUDA libraries along, 6 GB, also on a machine without a GPU.
const PEER_PACKAGES: &[&str] = &["torch", "setuptools>=77.0.3", "numpy", "h5py", "safetensors", "torch_geometric"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let mut bench = cargo(&workspace.root, &["bench", "--package", "megabatch-benches", "--"]);
    bench.args(args);
    succeed(tools::with_cmake(&mut bench, &workspace)?)
}

/// A script of `benches/peers`, and what of ours it runs.
struct Comparison {
    name: &'static str,
    script: &'static str,
    /// What `cargo build --release` is told to build.
    build: &'static [&'static str],
    /// The option by which the script takes our program, and where that is.
    program: (&'static str, &'static str),
}

const MEGABATCH: (&str, &str) = ("--megabatch", "release/megabatch");

/// Each comparison by its name on the command line; the first is the default.
const COMPARISONS: &[Comparison] = &[
    Comparison { name: "training", script: "lstm_step.py", build: &["--package", "megabatch"], program: MEGABATCH },
    Comparison { name: "loading", script: "loading.py", build: &["--package", "megabatch"], program: MEGABATCH },
    Comparison {
        name: "segment",
        script: "segment.py",
        build: &["--package", "megabatch-segment", "--example", "segment_speed"],
        program: ("--program", "release/examples/segment_speed"),
    },
    Comparison {
        name: "graph-build",
        script: "graph_build.py",
        build: &["--package", "megabatch-graph-cache", "--example", "build_speed"],
        program: ("--program", "release/examples/build_speed"),
    },
    Comparison {
        name: "graph-cache",
        script: "graph_cache.py",
        build: &["--package", "megabatch"],
        program: MEGABATCH,
    },
    Comparison {
        name: "graph-attention",
        script: "graph_attention.py",
        build: &["--package", "megabatch-trainer", "--example", "graph_attention"],
        program: ("--program", "release/examples/graph_attention"),
    },
];

/// Runs a script of `benches/peers` against a release build, both sides interleaved in one sitting.
pub(crate) fn peers(args: &[String]) -> Result<()> {
    let named = |comparison: &&Comparison| args.first().is_some_and(|first| first == comparison.name);
    let (Comparison { script, build, program: (option, program), .. }, args) = match COMPARISONS.iter().find(named) {
        Some(comparison) => (comparison, &args[1..]),
        None => (&COMPARISONS[0], args),
    };
    let workspace = Workspace::load()?;
    let mut build = cargo(&workspace.root, &[&["build", "--release"], *build].concat());
    succeed(tools::with_cmake(&mut build, &workspace)?)?;
    let venv = Venv::open(workspace.target_dir.join("peers"))?;
    venv.ensure("peer-packages", PEER_PACKAGES)?;
    let mut compare = std::process::Command::new(venv.python());
    compare.arg(workspace.root.join("benches/peers").join(script));
    compare.arg(option).arg(workspace.target_dir.join(program)).args(args);
    succeed(&mut compare)
}
