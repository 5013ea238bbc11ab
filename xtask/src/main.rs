//! Developer commands of the megabatch workspace: `cargo xtask help`.
mod alone;
mod arm;
mod bench;
mod components;
mod demo;
mod experiment;
mod fuzz;
mod gates;
mod gpu_check;
#[cfg(test)]
mod house;
mod inner_loops;
mod instructions;
mod kernels;
mod kill;
#[cfg(test)]
mod language;
mod layers;
mod limits;
mod lines;
mod mpi;
mod nextest;
#[cfg(test)]
mod orphans;
mod passed;
mod property_tests;
mod python;
mod release;
mod report;
mod sanitize;
mod session;
mod setting_types;
mod simulate;
mod skipped;
mod sources;
mod test;
mod tests_gate;
mod timings;
mod tools;
mod trampolines;
mod workspace;
mod zig;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask COMMAND

  demo [ARGS…]    build megabatch and run its main job on generated bars: `megabatch demo ARGS`
  test [--thorough] [--again] [--package NAME]… [--require WHAT]… [GATE…]
                  every check that a change must pass, or only the named gates; `test --list` lists
                  them. Checks that have passed and have not changed since are skipped, unless with
                  `--again`. `--thorough`: 256 cases of each property test instead of 16, and a
                  million events of the memory pool. `--package` limits the gate `tests` to a
                  package. `--require data` or `--require python` fails if a test is skipped for
                  lack of it
  test --timings [ROUNDS]
                  times `demo` and `test` on clean clones, cold, warm and after a change of one
                  function in each crate, in 3 rounds or ROUNDS; writes a table,
                  target/timings.md. Takes hours on a quiet machine
  arm check       lints of the workspace as compiled for AArch64 Linux, on a machine of another
                  kind; needs a cross compiler, and says how it is installed
  arm build [ARGS…]
                  the program for AArch64; ARGS go to `cargo build`, such as `--release`
  arm test [PACKAGE…] [-- FILTER…]
                  its tests under qemu, or those of packages, such as `nn-cpu`, or whose names have
                  FILTER in them
  arm kernels     the innermost loops of the CPU engine's kernels for AArch64 and x86-64, in release:
                  a table of their instructions, multiply-adds and loads, by disassembly
  bench [ARGS…]   criterion regression suite; ARGS go to it, such as a filter
  experiment NAME…
                  whole runs on the public data in $MEGABATCH_DATA, in release: cora, mutag,
                  proteins, molecules, sp500
  fuzz [--seconds N] [TARGET…]
                  N seconds (60 by default) of each fuzz target, or of the named ones; installs
                  cargo-fuzz under target/
  gpu-check       builds what scripts/gpu-check packs for a machine with a GPU and without Rust
  instructions [--check]
                  counts the instructions of training steps with valgrind, if installed, and writes
                  benches/instructions.tsv, or compares with it
  kernels [--check | --variant NAME=PATCH …]
                  compiles every .cu to its crate's ptx/NAME.ptx, or compares with it; reports
                  registers, spills and shared memory on every GPU; installs NVIDIA's compiler (300
                  MB) under target/
  kill [RUNS]     kills 100 training runs, or RUNS, at random moments, and compares their results
                  with a run that was not killed
  python build    the wheel of the Python module in target/wheels, with the release profile
  python test [--torch] [NAME…]
                  its tests, or those whose names have NAME in them; `--torch` in an environment with
                  PyTorch (6 GB), where its tests run too
  python stubs    its types: writes those of the native part and of settings, and checks all: mypy
                  in strict mode, stubtest
  python measure  its loader beside the same loop in Rust, and beside h5py; in release
  lines           lines of the product by crate: code, comments and blank lines, without tests
  mpi [KILLS]     a year of EURUSD minutes from $MEGABATCH_DATA trained by 1 to 4 processes under Open
                  MPI and MPICH, against one alone; 50 or KILLS of them killed with recovery and
                  without, one stopped, one with a full disk; two of Python (installs both under
                  target/)
  mpi speed [ROUNDS]
                  two processes of one thread beside one process of two threads, in release, in 5 or
                  ROUNDS rounds in turn
  simulate [--events N] [--seed S]
                  the memory pool in lockstep with its model: 10 million events, or N, from seed 1,
                  or S
  release [x86_64] [aarch64]
                  wheels and archives of the program for Linux in target/artefacts, with licences,
                  lists of components and checksums, each tried without a compiler; AArch64's under
                  qemu, with Debian's Python
  release crates  packages of the libraries for a registry, checked as they are in the packages
  report          makes the reports of a demo, of a run with attention and of one with graphs, and a
                  comparison, and checks them in headless Chromium: texts, console, the order of the
                  Tab key, width; pictures go to target/report/
  sanitize [ARGS…]
                  tests of conversions and of hostile files under AddressSanitizer, HDF5's C included;
                  ARGS go to the test harness, such as a filter
  trampolines [--check]
                  writes crates/cuda-lazy/src/forward/functions.rs from the bindings in Cargo.lock,
                  or only compares
  peers [training | bf16 | gpu | loading | segment | graph-build | graph-cache | graph-attention |
         graph-training | amp] [-- ARGS]
                  megabatch beside PyTorch, PyTorch Geometric or h5py on the same work, interleaved
                  (installs PyTorch, 6 GB, under target/)
  peers weights [-- ARGS]
                  exported weights of every option in the PyTorch module of
                  docs/reference/weights.md: the same predictions (installs PyTorch under target/)
  peers tensorboard
                  event files of `train`, read by TensorBoard's own reader (installs it under
                  target/)
  peers onnx | onnx-oldest | onnx-speed [-- ARGS]
                  exported models in ONNX Runtime: the same predictions, in the newest version and
                  in 1.15.0, and their speed (installs them under target/)

Tools that a command needs besides Rust, a C and C++ compiler and Python are installed into a
virtual environment under target/.
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
        "arm" => arm::run(rest),
        "bench" => bench::run(rest),
        "peers" => bench::peers(rest),
        "experiment" => experiment::run(rest),
        "fuzz" => fuzz::run(rest),
        "gpu-check" => gpu_check::run(rest),
        "instructions" => instructions::run(rest),
        "kernels" => kernels::run(rest),
        "kill" => kill::run(rest),
        "python" => python::run(rest),
        "lines" => lines::run(rest),
        "mpi" => mpi::run(rest),
        "release" => release::run(rest),
        "report" => report::run(rest),
        "sanitize" => sanitize::run(rest),
        "simulate" => simulate::run(rest),
        "trampolines" => trampolines::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown command `{command}`\n\n{USAGE}"),
    }
}
