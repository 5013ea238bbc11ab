//! `megabatch graph`: builds, verifies and describes files of graphs.

mod build;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use megabatch_run::bench::{self, GraphOptions};
use megabatch_run::graph::{ExportFormat, ExportRequest, draw, dump, export, inspect, verify};
use megabatch_run::{CommandReport, Result};

use crate::answer::Answer;
use crate::commands::choice;

/// Build, verify, inspect, export and benchmark files of graphs
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
    Build(Box<build::BuildArgs>),
    Verify(VerifyArgs),
    Inspect(InspectArgs),
    Export(ExportArgs),
    Bench(BenchArgs),
}

/// Verify checksums and structure of a file of graphs
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch graph verify shares.mbg")]
struct VerifyArgs {
    /// The file of graphs
    file: PathBuf,
}

/// Describe a file of graphs; write or draw one of them
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph inspect shares.mbg
  megabatch graph inspect shares.mbg --dump 2021-04-21 day.safetensors
  megabatch graph inspect shares.mbg --svg 2021-04-21 day.svg")]
struct InspectArgs {
    /// The file of graphs
    file: PathBuf,
    /// Write the graph KEY to a safetensors file: edge_index [2, E] int64 (row 0: sources),
    /// edge_weight, and its other data
    #[arg(long, num_args = 2, value_names = ["KEY", "OUT"])]
    dump: Option<Vec<String>>,
    /// Draw the graph KEY as an SVG file
    #[arg(long, num_args = 2, value_names = ["KEY", "OUT"], conflicts_with = "dump")]
    svg: Option<Vec<String>>,
}

/// Write graphs for other programs, in formats that `graph build` reads
///
/// Graphs with content that a format cannot hold are refused, with a format that can. Graphs
/// imported from a format survive export to it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph export shares.mbg --format edge-index --out shares.safetensors
  megabatch graph export shares.mbg --key 2021-04-21 --format edge-list --out day/
  megabatch graph export mutag.mbg --format tu --out MUTAG/
  megabatch graph export gdb1k.mbg --key 1 --key 2 --format sdf --out two.sdf")]
struct ExportArgs {
    /// The file of graphs
    file: PathBuf,
    /// Format of the files
    #[arg(long, value_enum)]
    format: FormatArg,
    /// File, .safetensors or .sdf; for tu and edge-list the folder, created if missing
    #[arg(long)]
    out: PathBuf,
    /// Key of a graph to write; may be repeated [default: all graphs]
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
}

choice! {
    enum FormatArg => ExportFormat {
        /// A folder with a TU dataset of its name; without keys, node names and known times
        Tu => Tu,
        /// A folder with one graph, or the parts of a split, as edges.csv, features.csv and
        /// labels.csv or targets.csv
        EdgeList => EdgeList,
        /// Molecules in an SDF file, version V2000; nodes need their positions (`graph build --kind
        /// sdf --positions`)
        Sdf => Sdf,
        /// Tensors as in PyTorch Geometric, in a safetensors file; keeps everything
        EdgeIndex => EdgeIndex,
    }
}

/// Time a validation loop with graphs built in every batch, read from a file, or in memory
///
/// Each iteration passes one correlation graph of synthetic returns through graph attention,
/// forward.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph bench
  megabatch graph bench --nodes 500 --k 10 --graphs 64 --json")]
struct BenchArgs {
    /// Nodes of a graph
    #[arg(long, default_value_t = 256, value_parser = at_least_two)]
    nodes: usize,
    /// Neighbours of a node
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    k: usize,
    /// Returns in the look-back of a correlation
    #[arg(long, default_value_t = 60, value_parser = at_least_two)]
    window: usize,
    /// Graphs in the loop
    #[arg(long, default_value_t = 128, value_parser = at_least_one)]
    graphs: usize,
    /// Features of a node
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    features: usize,
    /// Layers of attention
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    layers: usize,
    /// Heads of a layer
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    heads: usize,
    /// Units of a head
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    hidden: usize,
    /// Graphs of a batch, forward and backward
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    batch: usize,
    /// Threads that build and that compute batches; the loop uses one
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    threads: usize,
    /// Also time a loop whose graphs this command builds (split at blanks). It reads N, W and k as
    /// u32 and the returns [N, W] as f32 from standard input, and writes the k neighbours of each
    /// node, [N, k] u32; all little-endian
    #[arg(long, value_name = "COMMAND")]
    rebuild_with: Option<String>,
    /// Repetitions of each loop; the fastest counts
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    repeats: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    at_least(1, text)
}

fn at_least_two(text: &str) -> Result<usize, String> {
    at_least(2, text)
}

fn at_least(least: usize, text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number >= least).ok_or_else(|| format!("expected {least} or more"))
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let report = match &args.what {
        What::Build(args) => args.build()?,
        What::Verify(VerifyArgs { file }) => verify(file)?,
        What::Inspect(args) => args.inspect()?,
        What::Export(args) => args.export()?,
        What::Bench(args) => bench::graph(&args.options())?,
    };
    Ok(report.into())
}

impl InspectArgs {
    fn inspect(&self) -> Result<CommandReport> {
        match (self.dump.as_deref(), self.svg.as_deref()) {
            (Some([key, out]), _) => dump(&self.file, key, Path::new(out)),
            (_, Some([key, out])) => draw(&self.file, key, Path::new(out)),
            _ => inspect(&self.file),
        }
    }
}

impl ExportArgs {
    fn export(&self) -> Result<CommandReport> {
        export(&ExportRequest {
            file: self.file.clone(),
            format: self.format.into(),
            out: self.out.clone(),
            keys: self.key.clone(),
        })
    }
}

impl BenchArgs {
    fn options(&self) -> GraphOptions {
        GraphOptions {
            nodes: self.nodes,
            k: self.k,
            window: self.window,
            graphs: self.graphs,
            features: self.features,
            layers: self.layers,
            heads: self.heads,
            hidden: self.hidden,
            batch: self.batch,
            threads: self.threads,
            rebuild_with: self.rebuild_with.clone(),
            repeats: self.repeats,
        }
    }
}
