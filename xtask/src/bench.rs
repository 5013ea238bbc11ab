//! Benchmarks: the criterion suite, and comparisons with PyTorch, h5py and others.

use anyhow::Result;

use crate::limits::{succeed, succeed_without_limit};
use crate::tools::{self, Venv};
use crate::workspace::{Workspace, cargo};

/// Packages that `benches/peers` imports. PyTorch brings its CUDA libraries along, 6 GB, also on a
/// machine without a GPU.
const PEER_PACKAGES: &[&str] = &["torch", "setuptools>=77.0.3", "numpy", "h5py", "safetensors", "torch_geometric"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let mut bench = cargo(&workspace.root, &["bench", "--package", "megabatch-benches", "--"]);
    bench.args(args);
    succeed_without_limit(tools::with_cmake(&mut bench, &workspace)?)
}

/// Packages of the comparisons with ONNX Runtime, which need no PyTorch.
const ONNX_PACKAGES: &[&str] = &["onnx", "onnxruntime", "numpy", "h5py", "safetensors"];

/// Packages with the oldest ONNX Runtime that PyPI has for Python 3.11: MetaTrader 5 has 1.14.
const OLDEST_ONNX_PACKAGES: &[&str] = &["onnx==1.16.2", "onnxruntime==1.15.0", "numpy<2", "h5py", "safetensors"];

/// A virtual environment under `target/`, by its name, and what is installed in it.
type Packages = (&'static str, &'static [&'static str]);

const PYTORCH: Packages = ("peers", PEER_PACKAGES);
const ONNX: Packages = ("peers-onnx", ONNX_PACKAGES);
const OLDEST_ONNX: Packages = ("peers-onnx-oldest", OLDEST_ONNX_PACKAGES);
/// TensorBoard's reader of event files, which needs no TensorFlow.
const TENSORBOARD: Packages = ("peers-tensorboard", &["tensorboard"]);

/// A script of `benches/peers`, and the programs of ours that it runs.
struct Comparison {
    name: &'static str,
    script: &'static str,
    packages: Packages,
    build: &'static [Built],
    /// The option by which the script takes our program, and where that is.
    program: (&'static str, &'static str),
}

/// Targets of `cargo build --release`.
#[derive(Clone, Copy)]
enum Built {
    Program,
    /// Example of a package, by its name.
    Example(&'static str, &'static str),
}

impl Built {
    fn options(self) -> [&'static str; 4] {
        match self {
            Built::Program => ["--package", "megabatch", "--bin", "megabatch"],
            Built::Example(package, name) => ["--package", package, "--example", name],
        }
    }
}

const PROGRAM: &[Built] = &[Built::Program];
const MEGABATCH: (&str, &str) = ("--megabatch", "release/megabatch");

/// Each comparison by its name on the command line; the first is the default.
const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "training",
        script: "lstm_step.py",
        packages: PYTORCH,
        build: &[Built::Program, Built::Example("megabatch-nn-cpu", "multiply_add_peak")],
        program: MEGABATCH,
    },
    Comparison { name: "bf16", script: "lstm_bf16.py", packages: PYTORCH, build: PROGRAM, program: MEGABATCH },
    Comparison { name: "loading", script: "loading.py", packages: PYTORCH, build: PROGRAM, program: MEGABATCH },
    Comparison {
        name: "graph-build",
        script: "graph_build.py",
        packages: PYTORCH,
        build: &[Built::Example("megabatch-graph-cache", "build_speed")],
        program: ("--program", "release/examples/build_speed"),
    },
    Comparison { name: "graph-cache", script: "graph_cache.py", packages: PYTORCH, build: PROGRAM, program: MEGABATCH },
    Comparison {
        name: "amp",
        script: "amp.py",
        packages: PYTORCH,
        build: &[Built::Example("megabatch-amp", "step_speed")],
        program: ("--program", "release/examples/step_speed"),
    },
    Comparison {
        name: "graph-attention",
        script: "graph_attention.py",
        packages: PYTORCH,
        build: &[Built::Example("megabatch-nn-cpu", "graph_attention")],
        program: ("--program", "release/examples/graph_attention"),
    },
    Comparison {
        name: "graph-training",
        script: "graph_training.py",
        packages: PYTORCH,
        build: PROGRAM,
        program: MEGABATCH,
    },
    Comparison {
        name: "gpu",
        script: "gpu_speed.py",
        packages: PYTORCH,
        build: &[Built::Example("megabatch-nn-cuda", "gpu_layers")],
        program: ("--layers", "release/examples/gpu_layers"),
    },
    Comparison {
        name: "gpu-training",
        script: "gpu_training_speed.py",
        packages: PYTORCH,
        build: PROGRAM,
        program: MEGABATCH,
    },
    Comparison { name: "weights", script: "weights_parity.py", packages: PYTORCH, build: PROGRAM, program: MEGABATCH },
    Comparison { name: "onnx", script: "onnx_parity.py", packages: ONNX, build: PROGRAM, program: MEGABATCH },
    Comparison {
        name: "onnx-oldest",
        script: "onnx_parity.py",
        packages: OLDEST_ONNX,
        build: PROGRAM,
        program: MEGABATCH,
    },
    Comparison {
        name: "tensorboard",
        script: "tensorboard_events.py",
        packages: TENSORBOARD,
        build: PROGRAM,
        program: MEGABATCH,
    },
    Comparison { name: "onnx-speed", script: "onnx_runtime.py", packages: ONNX, build: PROGRAM, program: MEGABATCH },
];

/// Runs a script of `benches/peers` against a release build, both sides interleaved.
pub(crate) fn peers(args: &[String]) -> Result<()> {
    let named = |comparison: &&Comparison| args.first().is_some_and(|first| first == comparison.name);
    let (Comparison { script, packages: (venv, packages), build, program: (option, program), .. }, args) =
        match COMPARISONS.iter().find(named) {
            Some(comparison) => (comparison, &args[1..]),
            None => (&COMPARISONS[0], args),
        };
    let workspace = Workspace::load()?;
    let options = build.iter().flat_map(|built| built.options());
    let mut build = cargo(&workspace.root, &["build", "--release"]);
    build.args(options);
    succeed(tools::with_cmake(&mut build, &workspace)?)?;
    let venv = Venv::open(workspace.target_dir.join(venv))?;
    venv.ensure("peer-packages", packages)?;
    let mut compare = std::process::Command::new(venv.python());
    compare.arg(workspace.root.join("benches/peers").join(script));
    compare.arg(option).arg(workspace.target_dir.join(program)).args(args);
    succeed_without_limit(&mut compare)
}
