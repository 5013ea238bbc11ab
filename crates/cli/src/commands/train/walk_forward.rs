//! Training of several folds: a model each, and their errors together.

use anyhow::{Context as _, Result};
use megabatch_trainer::{End, write_atomically};

use super::{Args, Begin, Trained, train};
use crate::answer::Answer;
use crate::config::Config;
use crate::failure::{Failure, interrupted};
use crate::folds::{Fold, FoldKind, FoldPlan, Folds, Progress};
use crate::plan::Plan;
use crate::report::folds_page;
use crate::run::RunFolder;
use crate::training_setup::{Intent, Request, TrainingSetup, require_known_targets};

/// Settings that must not change between the folds of a run.
const SETTINGS: [&str; 5] =
    ["data.walk_forward", "data.walk_forward_window", "data.walk_forward_overlap", "data.split", "data.folds"];

/// Trains fold after fold, each in a folder of its own, or goes on with the one that was
/// interrupted.
pub(super) fn train_folds(args: &Args, folder: &RunFolder, mut config: Config, folds: FoldPlan) -> Result<Answer> {
    if args.init.is_some() {
        return Err(Failure::usage(
            "--init: each fold begins with weights of its own, which have seen nothing of its test; train one with --set data.walk_forward_number=N or data.fold=N",
        ));
    }
    if let Some(steps) = args.max_steps {
        config.set_count("training.max_steps", steps);
    }
    if args.resume {
        require_same_folds(folder, &config)?;
    }
    let plan = look_ahead(args, &config, folds)?;
    let _taken = folder.take()?;
    folder.begin(&config, &plan)?;
    drop(plan);

    let mut done = Vec::new();
    for fold in 0..folds.folds {
        eprintln!("fold {} of {}", fold + 1, folds.folds);
        let own = folder.fold(fold);
        let mut of_fold = config.clone();
        folds.choose(&mut of_fold, fold);
        let trained = train_fold(args, &own, of_fold).with_context(|| format!("fold {}", fold + 1))?;
        let Trained { outcome, split, evaluation, .. } = trained;
        let all = |done| Folds { plan: folds, run: folder.root(), done };
        let Some(evaluation) = evaluation.filter(|_| outcome.end != End::Stopped) else {
            let text = format!("stopped in fold {} after {} steps; --resume goes on", fold + 1, outcome.steps);
            return Ok(Answer::new(text, &all(&done).to_json(Progress::Stopped)).with_verdict(interrupted()));
        };
        done.push(Fold { fold: fold + 1, run: own.root().to_owned(), steps: outcome.steps, split, evaluation });
    }
    let all = Folds { plan: folds, run: folder.root(), done: &done };
    let (summary, file) = (all.to_json(Progress::Finished), folds.file(folder));
    write_atomically(&file, serde_json::to_string_pretty(&summary)?.as_bytes())?;
    write_atomically(&folder.report_file(), folds_page(&all).as_bytes())?;
    let text = format!("{}\nsummary: {}\nreport: {}", all.to_text(), file.display(), folder.report_file().display());
    Ok(Answer::new(text, &summary))
}

fn train_fold(args: &Args, folder: &RunFolder, mut config: Config) -> Result<Trained> {
    config.set_path("output.dir", folder.root())?;
    let begin = if folder.has_begun() { Begin::AtTheLastCheckpoint } else { Begin::Anew };
    train(args, folder.clone(), config, begin)
}

/// The plan of the last fold, which may have most to train on, after a look at the splits of all:
/// what is wrong with one is to be known before the first is trained.
fn look_ahead(args: &Args, config: &Config, folds: FoldPlan) -> Result<Plan> {
    let of_fold = |fold: usize| {
        let mut config = config.clone();
        folds.choose(&mut config, fold);
        config
    };
    let request = Request {
        config: match folds.kind {
            // The notes say of which fold the plan is.
            FoldKind::WalkForward => config.clone(),
            FoldKind::CrossValidation => of_fold(folds.folds - 1),
        },
        data: args.data.as_deref(),
        device: &args.device,
        max_steps: args.max_steps,
        memory_bytes: None,
        intent: Intent::Plan,
    };
    let job = TrainingSetup::open(request).with_context(|| format!("fold {}", folds.folds))?;
    for fold in 0..folds.folds {
        let split = job.data.split(&of_fold(fold));
        split
            .and_then(|split| require_known_targets(&job.data, &split))
            .with_context(|| format!("fold {}", fold + 1))?;
    }
    let plan = Plan::of(&job)?;
    plan.require_fit(&job)?;
    Ok(plan)
}

fn require_same_folds(folder: &RunFolder, config: &Config) -> Result<()> {
    let before = folder.config(&[])?;
    let value = |config: &Config, path: &str| {
        config.settings().find(|(key, _)| *key == path).map(|(_, text)| text.to_owned()).unwrap_or_default()
    };
    match SETTINGS.iter().find(|path| value(&before, path) != value(config, path)) {
        None => Ok(()),
        Some(path) => Err(Failure::usage(format!(
            "{path}={}: the run in {} began with {}; resume with its settings",
            value(config, path),
            folder.root().display(),
            value(&before, path)
        ))),
    }
}
