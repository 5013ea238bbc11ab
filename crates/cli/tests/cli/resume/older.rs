//! A run of an older version, whose settings had other names, goes on.

use std::fs;
use std::path::Path;

use crate::stage::{SMALL, Stage};

/// Seven steps of the version before the settings were renamed, without report and pictures.
const OLDER_RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/resume/older_run");
/// Seven steps of the last version that had two forms of the computation, in the one that has left.
const PLAIN_FORM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/resume/plain_form");

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// The older run has `training.mode: dense`, `training.tuning` and `training.explosion_factor`. Its
/// first steps may have been computed by other instructions than this machine's, so that losses are
/// compared and not bits.
#[test]
fn a_run_of_an_older_version_goes_on() {
    let stage = Stage::with_series();
    copy(Path::new(OLDER_RUN), &stage.path("run"));
    for name in ["training.mode", "training.tuning", "training.explosion_factor"] {
        let key = name.strip_prefix("training.").unwrap();
        assert!(stage.text("run/config.yaml").contains(&format!("\n  {key}: ")), "the older run has no {name}");
    }
    stage.succeeds("train --out run --resume --data series.h5 --max-steps 12");
    let settings = "--set training.loss_on=every_step --set training.run_length=8 --set training.autotune=off \
                    --set training.loss_spike_factor=50 --set training.target_scaling=none";
    stage.succeeds(&format!("train --data series.h5 --out whole --max-steps 12 {SMALL} {settings}"));
    assert_same_losses(&stage);
}

#[test]
fn a_run_of_the_plain_form_goes_on() {
    let stage = Stage::with_series();
    copy(Path::new(PLAIN_FORM), &stage.path("run"));
    assert!(stage.text("run/config.yaml").contains("\n  form: plain\n"));
    let resumed = stage.run("train --out run --resume --data series.h5 --max-steps 12").success();
    let told = String::from_utf8_lossy(&resumed.get_output().stderr);
    assert!(told.contains("training.form plain and goes on with"), "{told}");
    let settings = "--set model.layers=2 --set model.dropout=0.2 --set model.pooling=attention \
                    --set model.fusion=attention --set training.loss=huber --set training.seed=5 \
                    --set training.target_scaling=none";
    stage.succeeds(&format!("train --data series.h5 --out whole --max-steps 12 {SMALL} {settings}"));
    assert_same_losses(&stage);
}

/// Compares the losses of `run` and `whole`, which have twelve steps each.
fn assert_same_losses(stage: &Stage) {
    let [resumed, whole] = ["run", "whole"].map(|run| stage.metrics(run, "step"));
    assert_eq!((resumed.len(), whole.len()), (12, 12));
    for (resumed, whole) in resumed.iter().zip(&whole) {
        let [resumed, whole] = [resumed, whole].map(|step| step["loss"].as_f64().unwrap());
        assert!((resumed - whole).abs() <= 1e-4 * whole.abs(), "{resumed} beside {whole}");
    }
}
