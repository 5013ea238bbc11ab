//! Training of several folds: a model for each, and the mean of their errors.

use megabatch_atomic_file as atomic_file;
use megabatch_trainer::End;

use super::session::{Begin, Trained, train};
use super::{Start, TrainRequest, Training};
use crate::adapters::fold_plan::{FoldKind, FoldPlan};
use crate::command_report::CommandReport;
use crate::config::{Config, Key, data, output, training};
use crate::error::{Context as _, Error, Kind, Result};
use crate::evaluate::folds::{Fold, Folds, Progress};
use crate::host::{Host, Milestone};
use crate::plan::{PLAN_OF_LAST_FOLD, Plan};
use crate::report::folds_page;
use crate::run_folder::RunFolder;
use crate::setup::splits::require_splits;
use crate::setup::{Intent, Request, TrainingSetup};
use crate::trained::own_data_path;

/// Settings that must not change between the folds of a run.
static SETTINGS: [&Key; 5] = [
    &data::WALK_FORWARD.key,
    &data::WALK_FORWARD_WINDOW.key,
    &data::WALK_FORWARD_OVERLAP.key,
    &data::SPLIT.key,
    &data::FOLDS.key,
];

/// Trains fold after fold, each in a folder of its own, or goes on with the one that was
/// interrupted.
pub(super) fn train_folds(
    request: &TrainRequest,
    folder: &RunFolder,
    mut config: Config,
    folds: FoldPlan,
    host: &Host<'_>,
) -> Result<Training> {
    if request.init.is_some() {
        return Err(Error::usage(
            "--init: each fold begins with weights of its own, which have seen nothing of its test; train one with --set data.walk_forward_number=N or data.fold_number=N",
        ));
    }
    if let Some(steps) = request.max_steps {
        config.set_count(&training::MAX_STEPS, steps);
    }
    if request.start == Start::Resume {
        require_same_folds(folder, &config)?;
        own_data_path(folder, &config, request.data.as_deref())?;
    }
    let plan = look_ahead(request, &config, folds, host)?;
    let _run_lock = folder.take()?;
    folder.begin(&config, &plan)?;
    // Training shows no plan.
    let notes: Vec<String> = plan.notes.iter().filter(|note| *note != PLAN_OF_LAST_FOLD).cloned().collect();
    host.observer.milestone(&Milestone::Remarks { warnings: &plan.warnings, notes: &notes });
    let told = plan.notes;

    let mut done = Vec::new();
    for fold in 0..folds.folds {
        host.observer.milestone(&Milestone::Fold { number: fold + 1, count: folds.folds });
        let own = folder.fold(fold);
        let mut fold_config = config.clone();
        folds.choose(&mut fold_config, fold);
        let trained =
            train_fold(request, &own, fold_config, host, &told).with_context(|| format!("fold {}", fold + 1))?;
        let Trained { outcome, split, evaluation, .. } = trained;
        let all = |done| Folds { plan: folds, run: folder.root(), done };
        let Some(evaluation) = evaluation.filter(|_| outcome.end != End::Stopped) else {
            let text = format!("stopped in fold {} after {} steps; --resume goes on", fold + 1, outcome.steps);
            let report = CommandReport::new(text, &all(&done).to_json(Progress::Stopped)).with_verdict(Kind::Cancelled);
            return Ok(training(folder, done, report));
        };
        done.push(Fold { fold: fold + 1, run: own.root().to_owned(), steps: outcome.steps, split, evaluation });
    }
    let all = Folds { plan: folds, run: folder.root(), done: &done };
    let (summary, file) = (all.to_json(Progress::Finished), folds.file(folder));
    atomic_file::write(&file, serde_json::to_string_pretty(&summary)?.as_bytes())?;
    atomic_file::write(&folder.report_file(), folds_page(&all).as_bytes())?;
    let text = format!("{}\nsummary: {}\nreport: {}", all.to_text(), file.display(), folder.report_file().display());
    let report = CommandReport::new(text, &summary);
    Ok(training(folder, done, report))
}

/// The result of the folds that are done.
fn training(folder: &RunFolder, done: Vec<Fold>, report: CommandReport) -> Training {
    Training {
        run: folder.root().to_owned(),
        steps: done.iter().map(|fold| fold.steps).sum(),
        is_finished: report.verdict.is_none(),
        interrupted_rank: None,
        best_validation: None,
        evaluations: done.into_iter().map(|fold| fold.evaluation).collect(),
        report,
    }
}

fn train_fold(
    request: &TrainRequest,
    folder: &RunFolder,
    mut config: Config,
    host: &Host<'_>,
    told: &[String],
) -> Result<Trained> {
    config.set_path(&output::DIR, folder.root())?;
    let begin = if folder.has_begun() { Begin::AtTheLastCheckpoint } else { Begin::Anew };
    train(request, folder.clone(), config, begin, host, None, told)
}

/// The plan of the last fold, which may have the most samples to train on. The splits of all folds
/// are checked first, so that a fault in one is found before any is trained.
fn look_ahead(request: &TrainRequest, config: &Config, folds: FoldPlan, host: &Host<'_>) -> Result<Plan> {
    let mut planned = config.clone();
    // The notes of a walk forward say of which fold the plan is.
    if folds.kind == FoldKind::CrossValidation {
        folds.choose(&mut planned, folds.folds - 1);
    }
    let setup = Request {
        data: request.data.as_deref(),
        device: &request.device,
        max_steps: request.max_steps,
        ..Request::new(planned, Intent::Plan, host)
    };
    let setup = TrainingSetup::open(setup).with_context(|| format!("fold {}", folds.folds))?;
    if request.start == Start::Anew {
        setup.require_settings_of_its_data()?;
    }
    require_splits(&setup, Some(folds))?;
    let plan = Plan::new(&setup)?;
    plan.require_fit(&setup)?;
    Ok(plan)
}

fn require_same_folds(folder: &RunFolder, config: &Config) -> Result<()> {
    let before = folder.config(&[])?;
    let Some(key) = SETTINGS.iter().find(|key| before.text(key) != config.text(key)) else { return Ok(()) };
    Err(Error::usage(format!(
        "{}={}: the run in {} began with {}; resume with its settings",
        key.path,
        config.text(key),
        folder.root().display(),
        before.text(key)
    )))
}
