//! `megabatch graph build`: graphs of files, built where they are not there yet.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use megabatch_graph_cache::build::Rewired;
use megabatch_graph_cache::{
    BuildOptions, Builder, CollectionChange, Error, FloatWidth, GraphFile, IndexWidth, Stale, Widths, build_cached,
};
use serde_json::{Value, json};

use super::building::{Wrote, describe_graphs, facts, with_progress};
use super::cached;
use super::options::{Kind, Options};
use super::source::{Source, with_source};
use crate::answer::Answer;
use crate::commands::memory::size::ByteSize;
use crate::output;

/// Build graphs into a file, unless it holds them already
///
/// The file knows what it was built from, by what and how. Where none of it has changed, nothing is
/// done; where something has, the answer says what, and the file is replaced. Building that was
/// interrupted goes on where it stopped.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph build shares/ --kind correlation --lookback 60 --k 10 --out shares.mbg
  megabatch graph build shares/ --kind correlation --lookback 60 --k 10 --rewire 1 --out random.mbg
  megabatch graph build cora/ --kind edge-list --normalize-features --out cora.mbg
  megabatch graph build MUTAG/ --kind tu --out mutag.mbg
  megabatch graph build gdb1k.sdf.gz --kind sdf --targets gdb1k.sdf.csv.gz --out gdb1k.mbg
  megabatch graph build atoms.csv --kind radius --radius 3.5 --periodic 10,10,10 --out atoms.mbg
  megabatch graph build shares/ --kind correlation --lookback 90 --k 5 --cache graphs/ --limit 2GiB")]
pub(super) struct Args {
    /// Files or folders, as the kind says
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// What the graphs are built from, and how
    #[arg(long, value_enum)]
    pub(super) kind: Kind,
    /// The file of graphs
    #[arg(long, required_unless_present = "cache")]
    out: Option<PathBuf>,
    /// Instead of --out: a folder that has files of any number of builds, each named by a hash of
    /// what it is of; the answer says which
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    cache: Option<PathBuf>,
    /// What the files of the folder may take together, such as 2GiB: those go whose use is longest
    /// ago [default: no limit]
    #[arg(long, value_name = "BYTES", requires = "cache", conflicts_with = "out")]
    pub(super) limit: Option<ByteSize>,
    #[command(flatten)]
    options: Options,
    /// Keep how many neighbours a node has and draw them by chance, from this seed: what the graphs
    /// have to be better than
    #[arg(long, value_name = "SEED")]
    rewire: Option<u64>,
    /// What weights and attributes of edges are stored in
    #[arg(long, value_enum, default_value_t = FloatArg::F32)]
    edge_width: FloatArg,
    /// What features of nodes are stored in
    #[arg(long, value_enum, default_value_t = FloatArg::F32)]
    feature_width: FloatArg,
    /// What indices are stored in
    #[arg(long, value_enum, default_value_t = IndexArg::U32)]
    index_width: IndexArg,
    /// Threads that build [default: as many as there are CPUs]
    #[arg(long)]
    threads: Option<std::num::NonZero<usize>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FloatArg {
    F32,
    F16,
}

#[derive(Clone, Copy, ValueEnum)]
enum IndexArg {
    U32,
    U64,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let place = match (&args.out, &args.cache) {
        (Some(out), _) => Place::File(out),
        (None, Some(folder)) => Place::Cache(folder),
        (None, None) => unreachable!("one of the two is required"),
    };
    place.check(&args.inputs)?;
    with_source(args.kind, &args.inputs, &args.options, &mut |source| match args.rewire {
        None => build(args, place, source),
        Some(seed) => {
            let Source { builder, found, facts } = source;
            build(args, place, Source { builder: &Rewired::new(builder, seed), found, facts })
        }
    })
}

/// Place of the graphs.
#[derive(Clone, Copy)]
enum Place<'a> {
    File(&'a Path),
    /// In a folder, under the hash of what they are of.
    Cache(&'a Path),
}

impl Place<'_> {
    fn check(self, inputs: &[PathBuf]) -> Result<()> {
        match self {
            Place::File(out) => {
                output::require_ending(out, &["mbg"])?;
                output::check(out, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())
            }
            Place::Cache(folder) => output::check_folder(folder),
        }
    }
}

fn build(args: &Args, place: Place<'_>, source: Source<'_>) -> Result<Answer> {
    match place {
        Place::File(out) => build_file(args, out, source),
        Place::Cache(folder) => cached::build(args, folder, source),
    }
}

fn build_file(args: &Args, out: &Path, source: Source<'_>) -> Result<Answer> {
    let start = Instant::now();
    let changes = changes(out, source.builder)?;
    let (file, wrote) = with_progress(args, source.builder, &mut |options, progress| {
        build_cached(out, source.builder, options, progress)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let state = match (wrote, &changes) {
        (Wrote::Nothing, _) => State::Unchanged,
        (Wrote::Graphs { .. }, Some(changes)) if !changes.is_empty() => State::Replaced,
        (Wrote::Graphs { .. }, _) => State::Built,
    };
    let changes = changes.unwrap_or_default();
    let text = source.found + &describe(&file, state, &changes, wrote, seconds);
    let mut json = facts(&file, wrote, args.kind, seconds);
    json["state"] = state.name().into();
    json["changes"] = changes
        .iter()
        .map(|CollectionChange { what, old, new, .. }| json!({ "what": what, "old": old, "new": new }))
        .collect();
    json["found"] = source.facts;
    Ok(Answer::new(text, &json))
}

/// Outcome for the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It holds the graphs already.
    Unchanged,
    Built,
    /// It held others.
    Replaced,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Unchanged => "unchanged",
            State::Built => "built",
            State::Replaced => "replaced",
        }
    }
}

