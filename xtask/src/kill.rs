//! `cargo xtask kill`: training and ingest killed with SIGKILL at random moments, many more times
//! than an ordinary test has time for.
//!
//! It runs the program's own test, which documents the comparison, with more runs, and keeps the
//! result.

use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::tools;
use crate::workspace::{Workspace, cargo};

const RUNS_DEFAULT: &str = "100";
/// Training in fp32, in fp16, where the loss scale must resume too, and on a streamed series;
/// ingest and append.
const TESTS: &str = "killed::";
/// Start of a test's line on its result.
const RESULT: &str = "killed: ";

/// `kill [RUNS]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let runs = args.first().map_or(RUNS_DEFAULT, String::as_str);
    runs.parse::<u32>().with_context(|| format!("`{runs}` is no number of runs"))?;
    let workspace = Workspace::load()?;
    let mut test = cargo(&workspace.root, &["test", "--package", "megabatch", "--test", "cli", "--"]);
    test.args([TESTS, "--nocapture", "--test-threads=1"]).env("MEGABATCH_KILLED_RUNS", runs).stderr(Stdio::inherit());
    println!("xtask: killing {runs} runs; this takes a few seconds each");
    let output = tools::with_cmake(&mut test, &workspace)?.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let results: Vec<&str> = text.lines().filter_map(|line| Some(&line[line.find(RESULT)?..])).collect();
    if results.is_empty() || !output.status.success() {
        bail!("a run did not end as it should have:\n{text}");
    }
    let result = results.join("\n");
    let file = workspace.target_dir.join("kill.txt");
    std::fs::write(&file, format!("{result}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{result}\nxtask: written to {}; docs/measurements/resume.md has a place for it", file.display());
    Ok(())
}
