//! The gates of `cargo xtask test`, cheapest first.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, cargo, succeed};
use crate::{demo, layers, skipped, tools, trampolines};

/// One check of the whole workspace.
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    pub(crate) checks: &'static str,
    pub(crate) run: fn(&Workspace) -> Result<()>,
}

pub(crate) const GATES: &[Gate] = &[
    Gate { name: "format", checks: "sources are formatted", run: format },
    Gate { name: "layers", checks: "crates depend only on those below them", run: layers::check },
    Gate { name: "trampolines", checks: "cuda-lazy supplies what its bindings declare", run: trampolines::check },
    Gate { name: "clippy", checks: "no warning in any target", run: clippy },
    Gate { name: "alone", checks: "each library builds alone, gpu-core passes without CUDA", run: each_library_alone },
    Gate { name: "tests", checks: "unit, property, golden and documentation tests", run: tests },
    Gate { name: "docs", checks: "documentation builds without a warning", run: docs },
    Gate { name: "system-libs", checks: "the program needs libc, libm and libgcc only", run: system_libraries },
    Gate { name: "demo", checks: "the main job runs end to end", run: demo_runs },
];

fn format(workspace: &Workspace) -> Result<()> {
    succeed(&mut cargo(&workspace.root, &["fmt", "--all", "--check"]))
}

fn clippy(workspace: &Workspace) -> Result<()> {
    let args = ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
    succeed(tools::with_cmake(&mut cargo(&workspace.root, &args), workspace)?)
}

/// A workspace build unifies features, and so hides one that a library forgot to ask for.
fn each_library_alone(workspace: &Workspace) -> Result<()> {
    for library in workspace.packages.iter().filter(|package| package.is_published_library) {
        let mut check = cargo(&workspace.root, &["check", "--locked", "--package", &library.name]);
        succeed(tools::with_cmake(&mut check, workspace)?)?;
    }
    without_cuda(workspace)
}

/// The program turns the feature `cuda` on, and with it the rest of the workspace's run: the crate that has it is tested without it too.
fn without_cuda(workspace: &Workspace) -> Result<()> {
    let package = ["--package", "megabatch-gpu-core"];
    let clippy = ["clippy", "--locked", "--all-targets"];
    succeed(cargo(&workspace.root, &clippy).args(package).args(["--", "--deny", "warnings"]))?;
    let mut test = cargo(&workspace.root, &["test", "--locked", "--lib"]);
    succeed(test.args(package).env(skipped::RECORD, skipped::path(workspace)))
}

/// Integration tests that use the fake driver, of which a process has one: test after test, on one processor.
const ON_FAKE_DRIVER: [&str; 2] = ["cuda", "gpu"];

fn tests(workspace: &Workspace) -> Result<()> {
    let python = tools::python_for_tests(workspace)?;
    let test = |arguments: &[&str]| -> Result<Command> {
        let mut test = cargo(&workspace.root, &["test", "--workspace", "--locked"]);
        test.args(arguments).env("MEGABATCH_PYTHON", &python);
        test.env(skipped::RECORD, skipped::path(workspace));
        // The same cases in every run: a gate answers for the change at hand. `cargo test` draws others each time, and finds the rare one.
        test.env("PROPTEST_RNG_SEED", "1");
        tools::with_cmake(&mut test, workspace)?;
        Ok(test)
    };
    succeed(&mut test(&["--no-run"])?)?;
    let names: BTreeSet<&str> =
        workspace.packages.iter().flat_map(|package| &package.tests).map(String::as_str).collect();
    let (mut beside, mut rest) = (test(&[])?, test(&["--lib", "--bins"])?);
    for name in names {
        let part = if ON_FAKE_DRIVER.contains(&name) { &mut beside } else { &mut rest };
        part.args(["--test", name]);
    }
    let output = thread::scope(|scope| {
        let beside = scope.spawn(|| beside.output());
        succeed(&mut rest)?;
        succeed(&mut test(&["--doc"])?)?;
        beside.join().expect("a command that is waited for does not panic").context("cannot start cargo")
    })?;
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { bail!("tests on the fake driver ended with {}", output.status) }
}

fn docs(workspace: &Workspace) -> Result<()> {
    let mut doc = cargo(&workspace.root, &["doc", "--workspace", "--no-deps", "--locked"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    succeed(tools::with_cmake(&mut doc, workspace)?)
}

/// HDF5, zlib and lzf are linked statically; a binary that asks for one of them at run time would fail on another machine.
fn system_libraries(workspace: &Workspace) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("skipped: the list of allowed libraries is Linux's");
        return Ok(());
    }
    demo::build(workspace)?;
    let output = Command::new("ldd").arg(workspace.binary()).output().context("ldd is needed")?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let allowed = ["linux-vdso", "ld-linux", "libc.so", "libm.so", "libgcc_s.so"];
    let strangers: Vec<&str> =
        listing.lines().filter(|line| !allowed.iter().any(|library| line.contains(library))).collect();
    if !strangers.is_empty() {
        bail!("the program needs system libraries that a user may lack:\n{}", strangers.join("\n"));
    }
    Ok(())
}

fn demo_runs(workspace: &Workspace) -> Result<()> {
    let out = workspace.target_dir.join("demo-gate");
    demo::run(&["--out".to_owned(), out.display().to_string(), "--force".to_owned()])
}
