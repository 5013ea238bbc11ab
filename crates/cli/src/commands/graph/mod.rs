//! `megabatch graph`: graphs are built once, kept in a file, and looked at.

mod bench;
mod build;
mod building;
mod cached;
mod export;
mod inspect;
mod options;
mod points;
mod shares;
mod sizes;
mod source;
mod stored;
mod verify;

use anyhow::Result;
use clap::Subcommand;

use crate::answer::Answer;

/// Build graphs once into a file, check it, look into it, write it for others, and measure what
/// reading it costs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph build shares/ --kind correlation --lookback 60 --k 10 --out shares.mbg
  megabatch graph build shares/ --kind correlation --lookback 60 --k 10 --cache graphs/ --limit 2GiB
  megabatch graph inspect shares.mbg --dump 2021-04-21 day.safetensors
  megabatch graph inspect shares.mbg --svg 2021-04-21 day.svg
  megabatch graph export shares.mbg --key 2021-04-21 --format edge-list --out day/
  megabatch graph verify shares.mbg
  megabatch graph bench")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Build(Box<build::Args>),
    Verify(verify::Args),
    Inspect(inspect::Args),
    Export(export::Args),
    Bench(bench::Args),
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match &args.what {
        What::Build(args) => build::run(args),
        What::Verify(args) => verify::run(args),
        What::Inspect(args) => inspect::run(args),
        What::Export(args) => export::run(args),
        What::Bench(args) => bench::run(args),
    }
}

/// `1 graph`, `2 graphs`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A note where `k` neighbours are all other nodes.
fn note_on_k(k: usize, nodes: usize, what: &str) -> String {
    match k < nodes {
        true => String::new(),
        false => format!("note: --k {k} makes neighbours of all {}\n", counted(nodes, what)),
    }
}
