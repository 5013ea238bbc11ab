//! Evaluation of a run: its model, or the model of each fold.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use megabatch_gpu_core::Device;
use megabatch_trainer::{self as trainer, Baselines, Predictor, SampleRanges, Selection};
use serde::Serialize;

use super::folds::{Fold, Folds, Progress};
use super::int8::Report;
use super::{Evaluation, Part};
use crate::adapters::fold_plan::FoldPlan;
use crate::command_report::CommandReport;
use crate::error::{Context as _, Error, Result};
use crate::host::{EachOnce, Host, PATIENCE, Work};
use crate::plan::SplitPlan;
use crate::run_folder::RunFolder;
use crate::setup::settings::{loss, training_config};
use crate::trained::{ChangedData, CheckpointChoice, Instruments, Opening, Trained, UnitsOfErrors, Weights};
use crate::unit_names::UnitNames;

/// A model to evaluate.
#[derive(Clone, Debug)]
pub struct EvaluateRequest {
    /// Folder of the run; of a run of several folds, every fold is evaluated.
    pub run: PathBuf,
    /// Data file; the one trained on if `None`.
    pub data: Option<PathBuf>,
    /// Part of the data, split as in training. `None` is the test split, or validation if that is
    /// empty, or all.
    pub part: Option<Part>,
    /// Most samples of the part, or graphs, evenly spaced. Errors are then estimates. `None` takes
    /// all.
    pub samples_max: Option<NonZeroUsize>,
    /// Which checkpoint.
    pub checkpoint: CheckpointChoice,
    /// Arithmetic of the LSTMs' matrices. With eight bits the answer has the change of the errors.
    pub weights: Weights,
    /// Treatment of data that have changed since training.
    pub changed_data: ChangedData,
    /// `cpu`, `auto`, `cuda` or `cuda:N`.
    pub device: String,
    /// Treatment of instruments that the model was not trained on.
    pub instruments: Instruments,
}

impl EvaluateRequest {
    /// The best checkpoint of the run in `run`, on samples that it was not trained on.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        EvaluateRequest {
            run: run.into(),
            data: None,
            part: None,
            samples_max: None,
            checkpoint: CheckpointChoice::default(),
            weights: Weights::default(),
            changed_data: ChangedData::default(),
            device: "auto".to_owned(),
            instruments: Instruments::default(),
        }
    }
}

/// Errors of a model, or of one a fold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Errors {
    /// One a fold.
    pub evaluations: Vec<Evaluation>,
    /// All of it, for people and programs.
    pub report: CommandReport,
}

/// Errors of a model by horizon beside those of baselines that need no model.
///
/// # Errors
/// A usage error for a part that is empty or a fold that has not been trained, a data error for
/// data that are not as in training.
pub fn evaluate(request: &EvaluateRequest, host: &Host<'_>) -> Result<Errors> {
    host.cancel.watch(PATIENCE)?;
    let folder = RunFolder::open(&request.run)?;
    if let Some(folds) = FoldPlan::from_run(&folder)? {
        return evaluate_folds(request, &folder, folds, host);
    }
    let OfRun { evaluated, .. } = evaluate_run(request, &request.run, host)?;
    let Evaluated { evaluation, int8, units, notes, .. } = &evaluated;
    // Outputs of a model of ranks have no unit.
    let told = |units: &UnitsOfErrors| format!("errors in {}, horizons in {}\n", units.errors, units.horizons);
    let mut text = units.as_ref().filter(|_| !evaluation.ranks).map_or(String::new(), told) + &evaluation.to_text();
    text.extend(int8.iter().map(|report| format!("\n{}", report.to_text(&evaluation.model.rmse))));
    text.extend(notes.iter().map(|note| format!("\nnote: {note}")));
    let report = CommandReport::new(text, &evaluated);
    Ok(Errors { evaluations: vec![evaluated.evaluation], report })
}

