//! `megabatch memory`: what allocators make of a program's requests, and what the memory of a run
//! looked like.

mod replay;
pub(super) mod size;
mod snapshot;
mod table;
mod trace;

use anyhow::Result;
use clap::Subcommand;

use crate::answer::Answer;

/// Look into the memory of a run, or replay recorded allocations on megabatch's pool and on models
/// of PyTorch's allocator
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch memory snapshot runs/first
  megabatch memory trace field-case trace.jsonl
  megabatch memory replay trace.jsonl --capacity 44.18GiB --policy all")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Snapshot(snapshot::Args),
    Replay(replay::Args),
    Trace(trace::Args),
    Table(table::Args),
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match &args.what {
        What::Snapshot(args) => snapshot::run(args),
        What::Replay(args) => replay::run(args),
        What::Trace(args) => trace::run(args),
        What::Table(args) => table::run(args),
    }
}
