//! Developer commands of the megabatch workspace: `cargo xtask help`.
#![forbid(unsafe_code)]

mod bench;
mod demo;
mod experiment;
mod fuzz;
mod gates;
mod gpu_check;
#[cfg(test)]
mod house;
mod instructions;
mod kernels;
mod kill;
mod layers;
mod nextest;
mod passed;
mod report;
mod session;
mod simulate;
mod skipped;
mod sources;
mod test;
mod tests_gate;
mod timings;
mod tools;
mod trampolines;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask COMMAND

  demo [ARGS…]    build megabatch and run its main job on generated bars: `megabatch demo ARGS`
  test [--thorough] [--again] [--package NAME]… [--require WHAT]… [GATE…]
                  every check that a change must pass, or only the gates named; `test --list` names them. What passed before and has
                  not changed since is left out, unless with `--again`. `--thorough`: 256 cases of each property test instead of 16, and
                  a million events of the memory pool. `--package` keeps the gate `tests` to a package. With `--require data` or `--require python` it fails if a test is skipped for want of that
  test --timings [ROUNDS]
                  measures `demo` and `test` on clean clones, cold, warm and after a change of one function in each crate, 3 times or
                  ROUNDS; writes the table of docs/measurements/gate.md. It needs a quiet machine and hours
  bench [ARGS…]   criterion regression suite; ARGS go to it, such as a filter
  experiment NAME…
                  whole runs on the public data in $MEGABATCH_DATA, in release: cora, mutag, proteins, molecules, sp500
  fuzz [--seconds N] [TARGET…]
                  N seconds of each fuzz target (60 if not given), or of those named; installs cargo-fuzz under target/
  gpu-check       builds what scripts/gpu-check packs for a machine with a GPU and without Rust
  instructions [--check]
                  counts the instructions of training steps with valgrind, where it is, and writes benches/instructions.tsv, or compares with it
  kernels [--check]
                  compiles every .cu to its crate's ptx/NAME.ptx, or compares with what is there; reports registers, spills and shared memory
                  on every GPU; installs NVIDIA's compiler (300 MB) under target/
  kill [RUNS]     kills 100 training runs, or RUNS, at random moments, and compares where they end with a run that was not killed
  simulate [--events N] [--seed S]
                  the memory pool in lockstep with its model: 10 million events, or N, from seed 1, or S
  report          makes the reports of a demo, of a run with attention and of one with graphs, and a comparison, and looks at them in headless
                  Chromium: texts, console, the order of the Tab key, width; pictures go to target/report/
  trampolines [--check]
                  writes crates/cuda-lazy/src/forward/functions.rs from the bindings in Cargo.lock, or only compares
  peers [training | gpu | loading | segment | graph-build | graph-cache | graph-attention | graph-training | amp] [-- ARGS]
                  megabatch beside PyTorch, PyTorch Geometric or h5py on the same work, in one go (installs PyTorch, 6 GB, under target/)
  peers weights [-- ARGS]
                  exported weights of every option in the PyTorch module of docs/reference/weights.md: the same predictions (installs PyTorch under target/)
  peers tensorboard
                  what `train` writes for TensorBoard, read by TensorBoard's own reader (installs it under target/)
  peers onnx | onnx-oldest | onnx-speed [-- ARGS]
                  exported models in ONNX Runtime: the same predictions, in the newest and in version 1.15.0, and how fast (installs them under target/)

What a command needs besides Rust, a C and C++ compiler and Python it brings itself, into a virtual environment under target/.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let (command, rest) = args.split_first().map_or(("help", args), |(first, rest)| (first.as_str(), rest));
    match command {
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "bench" => bench::run(rest),
        "peers" => bench::peers(rest),
        "experiment" => experiment::run(rest),
        "fuzz" => fuzz::run(rest),
        "gpu-check" => gpu_check::run(rest),
        "instructions" => instructions::run(rest),
        "kernels" => kernels::run(rest),
        "kill" => kill::run(rest),
        "report" => report::run(rest),
        "simulate" => simulate::run(rest),
        "trampolines" => trampolines::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown command `{command}`\n\n{USAGE}"),
    }
}
