//! `megabatch memory`: what allocators make of a program's requests.

mod replay;
mod size;
mod table;
mod trace;

use anyhow::Result;
use clap::Subcommand;

use crate::answer::Answer;

/// Replay recorded allocations on megabatch's memory pool and on models of PyTorch's allocator
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch memory trace field-case trace.jsonl
  megabatch memory replay trace.jsonl --capacity 44.18GiB --policy all")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Replay(replay::Args),
    Trace(trace::Args),
    Table(table::Args),
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match &args.what {
        What::Replay(args) => replay::run(args),
        What::Trace(args) => trace::run(args),
        What::Table(args) => table::run(args),
    }
}
