//! `megabatch bench`: measurements of this machine.

use std::path::PathBuf;

use clap::Subcommand;
use megabatch_run::Result;
use megabatch_run::bench::{
    FollowOptions, GraphSize, LoadOptions, ModelKind, Precision, PredictOptions, SampleOrder, TrainOptions, Work,
    follow, load, predict, train,
};

use super::trained::weights;
use crate::answer::Answer;
use crate::commands::choice;
use crate::host::host;

/// Measure the speed of this machine
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch bench train --model multi --batch 64 --features 128 --hidden 128 --threads 2
  megabatch bench load windows.h5 --batch 128 --shuffled")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Train(TrainArgs),
    Predict(PredictArgs),
    Load(LoadArgs),
    Follow(FollowArgs),
}

/// Time training steps on synthetic data: forward, loss, backward, clipping, Adam
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch bench train --model single --batch 128 --features 167 --shuffled
  megabatch bench train --batch 2048 --precision bf16 --device cuda:0 --steps 100
  megabatch bench train --graph-nodes 504 --batch 1 --features 32 --hidden 64")]
struct TrainArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Timed steps, after one untimed step, or on a GPU after a second of them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Samples in random order instead of consecutive ones
    #[arg(long)]
    shuffled: bool,
    /// Round the inputs of fp32 products to TF32 on a GPU
    #[arg(long)]
    tf32: bool,
    /// Recompute half of the gates in the backward pass instead of keeping them
    #[arg(long)]
    gradient_checkpointing: bool,
    /// Train two layers of graph attention, four heads of --hidden units each, over --batch graphs
    /// of this many nodes, in place of --model
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(2..), conflicts_with = "shuffled")]
    graph_nodes: Option<u32>,
    /// Edges to each node of a graph
    #[arg(long, value_name = "EDGES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..), requires = "graph_nodes")]
    graph_neighbours: u32,
    /// cpu, auto, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
}

/// Time predictions on synthetic data
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch bench predict --model single --batch 1 --features 167 --threads 1
  megabatch bench predict --model single --batch 128 --shuffled --precision bf16")]
struct PredictArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Timed batches, after one untimed batch
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Compute with the LSTM's weights in eight bits
    #[arg(long, conflicts_with = "precision")]
    int8: bool,
    /// Samples that lie far apart instead of consecutive ones
    #[arg(long)]
    shuffled: bool,
}

/// Time the loading of every sample of a file in batches, opening included
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch bench load windows.h5 --batch 128
  megabatch bench load windows.h5 --batch 128 --shuffled --threads 1
  megabatch bench load series.h5 --resident")]
struct LoadArgs {
    /// The data, of either layout
    file: PathBuf,
    /// Samples in a batch
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Samples of a chunk; two chunks are in memory
    #[arg(long, default_value_t = 1024)]
    chunk_samples: usize,
    /// Samples in random order instead of that of the file
    #[arg(long)]
    shuffled: bool,
    /// Consecutive samples that stay together in random order
    #[arg(long, default_value_t = 1, requires = "shuffled", value_parser = clap::value_parser!(u64).range(1..))]
    run_length: u64,
    /// Keep all windows in memory, read before the first batch; a series always stays in memory
    #[arg(long)]
    resident: bool,
    /// Threads that read and decode; 0 for all
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Epochs; the fastest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
}

/// Time a followed bar, by part: text, features, predictions
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch bench follow --model multi --hidden 128 --bars 5000")]
struct FollowArgs {
    /// The model
    #[arg(long, value_enum, default_value_t = ModelArg::Multi)]
    model: ModelArg,
    /// Hidden units
    #[arg(long, default_value_t = 32)]
    hidden: usize,
    /// LSTM layers
    #[arg(long, default_value_t = 1)]
    layers: usize,
    /// Timed minutes, after four untimed weeks
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    bars: u32,
}

/// The model that is measured, and what is computed with it at once.
#[derive(clap::Args)]
struct WorkArgs {
    /// The model
    #[arg(long, value_enum, default_value_t = ModelArg::Multi)]
    model: ModelArg,
    /// Samples in a batch
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Features of a bar
    #[arg(long, default_value_t = 128)]
    features: usize,
    /// Hidden units
    #[arg(long, default_value_t = 128)]
    hidden: usize,
    /// LSTM layers
    #[arg(long, default_value_t = 1)]
    layers: usize,
    /// Threads that compute
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Precision of the inputs of products and the recurrence
    #[arg(long, value_enum, default_value_t = PrecisionName::Fp32)]
    precision: PrecisionName,
}

choice! {
    /// Which windows a sample has.
    enum ModelArg => ModelKind {
        /// Five timeframes of 480, 288, 192, 96 and 48 bars
        Multi => Multi,
        /// One timeframe of 360 bars
        Single => Single,
    }
}

choice! {
    enum PrecisionName => Precision {
        Fp32 => Fp32,
        Bf16 => Bf16,
        Fp16 => Fp16,
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let report = match &args.what {
        What::Train(args) => train(&args.options(), &host())?,
        What::Predict(args) => predict(&args.options())?,
        What::Load(args) => load(&args.options())?,
        What::Follow(args) => follow(&args.options())?,
    };
    Ok(report.into())
}

impl TrainArgs {
    fn options(&self) -> TrainOptions {
        TrainOptions {
            work: self.work.work(),
            steps: self.steps,
            samples: order(self.shuffled),
            gradient_checkpointing: self.gradient_checkpointing,
            tf32: self.tf32,
            graphs: self.graph_nodes.map(|nodes| GraphSize { nodes, neighbours: self.graph_neighbours }),
            device: self.device.clone(),
        }
    }
}

impl PredictArgs {
    fn options(&self) -> PredictOptions {
        PredictOptions {
            work: self.work.work(),
            batches: self.batches,
            weights: weights(self.int8),
            samples: order(self.shuffled),
        }
    }
}

impl LoadArgs {
    fn options(&self) -> LoadOptions {
        LoadOptions {
            file: self.file.clone(),
            batch: self.batch,
            chunk_samples: self.chunk_samples,
            samples: order(self.shuffled),
            run_length: self.run_length,
            resident: self.resident,
            threads: self.threads,
            epochs: self.epochs,
        }
    }
}

impl FollowArgs {
    fn options(&self) -> FollowOptions {
        FollowOptions { model: self.model.into(), hidden: self.hidden, layers: self.layers, bars: self.bars }
    }
}

impl WorkArgs {
    fn work(&self) -> Work {
        Work {
            model: self.model.into(),
            batch: self.batch,
            features: self.features,
            hidden: self.hidden,
            layers: self.layers,
            threads: self.threads,
            precision: self.precision.into(),
        }
    }
}

/// Order by `--shuffled`.
fn order(shuffled: bool) -> SampleOrder {
    if shuffled { SampleOrder::Shuffled } else { SampleOrder::Consecutive }
}
