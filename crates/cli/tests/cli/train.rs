//! Training by the program: it learns, it repeats itself to the bit, and it leaves what it
//! promises.

use serde_json::Value;

use crate::stage::{SMALL, Stage};

fn losses(stage: &Stage, run: &str, event: &str) -> Vec<f64> {
    stage.metrics(run, event).iter().map(|metric| metric["loss"].as_f64().unwrap()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn the_loss_falls() {
    let stage = Stage::with_series();
    let answer = stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=12 {SMALL}"));
    let steps = losses(&stage, "run", "step");
    assert_eq!(steps.len(), 12 * 9);
    // Half of the targets' variance can be learnt.
    assert!(mean(&steps[99..]) < 0.75 * mean(&steps[..9]), "{steps:?}");
    let validation = losses(&stage, "run", "validation");
    let best = validation.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(validation.len() == 12 && best < validation[0], "{validation:?}");
    assert_eq!(answer["best_validation"]["loss"], best);
    assert_eq!(answer["finished"], true);
}

#[test]
fn a_run_leaves_everything_in_its_folder() {
    let stage = Stage::with_run();
    assert!(stage.text("run/config.yaml").contains("  hidden: 4\n"));
    let plan: Value = serde_json::from_str(&stage.text("run/plan.json")).unwrap();
    assert_eq!((&plan["steps"], &plan["split"]["train"]), (&9.into(), &140.into()));
    let steps: Vec<u64> = stage.metrics("run", "step").iter().map(|metric| metric["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=9).collect::<Vec<_>>());
    let report = stage.text("run/report.html");
    for part in ["<!doctype html>", "Loss by step", "Error by horizon", "RMSE linear", "model.hidden"] {
        assert!(report.contains(part), "{part}");
    }
    let evaluation: Value = serde_json::from_str(&stage.text("run/evaluation.json")).unwrap();
    assert_eq!(evaluation, stage.succeeds("eval --run run"), "training and eval judge the same weights");
    assert_eq!(evaluation["split"], "test");
}

#[test]
fn the_best_checkpoint_is_kept_and_used() {
    let stage = Stage::with_series();
    // So fast that what was learnt is lost again.
    let settings = "--set training.epochs=8 --set model.hidden=4 --set training.batch_size=16 --set training.lr=0.1";
    let answer = stage.succeeds(&format!("train --data series.h5 --out run {settings}"));
    let best = answer["best_validation"]["step"].as_u64().unwrap();
    let lowest = losses(&stage, "run", "validation").into_iter().fold(f64::INFINITY, f64::min);
    let validations = stage.metrics("run", "validation");
    assert!(validations.iter().any(|metric| metric["step"] == best && metric["loss"] == lowest), "{best}");
    assert!(best < 54, "the best is not among the last three: {best}");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut kept: Vec<String> = std::fs::read_dir(stage.path("run/checkpoints")).unwrap().map(name).collect();
    kept.sort();
    assert_eq!(kept, [best, 54, 63, 72].map(|step| format!("step-{step:08}")));

    assert_eq!(answer["evaluation"]["step"], best);
    for (checkpoint, step) in [("", best), ("--checkpoint best", best), ("--checkpoint last", 72)] {
        assert_eq!(stage.succeeds(&format!("eval --run run {checkpoint}"))["step"], step, "{checkpoint}");
        let line = format!("predict --run run --samples 0..1 --out one.csv {checkpoint}");
        assert_eq!(stage.succeeds(&line)["step"], step, "{checkpoint}");
    }
}

#[test]
fn checkpoints_are_saved_and_kept_as_asked() {
    let stage = Stage::with_series();
    let settings = "--max-steps 18 --set model.hidden=4 --set training.batch_size=16 --set training.checkpoint_every_steps=4 \
                    --set training.keep_checkpoints=5 --set training.keep_best_checkpoint=false";
    stage.succeeds(&format!("train --data series.h5 --out run {settings}"));
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut kept: Vec<String> = std::fs::read_dir(stage.path("run/checkpoints")).unwrap().map(name).collect();
    kept.sort();
    assert_eq!(kept, [8, 9, 12, 16, 18].map(|step| format!("step-{step:08}")));
    stage.succeeds(&format!("train --data series.h5 --out one {}", settings.replace("checkpoints=5", "checkpoints=1")));
    assert_eq!(std::fs::read_dir(stage.path("one/checkpoints")).unwrap().count(), 1);
    assert!(stage.checkpoint("one", 18) == stage.checkpoint("run", 18));
}

#[test]
fn a_profile_is_in_the_log_the_trace_and_the_report_of_a_run_that_asks_for_it() {
    let stage = Stage::with_series();
    let line = "train --data series.h5 --max-steps 3 --set model.hidden=4 --set model.layers=2 --out";
    stage.succeeds(&format!("{line} off"));
    stage.succeeds(&format!("{line} on --set training.profile=true"));
    for (run, is_on) in [("off", false), ("on", true)] {
        assert!(stage.metrics(run, "step").iter().all(|step| step["profile"].is_object() == is_on));
        assert_eq!(stage.text(&format!("{run}/report.html")).contains("Time by layer"), is_on);
        assert_eq!(stage.text(&format!("{run}/trace.json")).contains("weight_gradients_s"), is_on);
    }
    let layers = stage.metrics("on", "step")[2]["profile"]["layers"].clone();
    assert_eq!((&layers[3]["timeframe"], &layers[3]["layer"]), (&"M5".into(), &1.into()));
    assert!(layers[3]["recurrence_s"].as_f64().unwrap() > 0.0, "{layers}");
    assert!(stage.checkpoint("on", 3) == stage.checkpoint("off", 3));
}

#[test]
fn the_loss_scale_goes_as_asked_and_a_resumed_run_may_change_that() {
    let stage = Stage::with_series();
    let settings = "--set model.hidden=4 --set training.batch_size=16 --set training.precision=fp16 --set training.loss_scale_initial=8 \
                    --set training.loss_scale_growth_interval=2 --set training.loss_scale_growth_factor=4 --set training.loss_scale_ceiling=128";
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 9 {settings}"));
    let scales =
        || stage.metrics("run", "step").iter().map(|step| step["loss_scale"].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(scales(), [8.0, 8.0, 32.0, 32.0, 128.0, 128.0, 128.0, 128.0, 128.0]);
    let resume = "train --out run --resume --max-steps 11 --set training.loss_scale_ceiling=64";
    let told = stage.told(resume);
    assert!(told.contains("training.loss_scale_ceiling is 64, it was 128"), "{told}");
    assert_eq!(scales()[9..], [64.0, 64.0]);
    for (setting, expected) in [
        ("loss_scale_backoff_factor=1.5", "training.loss_scale_backoff_factor is 1.5: expected a number in (0, 1)"),
        ("loss_scale_floor=16", "training.loss_scale_initial is 8: expected a number from the floor to the ceiling"),
        ("loss_scale_growth_interval=0", "training.loss_scale_growth_interval = 0"),
    ] {
        let [message, _] =
            stage.fails(&format!("train --data series.h5 --out none {settings} --set training.{setting}"), 2);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_seed_decides_and_the_number_of_threads_does_not() {
    let stage = Stage::with_series();
    // A batch of 70 is more than two threads can take in one round.
    let settings = "--max-steps 4 --set model.hidden=4 --set training.batch_size=70";
    for (run, more) in [
        ("one", "--set training.threads=1"),
        ("again", "--set training.threads=1"),
        ("two", "--set training.threads=2"),
        ("three", "--set training.threads=3"),
        ("other", "--set training.threads=1 --set training.seed=1"),
    ] {
        stage.succeeds(&format!("train --data series.h5 --out {run} {settings} {more}"));
    }
    let one = stage.checkpoint("one", 4);
    for run in ["again", "two", "three"] {
        assert!(stage.checkpoint(run, 4) == one, "{run}");
    }
    assert!(stage.checkpoint("other", 4)[0] != one[0]);
}

#[test]
fn max_steps_decides_whatever_epochs_says() {
    let stage = Stage::with_series();
    for (run, steps) in [("earlier", 4_u64), ("later", 25)] {
        let line = format!("train --data series.h5 --out {run} --set training.epochs=2 --max-steps {steps} {SMALL}");
        let answer = stage.succeeds(&line);
        assert_eq!((&answer["steps"], &answer["finished"]), (&steps.into(), &true.into()), "{run}");
        assert_eq!(stage.metrics(run, "step").len() as u64, steps, "{run}");
        stage.checkpoint(run, steps);
    }
    // As far as both went, they went the same way.
    let [earlier, later] = ["earlier", "later"].map(|run| losses(&stage, run, "step"));
    assert_eq!(earlier, later[..4]);
}

#[test]
fn training_goes_on_from_weights_given() {
    let stage = Stage::with_series();
    stage.succeeds(&format!("train --data series.h5 --out first --max-steps 60 {SMALL}"));
    stage.succeeds("export --run first --checkpoint last --out model.safetensors");
    stage.succeeds(&format!("train --data series.h5 --out second --init model.safetensors --max-steps 1 {SMALL}"));
    // The first batch is the same in both runs.
    let [first, second] = ["first", "second"].map(|run| losses(&stage, run, "step")[0]);
    assert!(second < 0.8 * first, "{second} after training, {first} before");
    // A run that was killed before its first checkpoint begins again with the same weights.
    std::fs::remove_dir_all(stage.path("second/checkpoints")).unwrap();
    stage.succeeds("train --out second --resume");
    assert_eq!(losses(&stage, "second", "step")[0], second);
}

#[test]
fn the_learning_rate_follows_its_schedule() {
    let stage = Stage::with_series();
    let schedule = "--set training.lr=0.02 --set training.lr_schedule=cosine --set training.warmup_steps=4 --set training.lr_min=0.002";
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 14 --set model.hidden=4 {schedule}"));
    let rates: Vec<f64> = stage.metrics("run", "step").iter().map(|step| step["lr"].as_f64().unwrap()).collect();
    let expected = (0..14).map(|step| match step {
        0..4 => 0.02 * f64::from(step + 1) / 4.0,
        _ => 0.002 + 0.018 * 0.5 * (1.0 + (std::f64::consts::PI * f64::from(step - 3) / 10.0).cos()),
    });
    for (step, (rate, expected)) in rates.iter().zip(expected).enumerate() {
        assert!((rate - expected).abs() < 1e-12, "step {step}: {rate} for {expected}");
    }
    let [message, _] = stage.fails("train --out run --resume --max-steps 20", 2);
    assert!(message.contains("training.lr_schedule") || message.contains("steps"), "{message}");
}

#[test]
fn one_cycle_rises_and_falls_and_goes_on_bit_for_bit() {
    let stage = Stage::with_series();
    let settings = "--set training.lr=0.02 --set training.lr_schedule=one_cycle --set training.pct_start=0.25 --set training.div_factor=4 \
                    --set training.beta1=0.8 --set training.beta2=0.99 --set training.epsilon=1e-6 --set model.hidden=4";
    stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=2 {settings}"));
    let rates: Vec<f64> = stage.metrics("run", "step").iter().map(|step| step["lr"].as_f64().unwrap()).collect();
    // Six steps, of which the peak is the half of one.
    let fallen = |step: u32| 0.5 * (1.0 + (std::f64::consts::PI * (f64::from(step) - 0.5) / 4.5).cos());
    let expected = (0..6).map(|step| match step {
        0 => 0.005,
        _ => 0.02 * fallen(step) + 0.005 / 1e4 * (1.0 - fallen(step)),
    });
    assert_eq!(rates.len(), 6);
    for (step, (rate, expected)) in rates.iter().zip(expected).enumerate() {
        assert!((rate - expected).abs() < 1e-12, "step {step}: {rate} for {expected}");
    }
    let state: Value = serde_json::from_str(&stage.text("run/checkpoints/step-00000006/state.json")).unwrap();
    let optimizer = &state["run"]["optimizer"];
    assert_eq!([&optimizer["beta1"], &optimizer["beta2"], &optimizer["epsilon"]], [0.8, 0.99, 1e-6]);
    // As if it had been killed before its last checkpoint.
    let whole = stage.checkpoint("run", 6);
    std::fs::remove_dir_all(stage.path("run/checkpoints/step-00000006")).unwrap();
    stage.succeeds("train --out run --resume");
    assert!(stage.checkpoint("run", 6) == whole);
    let [message, _] = stage.fails("train --out run --resume --set training.beta1=0.9", 2);
    assert!(message.contains("training.beta1 0.8, but this run has 0.9"), "{message}");
    let [message, _] =
        stage.fails(&format!("train --data series.h5 --out other {settings} --set training.warmup_steps=5"), 2);
    assert!(
        message.contains("training.warmup_steps is 5: expected 0 with training.lr_schedule one_cycle"),
        "{message}"
    );
}

#[test]
fn quantiles_lie_above_their_share_of_the_targets() {
    let stage = Stage::with_series();
    let mut above = Vec::new();
    for (run, level) in [("low", 0.1), ("high", 0.9)] {
        let settings = format!("--set training.loss=quantile --set training.quantile={level} --set training.epochs=12");
        let answer = stage.succeeds(&format!("train --data series.h5 --out {run} {SMALL} {settings}"));
        let note = answer["notes"][0].as_str().unwrap();
        assert!(note.starts_with("training.quantile leaves out the median"), "{note}");
        stage.succeeds(&format!("predict --run {run} --samples 0..140 --out {run}.csv"));
        let predictions = stage.text(&format!("{run}.csv"));
        let numbers = |line: &str| line.split(',').map(|x| x.parse::<f32>().unwrap_or(f32::NAN)).collect::<Vec<_>>();
        above.push(predictions.lines().skip(1).map(numbers).collect::<Vec<_>>());
    }
    let (low, high) = (&above[0], &above[1]);
    // The two targets come after them.
    let outputs = low[0].len() - 4..low[0].len() - 2;
    let ordered = low.iter().zip(high).filter(|(low, high)| outputs.clone().all(|k| low[k] < high[k])).count();
    assert!(ordered > 130, "{ordered} of 140 predictions of 0.9 lie above those of 0.1");
    let [message, _] =
        stage.fails("train --data series.h5 --out none --set training.loss=quantile --set training.quantile=0", 2);
    assert!(message.contains("training.quantile = 0: expected a number above 0 and below 1"), "{message}");
}

#[test]
fn a_run_that_no_longer_improves_ends_early_and_stays_ended() {
    let stage = Stage::with_series();
    let patience =
        "--set training.early_stopping=3 --set training.early_stopping_min_delta=1000 --set training.epochs=50";
    let line = format!("train --data series.h5 --out run {SMALL} {patience} --set training.validate_every_steps=2");
    let answer = stage.succeeds(&line);
    assert_eq!((&answer["finished"], &answer["ended_early"]), (&true.into(), &true.into()));
    // The first of the validations, two steps apart, sets the mark that three more do not better by
    // a thousand.
    assert_eq!(answer["steps"], 8);
    assert!(answer["evaluation"]["rmse"].is_array(), "a run that ended early is evaluated");
    let again = stage.succeeds("train --out run --resume");
    assert_eq!((&again["steps"], &again["ended_early"]), (&8.into(), &true.into()));
    for (line, best) in
        [(line.replace("--out run", "--out other").as_str(), "epoch 1"), ("train --out run --resume", "step ")]
    {
        let told = stage.told(line);
        let says = format!(" for 3 validations (best: {best}");
        assert!(told.contains("stopped early: no better validation ") && told.contains(&says), "{told}");
    }
}

#[test]
fn huber_is_gentler_with_large_errors() {
    let stage = Stage::with_series();
    for (run, loss) in
        [("mse", "--set training.loss=mse"), ("huber", "--set training.loss=huber --set training.huber_delta=0.1")]
    {
        stage.succeeds(&format!("train --data series.h5 --out {run} --max-steps 1 {SMALL} {loss}"));
    }
    let [mse, huber] = ["mse", "huber"].map(|run| losses(&stage, run, "step")[0]);
    // Of an error e far above 0.1 it makes 0.1 (|e| - 0.05), and its mean is at most that of the
    // root of the mean square.
    assert!(huber < 0.1 * mse.sqrt() && huber > 0.04 * mse.sqrt(), "{huber} for {mse}");
    let evaluation: Value = serde_json::from_str(&stage.text("huber/evaluation.json")).unwrap();
    assert_eq!(evaluation, stage.succeeds("eval --run huber"), "eval judges by the loss of the run");
}

/// Settings under which states are carried, units dropped, and runs short enough for the two to
/// matter.
const CARRYING: &str =
    "--set training.carry_state=true --set model.layers=2 --set model.dropout=0.25 --set training.run_length=4";

#[test]
fn carried_state_and_dropout_go_on_bit_for_bit() {
    let stage = Stage::with_series();
    let settings = format!("train --data series.h5 {SMALL} {CARRYING}");
    stage.succeeds(&format!("{settings} --out whole --max-steps 13"));
    stage.succeeds(&format!("{settings} --out parted --max-steps 6"));
    stage.succeeds("train --out parted --resume --max-steps 13");
    assert!(stage.checkpoint("whole", 13) == stage.checkpoint("parted", 13));
}

#[test]
fn predictions_of_carried_state_do_not_depend_on_what_else_is_asked_for() {
    let stage = Stage::with_series();
    let answer = stage.succeeds(&format!("train --data series.h5 --out run --max-steps 5 {SMALL} {CARRYING}"));
    let evaluation: Value = serde_json::from_str(&stage.text("run/evaluation.json")).unwrap();
    assert_eq!(evaluation, stage.succeeds("eval --run run"));
    assert_eq!(evaluation, answer["evaluation"]);
    stage.succeeds("predict --run run --samples 0..200 --out all.csv");
    stage.succeeds("predict --run run --samples 150..153 --out some.csv");
    let [all, some] = ["all.csv", "some.csv"].map(|name| stage.text(name));
    let rows: Vec<&str> = all.lines().skip(1).collect();
    assert_eq!(some.lines().skip(1).collect::<Vec<_>>(), rows[150..153]);
}

#[test]
fn state_is_carried_over_series_only() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 60 --steps 5 --features 3 --targets 2");
    let [message, _] =
        stage.fails("train --data windows.h5 --out run --set training.carry_state=true --set data.purge=0s", 2);
    assert!(message.contains("training.carry_state"), "{message}");
}

#[test]
fn settings_without_effect_are_told() {
    let stage = Stage::with_series();
    for (settings, told) in [
        ("model.dropout=0.2", "model.dropout has no effect on a model of one layer"),
        ("training.huber_delta=2", "training.huber_delta has no effect without training.loss huber"),
        ("training.beta1=0.8 --set training.optimizer=sgd", "training.beta1 has no effect with training.optimizer sgd"),
        ("training.loss_scale_initial=8", "training.loss_scale_initial has no effect without training.precision fp16"),
        ("training.autotune=fast", "training.autotune has no effect on the CPU"),
        (
            "training.validate_every_steps=3 --set data.split=[0.8,0,0.2]",
            "training.validate_every_steps has no effect without samples",
        ),
        ("data.walk_forward_overlap=0.5", "data.walk_forward_overlap has no effect without data.walk_forward"),
        ("model.graph_heads=2", "model.graph_heads has no effect without graph attention"),
        ("model.readout=mean", "model.readout has no effect without graphs"),
        ("model.pooling_heads=2", "model.pooling_heads has no effect without model.pooling attention"),
        ("gpu_optimization.pin_memory=false", "gpu_optimization.pin_memory has no effect on the CPU"),
        ("gpu_optimization.chunk_size_gb=1", "gpu_optimization.chunk_size_gb has no effect on series"),
        ("training.lr_min=0.0001", "training.lr_min has no effect"),
        ("training.div_factor=10", "training.div_factor has no effect without training.lr_schedule one_cycle"),
        ("training.quantile=0.9", "training.quantile has no effect"),
        ("training.tf32=true", "training.tf32 has no effect on the CPU"),
        ("training.warmup_steps=500", "training.warmup_steps is 500 of 30 steps"),
        ("training.early_stopping_min_delta=1", "training.early_stopping_min_delta has no effect"),
        ("gpu_optimization.num_workers=4", "gpu_optimization.num_workers has no effect"),
        ("training.batch_size=1000", "an optimizer step takes 1000 samples and there are 140"),
        ("data.purge=0s", "data.purge leaves "),
        (
            "training.gradient_checkpointing=true --set training.threads=1",
            "training.gradient_checkpointing saves none of the ",
        ),
    ] {
        let plan = stage.succeeds(&format!("plan --data series.h5 --set {settings}"));
        let notes = plan["notes"].as_array().unwrap();
        assert!(notes.len() == 1 && notes[0].as_str().unwrap().starts_with(told), "{settings}: {notes:?}");
    }
    stage.succeeds("synth long.h5 --samples 2000 --timeframes M1:64 --features 3 --targets 2");
    let plan = stage.succeeds("plan --data long.h5 --set training.gradient_checkpointing=true");
    assert!(!plan["notes"].to_string().contains("gradient_checkpointing"), "{plan}");
    // Bars were split by time without a word.
    for command in ["plan --data series.h5", "train --data series.h5 --out run"] {
        let [message, _] = stage.fails(&format!("{command} --set data.folds=5"), 2);
        assert!(message.starts_with("data.folds=5 has no effect on bars and windows: "), "{message}");
    }
    let plan = stage.succeeds("plan --data series.h5 --set model.dropout=0.2 --set model.layers=2");
    assert_eq!(plan["notes"], serde_json::json!([]));
}
