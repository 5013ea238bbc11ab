//! `megabatch eval`: a model's errors by horizon beside baselines.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_trainer::{Baselines, Selection};

use crate::answer::Answer;
use crate::evaluation::{Evaluation, Part};
use crate::failure::Failure;
use crate::settings::loss;
use crate::trained::{Trained, Which};

/// Show a model's error by horizon beside baselines that need no model
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch eval --run runs/first --data series.h5")]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(long)]
    run: PathBuf,
    /// Data file; the one trained on if not given
    #[arg(long)]
    data: Option<PathBuf>,
    /// Which part of the data, split as in training; the test split if not given, or validation or all where it is empty
    #[arg(long, value_enum)]
    split: Option<Part>,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let mut trained = Trained::open(&args.run, args.data.as_deref(), args.checkpoint)?;
    let split = trained.data.split(&trained.config)?;
    let part = args.split.unwrap_or_else(|| Part::unseen(&split));
    let indices = part.indices(&split, trained.units());
    if indices.is_empty() {
        return Err(Failure::usage(format!("--split {}: it is empty; data.split says how large each is", part.name())));
    }
    let loss = loss(&trained.config);
    let Trained { device, data, predictor, step, .. } = &mut trained;
    let samples = data.samples();
    let beside = (predictor.model().config().readout, loss);
    let baselines = Baselines::fit_for(device, Selection { samples, indices: &split.train }, beside)?;
    let errors = predictor.evaluate(Selection { samples, indices: &indices }, loss, Some(&baselines))?;
    let evaluation = Evaluation::new((part, *step), errors, data.unit_times());
    Ok(Answer::new(evaluation.to_text(), &evaluation))
}
