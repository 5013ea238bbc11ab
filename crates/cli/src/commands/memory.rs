//! `megabatch memory`: what allocators make of a program's requests, and what the memory of a run
//! looked like.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser};
use megabatch_run::memory::{
    PatternName, Policies, ReplayOptions, SnapshotOptions, Trace, patterns, replay, snapshot, table, trace,
};
use megabatch_run::text::ByteSize;
use megabatch_run::{CommandReport, Error, Result};

use crate::answer::Answer;

/// Show the memory of a run, or replay allocations on megabatch's pool and models of PyTorch's
/// allocator
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
    Snapshot(SnapshotArgs),
    Replay(ReplayArgs),
    Trace(TraceArgs),
    Table(TableArgs),
}

/// Show a memory snapshot: holders, free memory and fragmentation
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch memory snapshot runs/first
  megabatch memory snapshot runs/first/oom-1.json --svg map.svg
  megabatch memory snapshot runs/first --pickle memory.pickle   # open it on https://pytorch.org/memory_viz")]
struct SnapshotArgs {
    /// A snapshot (memory.json or oom-N.json), or the folder of a run for the latest in it
    snapshot: PathBuf,
    /// Write it for PyTorch's memory viewer
    #[arg(long, value_name = "OUT")]
    pickle: Option<PathBuf>,
    /// Write the memory map as a picture
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
}

/// Play a trace of allocations on megabatch's pool or on a model of PyTorch's allocator
///
/// A trace has one JSON object a line: {"op":"alloc","id":7,"bytes":1048576,"stream":0},
/// {"op":"free","id":7} or {"op":"step"}. The first refused request ends the replay; this is a
/// result, not an error.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch memory replay trace.jsonl --capacity 44.18GiB --policy megabatch
  megabatch memory replay trace.jsonl --capacity 16GiB --policy all --json
  megabatch memory replay - --capacity 80GiB --policy pytorch-expandable --max-split-size 128MiB < trace.jsonl")]
struct ReplayArgs {
    /// The trace, one event a line; - for standard input
    trace: PathBuf,
    /// Memory of the device: bytes, or a number with a unit such as 44.18GiB
    #[arg(long)]
    capacity: ByteSize,
    /// megabatch, pytorch, pytorch-expandable, several of them with commas, or all
    #[arg(long, default_value = "megabatch")]
    policy: Policies,
    /// PyTorch's max_split_size: blocks of this size or more are not split
    #[arg(long)]
    max_split_size: Option<ByteSize>,
}

/// Write a trace of a pattern that fragments memory; the same seed gives the same trace
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch memory trace growing-sequences trace.jsonl --seed 3")]
struct TraceArgs {
    /// The pattern
    #[arg(value_parser = names())]
    name: String,
    /// The file to write, one JSON object a line
    out: PathBuf,
    /// Seed of the random parts of the pattern
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn names() -> PossibleValuesParser {
    patterns().map(|PatternName { name, about }| PossibleValue::new(name).help(about)).collect::<Vec<_>>().into()
}

/// Print peak memory held ÷ peak memory requested, for every pattern and policy
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch memory table > table.md")]
struct TableArgs {
    /// Seed of the random parts of patterns
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let report = match &args.what {
        What::Snapshot(SnapshotArgs { snapshot: path, pickle, svg }) => {
            snapshot(path, &SnapshotOptions { pickle: pickle.clone(), svg: svg.clone() })?
        }
        What::Replay(args) => replay_trace(args)?,
        What::Trace(TraceArgs { name, out, seed }) => trace(name, out, *seed)?,
        What::Table(TableArgs { seed }) => table(*seed),
    };
    Ok(report.into())
}

fn replay_trace(args: &ReplayArgs) -> Result<CommandReport> {
    let trace = match args.trace == Path::new("-") {
        false => Trace::File(args.trace.clone()),
        true => {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|error| Error::data(format!("standard input: {error}")))?;
            Trace::Text { name: "standard input".to_owned(), text }
        }
    };
    let options =
        ReplayOptions { capacity: args.capacity, policies: args.policy.clone(), max_split_size: args.max_split_size };
    replay(&trace, &options)
}
