//! Targets are scaled within a run alone: what it learns of small returns, and what leaves it.

use crate::stage::{SMALL, Stage, dataset};

/// Log returns of minutes, whose deviation is some 1e-4, without keys of another split.
fn returns() -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 8 --seed 5");
    stage.succeeds(
        "ingest bars.csv --out series.h5 --timeframes M1:8,M5:4 --features body,range --target log_return --horizon 2 \
         --stride 8",
    );
    stage
}

/// The mean over targets of the model's RMSE over that of the mean.
fn beside_the_mean(evaluation: &serde_json::Value) -> f64 {
    let rmse = |errors: &serde_json::Value| -> f64 {
        errors["rmse"].as_array().unwrap().iter().map(|rmse| rmse.as_f64().unwrap()).sum()
    };
    rmse(evaluation) / rmse(&evaluation["baselines"]["mean"])
}

/// Minutes' log returns ended at 30 to 140 times the error of the best baseline.
#[test]
fn small_returns_are_learnt() {
    let stage = returns();
    for (scaling, share) in [("auto", 0.0..1.1), ("none", 10.0..1e4)] {
        let train = format!("train --data series.h5 --out {scaling} {SMALL} --max-steps 40");
        let answer = stage.succeeds(&format!("{train} --set training.target_scaling={scaling}"));
        let found = beside_the_mean(&answer["evaluation"]);
        assert!(share.contains(&found), "{scaling}: {found}");
        // Within the run the loss is that of scaled targets: 1 is the mean's.
        let best = answer["best_validation"]["loss"].as_f64().unwrap();
        assert_eq!((0.5..2.0).contains(&best), scaling == "auto", "{best}");
        let evaluation = stage.succeeds(&format!("eval --run {scaling}"));
        assert_eq!(evaluation["rmse"], answer["evaluation"]["rmse"]);
    }
}

#[test]
fn weights_that_leave_a_run_have_the_unit_of_the_targets() {
    let stage = returns();
    stage.succeeds(&format!("train --data series.h5 --out run {SMALL} --max-steps 20"));
    stage.succeeds("export --run run --format safetensors --out weights.safetensors");
    stage.succeeds(&format!("import weights.safetensors --data series.h5 --out imported {SMALL}"));
    for run in ["run", "imported"] {
        stage.succeeds(&format!("predict --run {run} --data series.h5 --out {run}.h5"));
    }
    let [(_, own), (_, imported)] =
        ["run.h5", "imported.h5"].map(|file| dataset::<f32>(&stage.path(file), "predictions"));
    assert_eq!(own, imported);
    assert!(own.iter().all(|y| y.abs() < 2e-3), "log returns of minutes");

    stage.succeeds(&format!("train --data series.h5 --out further --init weights.safetensors {SMALL} --max-steps 1"));
    for run in ["imported", "further"] {
        assert!(stage.text(&format!("{run}/config.yaml")).contains("\n  target_scaling: none\n"), "{run}");
    }
    let step = &stage.metrics("further", "step")[0];
    assert!(step["loss"].as_f64().unwrap() < 1e-4, "the first step of --init is in the unit of the targets: {step}");
}

/// A run whose checkpoint has no scales goes on without them.
#[test]
fn a_run_that_began_without_scaling_goes_on_without() {
    let stage = returns();
    let train = format!("train --data series.h5 {SMALL} --set training.target_scaling=none");
    stage.succeeds(&format!("{train} --out whole --max-steps 8"));
    stage.succeeds(&format!("{train} --out run --max-steps 4"));
    let config = stage.text("run/config.yaml").replace("  target_scaling: none\n", "");
    assert!(!config.contains("target_scaling"));
    std::fs::write(stage.path("run/config.yaml"), config).unwrap();
    stage.succeeds("train --out run --resume --max-steps 8");
    let weights = |run: &str| stage.read(&format!("{run}/checkpoints/step-00000008/model.safetensors"));
    assert!(weights("run") == weights("whole"));
}
