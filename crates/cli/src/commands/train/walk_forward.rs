//! Training that walks forward: a model a fold, and their errors together.

use anyhow::{Context as _, Result};
use megabatch_trainer::{End, WalkForward, write_atomically};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Args, Begin, Trained, train};
use crate::adapt::split::utc;
use crate::answer::{Answer, serialize_shown, shown};
use crate::config::Config;
use crate::evaluation::Evaluation;
use crate::failure::{Failure, interrupted};
use crate::job::{Intent, Job, Request, require_known_targets};
use crate::plan::{Plan, SplitPlan};
use crate::run::RunFolder;

/// What must not change between the folds of a run.
const SETTINGS: [&str; 4] =
    ["data.walk_forward", "data.walk_forward_window", "data.walk_forward_overlap", "data.split"];

/// One fold that is done.
#[derive(Serialize)]
struct Fold {
    /// Its number, from 1.
    fold: usize,
    #[serde(serialize_with = "serialize_shown")]
    run: std::path::PathBuf,
    steps: u64,
    split: SplitPlan,
    evaluation: Evaluation,
}

/// Trains fold after fold, each in a folder of its own, or goes on with the one that was interrupted.
pub(super) fn train_folds(args: &Args, (folder, mut config): (RunFolder, Config), walk: WalkForward) -> Result<Answer> {
    if args.init.is_some() {
        return Err(Failure::usage(
            "--init: each fold begins with weights of its own, which have seen nothing of its test; train one with --set data.walk_forward_number=N",
        ));
    }
    if let Some(steps) = args.max_steps {
        config.set_count("training.max_steps", steps);
    }
    if args.resume {
        require_same_folds(&folder, &config)?;
    }
    let plan = look_ahead(args, &config, walk)?;
    let _taken = folder.take()?;
    folder.begin(&config, &plan)?;
    drop(plan);

    let mut done = Vec::new();
    for fold in 0..walk.folds {
        eprintln!("fold {} of {}", fold + 1, walk.folds);
        let own = folder.fold(fold);
        let trained = train_fold(args, (&own, &config), fold).with_context(|| format!("fold {}", fold + 1))?;
        let Trained { outcome, split, evaluation, .. } = trained;
        let Some(evaluation) = evaluation.filter(|_| outcome.end != End::Stopped) else {
            return Ok(stopped(&folder, &done, (fold + 1, outcome.steps)));
        };
        done.push(Fold { fold: fold + 1, run: own.root().to_owned(), steps: outcome.steps, split, evaluation });
    }
    let summary = summary(&folder, &done, Progress::Finished);
    write_atomically(&folder.walk_forward_file(), serde_json::to_string_pretty(&summary)?.as_bytes())?;
    let text = format!("{}\nsummary: {}", table(&done), folder.walk_forward_file().display());
    Ok(Answer::new(text, &summary))
}

fn train_fold(args: &Args, (folder, config): (&RunFolder, &Config), fold: usize) -> Result<Trained> {
    let mut config = config.clone();
    config.set_walk_forward_fold(fold);
    config.set_path("output.dir", folder.root())?;
    let begin = if folder.has_begun() { Begin::AtTheLastCheckpoint } else { Begin::Anew };
    train(args, (folder.clone(), config), begin)
}

/// The plan of the last fold, which may have most to train on, after a look at the splits of all: what is wrong with one is to be known
/// before the first is trained.
fn look_ahead(args: &Args, config: &Config, walk: WalkForward) -> Result<Plan> {
    let request = Request {
        config: config.clone(),
        data: args.data.as_deref(),
        device: &args.device,
        max_steps: args.max_steps,
        memory_bytes: None,
        intent: Intent::Plan,
    };
    let job = Job::open(request).with_context(|| format!("fold {}", walk.folds))?;
    for fold in 0..walk.folds {
        let mut config = config.clone();
        config.set_walk_forward_fold(fold);
        let split = job.data.split(&config);
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
            "{path}={}: the run in {} walks forward with {}; resume with its settings",
            value(config, path),
            folder.root().display(),
            value(&before, path)
        ))),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Finished,
    Stopped,
}

fn stopped(folder: &RunFolder, done: &[Fold], (fold, steps): (usize, u64)) -> Answer {
    let text = format!("stopped in fold {fold} after {steps} steps; --resume goes on");
    Answer::new(text, &summary(folder, done, Progress::Stopped)).with_verdict(interrupted())
}

