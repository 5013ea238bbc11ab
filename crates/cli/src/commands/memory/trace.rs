//! `megabatch memory trace`: writes a trace of the corpus.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};
use megabatch_gpu_core::replay::corpus::{PATTERNS, pattern};
use megabatch_gpu_core::replay::write;
use megabatch_trainer::write_atomically;
use serde_json::json;

use super::replay::gib;
use crate::answer::{Answer, shown};
use crate::output;

/// Write a trace of a pattern that fragments memory; the same seed gives the same trace
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch memory trace growing-sequences trace.jsonl --seed 3")]
pub(super) struct Args {
    /// The pattern
    #[arg(value_parser = names())]
    name: String,
    /// The file to write, one JSON object a line
    out: PathBuf,
    /// Seed of what the pattern leaves to chance
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn names() -> PossibleValuesParser {
    PATTERNS.iter().map(|pattern| PossibleValue::new(pattern.name).help(pattern.about)).into()
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    output::check(&args.out, &[])?;
    let pattern = pattern(&args.name).expect("the parser lets names of patterns through");
    let events = pattern.events(args.seed);
    let mut text = Vec::new();
    for event in &events {
        write(&mut text, event)?;
    }
    write_atomically(&args.out, &text)?;
    let said = format!(
        "{}: {} events; {} (made for a device of {})",
        args.out.display(),
        events.len(),
        pattern.about,
        gib(pattern.capacity_bytes)
    );
    let json = json!({
        "out": shown(&args.out),
        "events": events.len(),
        "capacity_bytes": pattern.capacity_bytes,
        "max_split_bytes": pattern.max_split_bytes,
    });
    Ok(Answer::new(said, &json))
}
