//! `megabatch eval`: a model's errors by horizon beside baselines.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::evaluate::{EvaluateRequest, Part, evaluate};

use super::trained::{CheckpointArg, PartArg, changed_data, instruments, weights};
use crate::answer::Answer;
use crate::host::host;

/// Show the errors of a model by horizon, beside baselines
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch eval --run runs/first --data series.h5")]
pub(crate) struct Args {
    /// Folder of the run; of a run of several folds, every fold is evaluated
    #[arg(long)]
    run: PathBuf,
    /// Data file [default: the training data]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Part of the data, split as in training [default: test, or validation or all if it is empty]
    #[arg(long, value_enum)]
    split: Option<PartArg>,
    /// Most samples, or graphs, evenly spaced: the errors are then estimates, with standard errors
    /// [default: all]
    #[arg(long)]
    samples: Option<NonZeroUsize>,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = CheckpointArg::Best)]
    checkpoint: CheckpointArg,
    /// Compute with 8-bit LSTM weights and show the difference
    #[arg(long)]
    int8: bool,
    /// Accept that the data of the run have changed since training
    #[arg(long)]
    force: bool,
    /// cpu, auto, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Accept instruments that the model was not trained on
    #[arg(long)]
    allow_other_instruments: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let request = EvaluateRequest {
        run: args.run.clone(),
        data: args.data.clone(),
        part: args.split.map(Part::from),
        samples_max: args.samples,
        checkpoint: args.checkpoint.into(),
        weights: weights(args.int8),
        changed_data: changed_data(args.force),
        device: args.device.clone(),
        instruments: instruments(args.allow_other_instruments),
    };
    Ok(evaluate(&request, &host())?.report.into())
}
