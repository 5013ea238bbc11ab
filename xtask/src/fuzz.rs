//! Fuzzing of every parser: of text, of HDF5's stored chunks, and of files of graphs.
//!
//! The targets are the workspace in `fuzz/`, built by cargo-fuzz with AddressSanitizer. That asks
//! for a nightly compiler or for `RUSTC_BOOTSTRAP=1`, which makes the stable one accept it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::limits::{succeed, succeed_without_limit};
use crate::workspace::{Workspace, cargo};

const SECONDS_DEFAULT: u64 = 60;

/// Limits of a good parser on inputs of at most [`INPUT_BYTES_MAX`]: an input that takes longer or
/// more is a finding. Leaks are not checked: that needs ptrace, which containers forbid, and safe
/// Rust seldom leaks.
const LIMITS: [&str; 5] =
    ["-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-print_final_stats=1", "-detect_leaks=0"];
const INPUT_BYTES_MAX: u64 = 16 << 10;

/// `fuzz [--seconds N] [TARGET…]`: N seconds of each target, one after the other, or of those
/// named.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (seconds, named) = match args {
        [flag, seconds, named @ ..] if flag == "--seconds" => {
            (seconds.parse().context("--seconds takes a number")?, named)
        }
        named => (SECONDS_DEFAULT, named),
    };
    let workspace = Workspace::load()?;
    let all = targets(&workspace)?;
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("there is no fuzz target `{unknown}`; there are {}", all.join(", "));
    }
    let cargo_fuzz = cargo_fuzz(&workspace)?;
    for target in if named.is_empty() { &all } else { named } {
        println!("xtask: fuzzing {target} for {seconds} s");
        fuzz(&workspace, &cargo_fuzz, target, seconds)?;
    }
    Ok(())
}

/// The targets by name: a file each.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let files = std::fs::read_dir(workspace.root.join("fuzz/fuzz_targets"))?;
    let mut names = Vec::new();
    for file in files {
        names.extend(file?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// cargo-fuzz, installed under target/ where it is not there yet.
fn cargo_fuzz(workspace: &Workspace) -> Result<PathBuf> {
    let root = workspace.target_dir.join("tools/cargo-fuzz");
    let program = root.join("bin/cargo-fuzz");
    if !program.exists() {
        let mut install = cargo(&workspace.root, &["install", "cargo-fuzz", "--locked", "--root"]);
        succeed(install.arg(&root)).context("cargo-fuzz could not be installed")?;
    }
    Ok(program)
}

fn fuzz(workspace: &Workspace, cargo_fuzz: &Path, target: &str, seconds: u64) -> Result<()> {
    let found = workspace.target_dir.join("fuzz-corpus").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut run = Command::new(cargo_fuzz);
    run.current_dir(workspace.root.join("fuzz")).env("RUSTC_BOOTSTRAP", "1");
    run.args(["fuzz", "run", "--fuzz-dir", ".", "--target-dir"]).arg(workspace.target_dir.join("fuzz"));
    // What the fuzzer finds goes into the first folder; the others are read.
    run.arg(target).arg(&found).args(seeds(workspace, target)).arg("--");
    run.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={INPUT_BYTES_MAX}")).args(LIMITS);
    if !is_no_bar_format(target) {
        run.arg(format!("-dict={}", workspace.root.join("fuzz/bars.dict").display()));
    }
    succeed_without_limit(&mut run)
}

/// True if a target, or a folder of its seeds, is of stored chunks or of graphs, and not of bars.
fn is_no_bar_format(name: &str) -> bool {
    name.starts_with("chunk_") || name.starts_with("graph_")
}

/// Folders of inputs to begin with: those of the target, or of every format of bars where it takes
/// any.
fn seeds(workspace: &Workspace, target: &str) -> Vec<PathBuf> {
    let seeds = workspace.root.join("fuzz/seeds");
    let own = seeds.join(target);
    if own.is_dir() {
        return vec![own];
    }
    let folders = std::fs::read_dir(seeds).into_iter().flatten().flatten();
    let bar_folders = folders.filter(|folder| !folder.file_name().to_str().is_some_and(is_no_bar_format));
    bar_folders.map(|folder| folder.path()).filter(|path| path.is_dir()).collect()
}