/// The errors of the model of each fold on its own part, and of all together.
fn evaluate_folds(request: &EvaluateRequest, folder: &RunFolder, folds: FoldPlan, host: &Host<'_>) -> Result<Errors> {
    let observer = EachOnce::new(host);
    let host = &observer.host(host);
    let (mut done, mut notes, mut int8) = (Vec::new(), Vec::new(), Vec::new());
    for (fold, own) in (1..).zip(folds.trained_folders(folder)?) {
        let judged = evaluate_run(request, own.root(), host).with_context(|| format!("fold {fold}"))?;
        let OfRun { evaluated: Evaluated { evaluation, int8: fold_int8, notes: fold_notes, .. }, split } = judged;
        notes.extend(fold_notes);
        int8.extend(fold_int8);
        done.push(Fold { fold, run: own.root().to_owned(), steps: evaluation.step, split, evaluation });
    }
    let all = Folds { plan: folds, run: folder.root(), done: &done };
    notes.dedup();
    let (mut text, mut json) = (all.to_text(), all.to_json(Progress::Finished));
    for (n, (fold, report)) in done.iter().zip(&int8).enumerate() {
        text.push_str(&format!("\nfold {}:{}", fold.fold, report.to_text(&fold.evaluation.model.rmse)));
        json["folds"][n]["int8"] = serde_json::json!(report);
    }
    text.extend(notes.iter().map(|note| format!("\nnote: {note}")));
    if !notes.is_empty() {
        json["notes"] = serde_json::json!(notes);
    }
    let report = CommandReport::new(text, &json);
    Ok(Errors { evaluations: done.into_iter().map(|fold| fold.evaluation).collect(), report })
}

/// Evaluation of a run's model, and the split of its data.
struct OfRun {
    evaluated: Evaluated,
    split: SplitPlan,
}

fn evaluate_run(request: &EvaluateRequest, run: &Path, host: &Host<'_>) -> Result<OfRun> {
    let opening = Opening {
        run,
        data: request.data.as_deref(),
        made_of: None,
        checkpoint: request.checkpoint,
        weights: Weights::AsTrained,
        device: &request.device,
        instruments: request.instruments,
        changed: request.changed_data,
    };
    let trained = Trained::open(opening, host)?;
    let split = trained.split()?;
    let part = request.part.unwrap_or_else(|| Part::unseen(&split));
    let indices = part.indices(&split, trained.units());
    if indices.is_empty() {
        return Err(Error::usage(format!("--split {}: it is empty; data.split says how large each is", part.name())));
    }
    let loss = loss(&trained.config, trained.data.samples().shape().outputs)?;
    let int8 = match request.weights {
        Weights::Int8 => Some(trained.int8(run, request.checkpoint)?),
        Weights::AsTrained => None,
    };
    let units = trained.units_of_errors()?;
    let training = training_config(&trained.config, &trained.data, None)?;
    let drawn = training.draw(&indices, request.samples_max.map(NonZeroUsize::get));
    let doubt = trained.doubt_times(&drawn.samples, "errors")?;
    let Trained { device, data, predictor, step, mut notes, .. } = trained;
    notes.extend(doubt);
    let samples = data.samples();
    let in_use = |predictor: Predictor| if drawn.is_estimate() { predictor.with_warm_up() } else { predictor };
    let mut predictor = in_use(predictor);
    let unit = format!("{}s", UnitNames::for_data(&data).unit);
    let follow = |label, units: &SampleRanges| host.follow(Work { label, total: units.len() as u64, unit: &unit });
    let baselines = Baselines::fit(
        &device,
        Selection { samples, indices: &split.train },
        predictor.model().config().readout,
        loss,
        &mut follow("baselines", &split.train),
    )
    .map_err(unfitted_baselines)?;
    let selection = Selection { samples, indices: &drawn.samples };
    let mut progress = follow("evaluate", &drawn.samples);
    let errors = predictor.evaluate_drawn(samples, &drawn, loss, Some(&baselines), &mut progress)?;
    drop(progress);
    let (errors, int8) = match int8 {
        None => (errors, None),
        Some(int8) => {
            let mut int8 = in_use(int8);
            let mut follow_int8 = follow("evaluate in eight bits", &drawn.samples);
            let int8_errors = int8.evaluate_drawn(samples, &drawn, loss, Some(&baselines), &mut follow_int8)?;
            drop(follow_int8);
            let follow = || follow("compare with eight bits", &drawn.samples);
            (int8_errors, Some(Report::compare(errors.metrics, &mut predictor, &mut int8, selection, follow)?))
        }
    };
    let evaluation = Evaluation::new(part, step, loss, errors, &data).with_draw(&drawn);
    let device = predictor.device();
    let gpu = matches!(device, Device::Cuda(_)).then(|| device.to_string());
    let evaluated = Evaluated { evaluation, int8, gpu, units, notes };
    Ok(OfRun { evaluated, split: SplitPlan::new(&split, &data)? })
}

/// Adds to an error of reading why the samples of training are read.
fn unfitted_baselines(error: trainer::Error) -> Error {
    match error {
        trainer::Error::Gather { .. } | trainer::Error::PrefetchingSource { .. } => {
            Error::from(error).context("fitting the baselines, which takes the training samples")
        }
        _ => error.into(),
    }
}

/// The errors, with notes on unusual computation.
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
