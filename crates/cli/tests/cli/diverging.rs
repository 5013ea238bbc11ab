//! Runs that diverge: they end with exit code 5, or go back and on by themselves.

use serde_json::Value;

use crate::stage::Stage;

/// Such a rate that the loss explodes within a few steps, and a checkpoint every nine of them.
const RECKLESS: &str = "--set training.optimizer=sgd --set training.lr=1000 --set training.clip_norm=none --set model.hidden=4 \
                        --set gpu_optimization.batch_size=16 --set training.epochs=3 --set training.loss_spike_factor=100";
const NUMERIC: i32 = 5;

#[test]
fn a_run_rolls_back_until_its_rate_is_low_enough() {
    let stage = Stage::with_series();
    let rollback = "--set training.max_rollbacks=30";
    let answer = stage.succeeds(&format!("train --data series.h5 --out run {RECKLESS} {rollback}"));
    let rollbacks = answer["rollbacks"].as_u64().unwrap();
    assert!(rollbacks > 0 && answer["finished"] == true, "{answer}");

    let steps = stage.metrics("run", "step");
    let numbers: Vec<u64> = steps.iter().map(|step| step["step"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=27).collect::<Vec<_>>(), "each step is told once");
    let told = stage.metrics("run", "rollback");
    assert_eq!(told.len() as u64, rollbacks);
    for (n, line) in (1..).zip(&told) {
        assert_eq!((&line["rollbacks"], &line["rate_factor"]), (&n.into(), &0.5f64.powi(n).into()));
        assert!(line["failed_step"].as_u64() > line["step"].as_u64(), "{line}");
    }
    assert_eq!(steps[26]["lr"], 1000.0 * 0.5f64.powi(rollbacks as i32));
    let state: Value = serde_json::from_str(&stage.text("run/checkpoints/step-00000027/state.json")).unwrap();
    assert_eq!(state["course"]["rollbacks"], rollbacks);

    // As if it had been killed before its last checkpoint.
    let whole = stage.checkpoint("run", 27);
    std::fs::remove_dir_all(stage.path("run/checkpoints/step-00000027")).unwrap();
    assert_eq!(stage.succeeds("train --out run --resume")["rollbacks"], rollbacks);
    assert!(stage.checkpoint("run", 27) == whole);
    assert_eq!(stage.metrics("run", "rollback"), told);
}

#[test]
fn a_run_that_may_not_go_back_further_ends_and_can_be_resumed() {
    let stage = Stage::with_series();
    let train = format!("train --data series.h5 {RECKLESS}");
    let first = stage.run(&format!("{train} --out first --set training.on_nan=stop")).code(NUMERIC);
    let message = String::from_utf8(first.get_output().stderr.clone()).unwrap();
    assert!(message.contains("times the median of the last steps") || message.contains("not finite"), "{message}");
    assert!(message.contains("or clip gradients to a lower norm"), "{message}");

    let run = stage.run(&format!("{train} --out run --set training.max_rollbacks=1"));
    let run = run.code(NUMERIC).stdout("");
    let told = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    assert!(told.contains("clip gradients to a lower norm; back to step "), "{told}");
    assert!(told.contains("and on with 0.5 of the learning rate (rollback 1 of 1)"), "{told}");
    assert!(told.contains("megabatch: diverged again after rollback 1, the last one allowed"), "{told}");
    // Progress and notes come before the error, which is one line.
    let json = stage.run(&format!("{train} --out json --set training.max_rollbacks=1 --json")).code(NUMERIC);
    let told = String::from_utf8(json.get_output().stderr.clone()).unwrap();
    let error: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert!(error["error"].as_str().unwrap().contains("diverged again after rollback 1"), "{told}");
    let answer = stage.succeeds("train --out run --resume --set training.max_rollbacks=30");
    assert!(answer["rollbacks"].as_u64().unwrap() > 1, "{answer}");
}