/// In what the file at `path` is not of what `builder` builds from; `None` where there is no file
/// that could tell.
fn changes(path: &Path, builder: &dyn Builder) -> Result<Option<Vec<CollectionChange>>> {
    let Ok(file) = GraphFile::open(path) else { return Ok(None) };
    match file.check_fresh(builder) {
        Ok(()) => Ok(Some(Vec::new())),
        Err(Error::Stale { changes, .. }) => Ok(Some(changes)),
        Err(error) => Err(error.into()),
    }
}

impl Args {
    pub(super) fn build_options(&self) -> BuildOptions {
        let float = |arg| match arg {
            FloatArg::F32 => FloatWidth::F32,
            FloatArg::F16 => FloatWidth::F16,
        };
        let indices = match self.index_width {
            IndexArg::U32 => IndexWidth::U32,
            IndexArg::U64 => IndexWidth::U64,
        };
        let widths = Widths { indices, edges: float(self.edge_width), features: float(self.feature_width) };
        BuildOptions { threads: self.threads, widths, stale: Stale::Replace }
    }
}

fn describe(file: &GraphFile, state: State, changes: &[CollectionChange], wrote: Wrote, seconds: f64) -> String {
    let how = match state {
        State::Unchanged => "it was built from the same, in the same way: nothing to do".to_owned(),
        State::Built => wrote.describe(seconds),
        State::Replaced => {
            let said: Vec<String> =
                changes.iter().flat_map(|change| said(change.what, &change.old, &change.new)).collect();
            format!("{}; it held others: {}", wrote.describe(seconds), said.join(", "))
        }
    };
    describe_graphs(file, &how)
}

/// Changes in words: of parameters, each that has changed.
fn said(what: &str, old: &str, new: &str) -> Vec<String> {
    let object = |text: &str| serde_json::from_str(text).ok().filter(Value::is_object);
    let (Some(old_values), Some(new_values)) = (object(old), object(new)) else {
        return vec![match what {
            "data" => "data have changed".to_owned(),
            what => format!("{what} was {old:.80}, is {new:.80}"),
        }];
    };
    let empty = serde_json::Map::new();
    let names = new_values.as_object().unwrap_or(&empty).keys();
    let differ = names.filter(|name| old_values[name.as_str()] != new_values[name.as_str()]);
    let was = |name: &str| match &old_values[name] {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    };
    differ.map(|name| format!("{name} was {}, is {}", was(name), new_values[name.as_str()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_have_changed_are_named() {
        let cases = [
            ("parameters", r#"{"k":10,"lookback":60}"#, r#"{"k":5,"lookback":60}"#, vec!["k was 10, is 5"]),
            ("parameters", r#"{"k":10}"#, r#"{"k":10,"demean":true}"#, vec!["demean was not set, is true"]),
            ("builder", "tu/1", "tu/2", vec!["builder was tu/1, is tu/2"]),
            ("data", "a", "b", vec!["data have changed"]),
        ];
        for (what, old, new, expected) in cases {
            assert_eq!(said(what, old, new), expected);
        }
    }
}
