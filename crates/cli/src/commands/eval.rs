//! `megabatch eval`: a model's errors by horizon beside baselines.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use megabatch_gpu_core::Device;
use megabatch_trainer::{Baselines, Selection};
use serde::Serialize;

use crate::answer::Answer;
use crate::evaluation::{Evaluation, Part};
use crate::failure::Failure;
use crate::folds::{Fold, FoldPlan, Folds, Progress};
use crate::int8::Report;
use crate::plan::SplitPlan;
use crate::run::RunFolder;
use crate::settings::loss;
use crate::trained::{ChangedData, Instruments, Opening, Trained, UnitsOfErrors, Weights, Which};

/// Show a model's error by horizon beside baselines that need no model
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch eval --run runs/first --data series.h5")]
pub(crate) struct Args {
    /// Folder of the run; of a run of several folds, all of them are evaluated
    #[arg(long)]
    run: PathBuf,
    /// Data file; the one trained on if not given
    #[arg(long)]
    data: Option<PathBuf>,
    /// Which part of the data, split as in training; the test split if not given, or validation or
    /// all where it is empty
    #[arg(long, value_enum)]
    split: Option<Part>,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
    /// Compute with the LSTMs' weights in eight bits, and say what that changes
    #[arg(long)]
    int8: bool,
    /// Go on where the run's own data have changed since it was trained
    #[arg(long)]
    force: bool,
    /// cpu, auto, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Say nothing about instruments that the model was not trained on
    #[arg(long)]
    allow_other_instruments: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let folder = RunFolder::open(&args.run)?;
    if let Some(folds) = FoldPlan::of(&folder.config(&[])?)?.filter(|_| folder.fold(0).has_begun()) {
        return evaluate_folds(args, &folder, folds);
    }
    let OfRun { evaluated, .. } = evaluate(args, &args.run)?;
    let Evaluated { evaluation, int8, units, notes, .. } = &evaluated;
    // Outputs of a model of ranks have no unit.
    let told = |units: &UnitsOfErrors| format!("errors in {}, horizons in {}\n", units.errors, units.horizons);
    let mut text = units.as_ref().filter(|_| !evaluation.ranks).map_or(String::new(), told) + &evaluation.to_text();
    text.extend(int8.iter().map(|report| format!("\n{}", report.to_text(&evaluation.model.rmse))));
    text.extend(notes.iter().map(|note| format!("\nnote: {note}")));
    Ok(Answer::new(text, &evaluated))
}

/// The errors of the model of each fold on its own part, and of all together.
fn evaluate_folds(args: &Args, folder: &RunFolder, folds: FoldPlan) -> Result<Answer> {
    if args.int8 {
        return Err(Failure::usage(format!(
            "--int8: {} has a model a fold; name one, such as {}",
            folder.root().display(),
            folder.fold(0).root().display()
        )));
    }
    let (mut done, mut notes) = (Vec::new(), Vec::new());
    for fold in 0..folds.folds {
        let own = folder.fold(fold);
        if !own.has_begun() {
            return Err(Failure::usage(format!(
                "{}: fold {} of {} has not been trained; `megabatch train --out {} --resume` goes on with it",
                folder.root().display(),
                fold + 1,
                folds.folds,
                folder.root().display()
            )));
        }
        let judged = evaluate(args, own.root()).with_context(|| format!("fold {}", fold + 1))?;
        let OfRun { evaluated: Evaluated { evaluation, notes: of_fold, .. }, split } = judged;
        notes.extend(of_fold);
        done.push(Fold { fold: fold + 1, run: own.root().to_owned(), steps: evaluation.step, split, evaluation });
    }
    let all = Folds { plan: folds, run: folder.root(), done: &done };
    notes.dedup();
    let (mut text, mut json) = (all.to_text(), all.to_json(Progress::Finished));
    text.extend(notes.iter().map(|note| format!("\nnote: {note}")));
    if !notes.is_empty() {
        json["notes"] = serde_json::json!(notes);
    }
    Ok(Answer::new(text, &json))
}

/// Evaluation of a run's model, and the split of its data.
struct OfRun {
    evaluated: Evaluated,
    split: SplitPlan,
}

fn evaluate(args: &Args, run: &Path) -> Result<OfRun> {
    let mut trained = Trained::open(Opening {
        run,
        data: args.data.as_deref(),
        checkpoint: args.checkpoint,
        weights: Weights::AsTrained,
        device: &args.device,
        instruments: Instruments::of(args.allow_other_instruments),
        changed: ChangedData::of(args.force),
    })?;
    let split = trained.data.split(&trained.config)?;
    let part = args.split.unwrap_or_else(|| Part::unseen(&split));
    let indices = part.indices(&split, trained.units());
    if indices.is_empty() {
        return Err(Failure::usage(format!("--split {}: it is empty; data.split says how large each is", part.name())));
    }
    let loss = loss(&trained.config, trained.data.samples().shape().outputs)?;
    let int8 = args.int8.then(|| trained.int8(run, args.checkpoint)).transpose()?;
    let units = trained.units_of_errors()?;
    let Trained { device, data, predictor, step, notes, .. } = &mut trained;
    let samples = data.samples();
    let baselines = Baselines::fit_for(
        device,
        Selection { samples, indices: &split.train },
        predictor.model().config().readout,
        loss,
    )?;
    let selection = Selection { samples, indices: &indices };
    let errors = predictor.evaluate(selection, loss, Some(&baselines))?;
    let (errors, int8) = match int8 {
        None => (errors, None),
        Some(mut int8) => {
            let of_int8 = int8.evaluate(selection, loss, Some(&baselines))?;
            (of_int8, Some(Report::of(errors.metrics, predictor, &mut int8, selection)?))
        }
    };
    let evaluation = Evaluation::new(part, *step, loss, errors, data);
    let device = predictor.device();
    let gpu = matches!(device, Device::Cuda(_)).then(|| device.to_string());
    let evaluated = Evaluated { evaluation, int8, gpu, units, notes: std::mem::take(notes) };
    Ok(OfRun { evaluated, split: SplitPlan::of(&split, data) })
}

/// The errors, and how they were computed where that is not as usual.
#[derive(Serialize)]
struct Evaluated {
    #[serde(flatten)]
    evaluation: Evaluation,
    /// Change of errors by eight bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    int8: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<UnitsOfErrors>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}
