//! The gates of `cargo xtask test`, cheapest first.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::limits::succeed;
use crate::session::{Depth, Session};
use crate::sources::{hash_of, stamp_of_file};
use crate::workspace::cargo;
use crate::{alone, demo, gpu_check, layers, limits, python, skipped, tests_gate, trampolines};

/// One check of the whole workspace.
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    pub(crate) checks: &'static str,
    pub(crate) run: fn(&Session) -> Result<()>,
}

pub(crate) const GATES: &[Gate] = &[
    Gate { name: "format", checks: "sources are formatted", run: format },
    Gate { name: "layers", checks: "crates depend only on those below them", run: layers },
    Gate { name: "trampolines", checks: "cuda-lazy supplies what its bindings declare", run: trampolines },
    Gate { name: "clippy", checks: "no warning in any target", run: clippy },
    Gate { name: "alone", checks: "each library builds alone, gpu-core builds without CUDA", run: each_library_alone },
    Gate { name: "fuzz", checks: "fuzz targets compile", run: fuzz_targets_compile },
    Gate { name: "tests", checks: "unit, property, golden and documentation tests", run: tests_gate::run },
    Gate { name: "python", checks: "tests and types of the Python module", run: python::gate },
    Gate { name: "gpu-rehearsal", checks: "a GPU campaign runs on a fake driver", run: gpu_check::rehearsal },
    Gate { name: "docs", checks: "documentation builds without a warning", run: docs },
    Gate { name: "system-libs", checks: "the program needs libc, libm and libgcc only", run: system_libraries },
    Gate { name: "demo", checks: "the main job runs end to end", run: demo_runs },
];

fn format(session: &Session) -> Result<()> {
    succeed(&mut cargo(&session.workspace.root, &["fmt", "--all", "--check"]))
}

fn layers(session: &Session) -> Result<()> {
    layers::check(&session.workspace)
}

fn trampolines(session: &Session) -> Result<()> {
    trampolines::check(&session.workspace)
}

fn clippy(session: &Session) -> Result<()> {
    succeed(&mut session.cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"])?)
}

/// Each library by itself, and gpu-core without the feature that the program enables.
fn each_library_alone(session: &Session) -> Result<()> {
    alone::each_library(session)?;
    let workspace = &session.workspace;
    let name = "megabatch-gpu-core";
    let package = workspace.packages.iter().find(|package| package.name == name).context("gpu-core is a member")?;
    let with_tests =
        workspace.packages.iter().filter(|package| package.name.contains("-simt") || package.name.contains("-test-"));
    let mut keys = vec![session.sources.package_key(workspace, package)];
    keys.extend(with_tests.map(|package| session.sources.package_key(workspace, package)));
    keys.push(u64::from(session.depth == Depth::Thorough));
    session.passed.unless_unchanged("gpu-core without CUDA", hash_of(&keys), || without_cuda(session))
}

/// The program enables the feature `cuda` in the whole workspace, so its crate is also compiled
/// without it, and tested where time is no matter: its packages are compiled once more for that.
fn without_cuda(session: &Session) -> Result<()> {
    let package = ["--package", "megabatch-gpu-core"];
    let clippy = ["clippy", "--locked", "--all-targets"];
    succeed(session.cargo(&clippy)?.args(package).args(["--", "--deny", "warnings"]))?;
    if session.depth == Depth::Usual {
        return Ok(());
    }
    let mut test = session.cargo(&["test", "--locked", "--lib"])?;
    tests_gate::with_cases(&mut test, session.depth);
    succeed(test.args(package).env(skipped::RECORD, skipped::path(&session.workspace)))
}

/// The targets are a workspace of their own, whose members no other gate compiles.
fn fuzz_targets_compile(session: &Session) -> Result<()> {
    session.passed.unless_unchanged("fuzz targets", session.sources.fuzz_targets_key(), || {
        let mut check = session.cargo(&["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"])?;
        // Packages of others that the gates before have compiled are taken as they are.
        succeed(check.arg("--target-dir").arg(&session.workspace.target_dir))
    })
}

fn docs(session: &Session) -> Result<()> {
    session.passed.unless_unchanged("docs", session.sources.crates_key(), || {
        let mut doc = session.cargo(&["doc", "--workspace", "--no-deps", "--locked"])?;
        succeed(doc.env("RUSTDOCFLAGS", "--deny warnings"))
    })
}

/// HDF5, zlib and lzf are linked statically; a binary that asks for one of them at run time would
/// fail on another machine.
fn system_libraries(session: &Session) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("skipped: the list of allowed libraries is Linux's");
        return Ok(());
    }
    demo::build_for_tests(&session.workspace)?;
    let output = limits::output(Command::new("ldd").arg(session.workspace.binary())).context("ldd is needed")?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let allowed = ["linux-vdso", "ld-linux", "libc.so", "libm.so", "libgcc_s.so"];
    let strangers: Vec<&str> =
        listing.lines().filter(|line| !allowed.iter().any(|library| line.contains(library))).collect();
    if !strangers.is_empty() {
        bail!("the program needs system libraries that a user may lack:\n{}", strangers.join("\n"));
    }
    Ok(())
}

fn demo_runs(session: &Session) -> Result<()> {
    demo::build_for_tests(&session.workspace)?;
    let key = stamp_of_file(&session.workspace.binary())?;
    session.passed.unless_unchanged("demo", key, || {
        let out = session.workspace.target_dir.join("demo-gate");
        succeed(demo::program(&session.workspace).arg("--out").arg(out).arg("--force"))
    })
}
