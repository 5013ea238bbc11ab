//! `megabatch train`: from a series to checkpoints, metrics and a report.

use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::train::{Start, TrainRequest, train};

use super::{settings, step_count};
use crate::answer::Answer;
use crate::host::host;

/// Train a model; all files of the run are in one folder
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch train --data series.h5 --out runs/first
  megabatch train --config config.yaml --data series.h5 --out runs/second --set training.lr=0.0005
  megabatch train --out runs/first --resume
  mpirun -n 4 megabatch train --data series.h5 --out runs/third --distributed mpi")]
pub(crate) struct Args {
    /// Configuration in YAML; missing keys have their defaults
    #[arg(long)]
    config: Option<PathBuf>,
    /// Data file; overrides data.path
    #[arg(long)]
    data: Option<PathBuf>,
    /// Folder of the run; overrides output.dir
    #[arg(long)]
    out: Option<PathBuf>,
    /// Start from these weights, with PyTorch's names
    #[arg(long, conflicts_with = "resume")]
    init: Option<PathBuf>,
    /// Continue from the last checkpoint of the run, bit for bit as without interruption
    #[arg(long, conflicts_with = "config")]
    resume: bool,
    /// Optimizer steps after which the run ends; overrides training.epochs
    #[arg(long, value_parser = step_count)]
    max_steps: Option<u64>,
    /// cpu, auto, cuda or cuda:N; auto of a resumed run is the kind that it was trained on
    #[arg(long, default_value = "auto")]
    device: String,
    /// auto, mpi or off: train with all processes that an MPI launcher started; overrides
    /// distributed.backend
    #[arg(long, value_name = "BACKEND", value_parser = ["auto", "mpi", "off"])]
    distributed: Option<String>,
    /// Set a configuration key; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let backend = args.distributed.iter().map(|backend| format!("distributed.backend={backend}"));
    let set: Vec<String> = args.set.iter().cloned().chain(backend).collect();
    let request = TrainRequest {
        settings: settings(args.config.as_deref(), &set),
        data: args.data.clone(),
        out: args.out.clone(),
        init: args.init.clone(),
        start: if args.resume { Start::Resume } else { Start::Anew },
        max_steps: args.max_steps,
        device: args.device.clone(),
    };
    Ok(train(&request, &host())?.report.into())
}
