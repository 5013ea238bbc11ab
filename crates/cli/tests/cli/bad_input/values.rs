//! Values that no model can learn from.

use serde_json::json;

use super::DATA;
use crate::stage::Stage;

const WINDOW: usize = 4 * 3;

const TRAIN: &str = "--max-steps 1 --set model.hidden=4 --set data.purge=5m --set gpu_optimization.batch_size=16";

/// An infinite feature of the test gave a finite RMSE, a NaN no error at all, one of the validation
/// no best step, and one of training three rollbacks. Samples that are not asked for refuse no
/// others.
#[test]
fn values_that_are_not_finite_are_named_and_end_each_command() {
    let features = |sample: usize, found: &str| {
        format!("/features[{sample}]: expected a sample of finite features, found {found} of its window;")
    };
    let target = "/targets[97]: expected finite numbers, or NaN for a target that is not known, found -inf for target 1; correct";
    // 70 samples are for training, 15 for validation and 15 for the test.
    for (object, index, value, place) in [
        ("features", 5 * WINDOW + 2 * 3 + 1, f32::NAN, features(5, "NaN for feature_1 in row 2")),
        ("features", 80 * WINDOW, f32::INFINITY, features(80, "inf for feature_0 in row 0")),
        ("features", 99 * WINDOW + 11, f32::NAN, features(99, "NaN for feature_2 in row 3")),
        ("targets", 97 * 2 + 1, f32::NEG_INFINITY, target.to_owned()),
    ] {
        let stage = Stage::new();
        stage.succeeds("synth windows.h5 --layout windows --samples 100 --steps 4 --features 3 --targets 2");
        stage.succeeds(&format!("train --data windows.h5 {TRAIN} --out trained"));
        std::fs::copy(stage.path("windows.h5"), stage.path("dirty.h5")).unwrap();
        set(&stage, object, index, value);
        let before = stage.contents();
        let sample = if object == "features" { index / WINDOW } else { index / 2 };
        let train = format!("train --data dirty.h5 {TRAIN} --out run");
        let eval = "eval --run trained --data dirty.h5 --split all";
        let predict = |samples: std::ops::Range<usize>| {
            let std::ops::Range { start, end } = samples;
            format!("predict --run trained --data dirty.h5 --samples {start}..{end} --out predictions.csv")
        };
        for command in [train.as_str(), eval, &predict(sample..sample + 1)] {
            for message in stage.fails(command, DATA) {
                assert!(message.contains(&format!("dirty.h5: {place}")), "`{command}` says {message}");
            }
        }
        assert!(stage.contents() == before, "something was left behind");
        stage.succeeds(&predict(0..3));

        let problem = &stage.answers("inspect dirty.h5", DATA)["problems"][0];
        assert_eq!((&problem["severity"], &problem["object"]), (&json!("error"), &json!(format!("/{object}"))));
        assert_eq!(problem["index"][0], json!(sample), "{problem}");
    }
}

/// Samples that the purge leaves out ended a run with their numbers, which it never reads.
#[test]
fn values_of_samples_that_no_part_has_end_no_run() {
    let stage = Stage::new();
    stage.succeeds("synth dirty.h5 --layout windows --samples 100 --steps 4 --features 3 --targets 2");
    // Validation begins with the 70th sample, and four of it are purged.
    for sample in [71, 72] {
        set(&stage, "features", sample * WINDOW, f32::NAN);
    }
    stage.succeeds(&format!("train --data dirty.h5 {TRAIN} --out run"));
    stage.succeeds("eval --run run --split test");
    let place = "/features[71]: expected a sample of finite features, found NaN for feature_0 in row 0";
    for message in stage.fails("predict --run run --samples 70..75 --out predictions.csv", DATA) {
        assert!(message.contains(place), "{message}");
    }
}

/// Errors of the test were refused for a sample of training without a word on why it is read.
#[test]
fn baselines_are_named_that_read_a_training_sample() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 100 --steps 4 --features 3 --targets 2");
    stage.succeeds(&format!("train --data windows.h5 {TRAIN} --out run"));
    std::fs::copy(stage.path("windows.h5"), stage.path("dirty.h5")).unwrap();
    set(&stage, "features", 5 * WINDOW, f32::NAN);
    for message in stage.fails("eval --run run --data dirty.h5 --split test", DATA) {
        assert!(message.contains("fitting the baselines, which takes the training samples"), "{message}");
        assert!(message.contains("dirty.h5: /features[5]: expected a sample of finite features"), "{message}");
    }
}

fn set(stage: &Stage, object: &str, index: usize, value: f32) {
    stage.with_hdf5("dirty.h5", |file| {
        let file = hdf5::File::open_rw(file).unwrap();
        let dataset = file.dataset(object).unwrap();
        let mut values = dataset.read_raw::<f32>().unwrap();
        values[index] = value;
        dataset.write_raw(&values).unwrap();
    });
}
