//! `megabatch eval`: a model's errors by horizon beside baselines.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_trainer::{Baselines, Selection};
use serde::Serialize;

use crate::answer::Answer;
use crate::evaluation::{Evaluation, Part};
use crate::failure::Failure;
use crate::int8::Report;
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
    /// Compute with the LSTMs' weights in eight bits, and say what that changes
    #[arg(long)]
    int8: bool,
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
    let int8 = args.int8.then(|| trained.int8(&args.run, args.checkpoint)).transpose()?;
    let Trained { device, data, predictor, step, .. } = &mut trained;
    let samples = data.samples();
    let beside = (predictor.model().config().readout, loss);
    let baselines = Baselines::fit_for(device, Selection { samples, indices: &split.train }, beside)?;
    let selection = Selection { samples, indices: &indices };
    let errors = predictor.evaluate(selection, loss, Some(&baselines))?;
    let Some(mut int8) = int8 else {
        let evaluation = Evaluation::new(part, *step, errors);
        return Ok(Answer::new(evaluation.to_text(), &evaluation));
    };
    let evaluation = Evaluation::new(part, *step, int8.evaluate(selection, loss, Some(&baselines))?);
    let report = Report::of(errors.metrics, [predictor, &mut int8], selection)?;
    let text = evaluation.to_text() + "\n" + &report.to_text(&evaluation.model.rmse);
    Ok(Answer::new(text, &InEightBits { evaluation, int8: report }))
}

/// The errors in eight bits, and below them what eight bits change.
#[derive(Serialize)]
struct InEightBits {
    #[serde(flatten)]
    evaluation: Evaluation,
    int8: Report,
}
