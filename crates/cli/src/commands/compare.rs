//! `megabatch compare`: several runs side by side.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_trainer::write_atomically;
use serde_json::json;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::output;
use crate::report::comparison::Comparison;

/// Put several runs side by side: in what they differ, and what came of each
///
/// Settings that differ, best validation loss, errors beside baselines, speed and time by phase,
/// peaks of memory; with --out, also the learning curves, on one page that needs nothing else. Runs
/// that have not ended are shown as far as they got, and runs on other samples are told apart.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch compare runs/first runs/second
  megabatch compare runs/* --out compare.html
  megabatch compare runs/first runs/second --json")]
pub(crate) struct Args {
    /// Folders of two runs or more
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,
    /// Write a page with all of it and the learning curves
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    if args.runs.len() < 2 {
        return Err(Failure::usage("compare needs two runs or more; `megabatch monitor RUN` shows one"));
    }
    if let Some(out) = &args.out {
        output::require_ending(out, &["html"])?;
        output::check(out, &[])?;
    }
    let comparison = Comparison::open(&args.runs)?;
    let (mut text, mut json) = (comparison.to_text(), comparison.to_json());
    if let Some(out) = &args.out {
        write_atomically(out, comparison.to_html().as_bytes())?;
        text.push_str(&format!("\npage: {}", out.display()));
        json["page"] = json!(out);
    }
    Ok(Answer::new(text, &json))
}