/// The folds, and the errors of all of them together: of each number its mean over folds and its standard deviation.
fn summary(folder: &RunFolder, done: &[Fold], progress: Progress) -> Value {
    let evaluations: Vec<Value> = done.iter().map(|fold| json!(fold.evaluation)).collect();
    let spread = |of: &dyn Fn(&Value) -> Value| {
        let values: Vec<Value> = evaluations.iter().map(of).collect();
        over_folds(&values.iter().collect::<Vec<_>>())
    };
    let metrics = |evaluation: &Value| {
        let mut metrics = evaluation.as_object().cloned().unwrap_or_default();
        ["split", "samples", "step", "baselines", "instruments", "graphs"]
            .iter()
            .for_each(|key| drop(metrics.remove(*key)));
        Value::Object(metrics)
    };
    json!({
        "run": shown(folder.root()),
        "finished": progress == Progress::Finished,
        "folds": done,
        "model": spread(&metrics),
        "baselines": spread(&|evaluation| evaluation["baselines"].clone()),
    })
}

/// `mean` and `deviation`, over folds, of each number that all have in the same place. The deviation is that of a sample, null for a single
/// fold; a number that some fold does not have is null.
fn over_folds(values: &[&Value]) -> Value {
    match values {
        [Value::Object(first), ..] => first
            .keys()
            .map(|key| (key.clone(), over_folds(&values.iter().map(|value| &value[key]).collect::<Vec<_>>())))
            .collect(),
        [Value::Array(first), ..] => (0..first.len())
            .map(|k| over_folds(&values.iter().map(|value| value.get(k).unwrap_or(&Value::Null)).collect::<Vec<_>>()))
            .collect(),
        _ => match values.iter().map(|value| value.as_f64()).collect::<Option<Vec<f64>>>() {
            Some(numbers) if !numbers.is_empty() => {
                let (mean, deviation) = mean_and_deviation(&numbers);
                json!({ "mean": mean, "deviation": deviation })
            }
            _ => Value::Null,
        },
    }
}

fn mean_and_deviation(numbers: &[f64]) -> (f64, Option<f64>) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

/// A row a fold, and one for their mean and deviation; errors are averaged over the horizons.
fn table(done: &[Fold]) -> String {
    let Some(first) = done.first() else { return String::new() };
    let names: Vec<String> = first.evaluation.contenders().map(|(name, _)| name.replace('_', " ")).collect();
    let mut text = format!("{:>9}  {:<16}  {:>8}  {:>8}", "fold", "test begins", "train", "test");
    names.iter().for_each(|name| text.push_str(&format!("  {:>14}", format!("rmse {name}"))));
    text.push_str(&format!("  {:>10}\n", "direction"));
    for Fold { fold, split, evaluation, .. } in done {
        let begins = split.test_start_ns.map_or("-".to_owned(), |time| utc(time).replace(" UTC", ""));
        text.push_str(&format!("{fold:>9}  {begins:<16}  {:>8}  {:>8}", split.train, split.test));
        row(evaluation).iter().for_each(|x| text.push_str(&cell(*x)));
        text.push('\n');
    }
    let rows: Vec<Vec<Option<f64>>> = done.iter().map(|fold| row(&fold.evaluation)).collect();
    let columns = (0..rows[0].len()).map(|k| rows.iter().map(|row| row[k]).collect::<Option<Vec<f64>>>());
    let spreads: Vec<_> = columns.map(|numbers| numbers.map(|numbers| mean_and_deviation(&numbers))).collect();
    for (name, of) in [("mean", 0), ("deviation", 1)] {
        text.push_str(&format!("{name:>9}  {:<16}  {:>8}  {:>8}", "", "", ""));
        for spread in &spreads {
            text.push_str(&cell(spread.and_then(|(mean, deviation)| if of == 0 { Some(mean) } else { deviation })));
        }
        text.push('\n');
    }
    text
}

/// The errors of each contender, and the share of signs that the model predicted.
fn row(evaluation: &Evaluation) -> Vec<Option<f64>> {
    let mean = |numbers: Vec<f64>| (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64);
    // Where there are several tasks, a baseline has errors of some alone.
    let known = |rmse: &[f64]| mean(rmse.iter().copied().filter(|error| !error.is_nan()).collect());
    let errors = evaluation.contenders().map(|(_, metrics)| known(&metrics.rmse));
    let directions = evaluation.model.direction_accuracy.iter().copied().flatten().collect();
    errors.chain([mean(directions)]).collect()
}

fn cell(number: Option<f64>) -> String {
    format!("  {:>14}", number.map_or("-".to_owned(), |number| format!("{number:.4}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_together_place_by_place() {
        let (a, b) =
            (json!({ "rmse": [1.0, 4.0], "share": [null, 0.5] }), json!({ "rmse": [3.0, 4.0], "share": [0.5, 0.5] }));
        let same = json!({ "mean": 4.0, "deviation": 0.0 });
        assert_eq!(
            over_folds(&[&a, &b]),
            json!({
                "rmse": [{ "mean": 2.0, "deviation": 2f64.sqrt() }, same],
                "share": [null, { "mean": 0.5, "deviation": 0.0 }],
            })
        );
        assert_eq!(over_folds(&[&json!([2.0])]), json!([{ "mean": 2.0, "deviation": null }]));
        assert_eq!(over_folds(&[]), Value::Null);
    }
}
