//! Values that no model can learn from.

use serde_json::{Value, json};

use super::NUMERIC;
use crate::stage::Stage;

#[test]
fn values_that_are_not_finite_are_named_and_end_training() {
    const WINDOW: usize = 4 * 3;
    for (object, index, value) in [
        ("features", 5 * WINDOW + 2 * 3 + 1, f32::NAN),
        ("features", 0, f32::INFINITY),
        ("targets", 7 * 2 + 1, f32::NEG_INFINITY),
    ] {
        let stage = Stage::new();
        stage.succeeds("synth windows.h5 --layout windows --samples 100 --steps 4 --features 3 --targets 2");
        set(&stage, object, index, value);

        // All samples to train on are one batch here, in which they stand in the file's order.
        let train = "train --data windows.h5 --out run --set gpu_optimization.batch_size=100 \
             --set training.run_length=batch --set model.hidden=4 \
             --set training.on_nan=stop --set data.purge=5m --json";
        let assert = stage.run(train).code(NUMERIC).stdout("");
        let error: Value = serde_json::from_slice(&assert.get_output().stderr).unwrap();
        let message = error["error"].as_str().unwrap();
        assert!(message.starts_with("windows.h5: not all numbers are finite; `megabatch inspect"), "{message}");
        assert!(message.contains("step 1: the loss is "), "{message}");
        assert!(message.contains(&format!("not finite is element {index} of {object};")), "{message}");
        assert_eq!(error["exit_code"], NUMERIC);
        assert!(stage.metrics("run", "step").is_empty());
        assert!(!stage.path("run/checkpoints").exists(), "a model that learnt from {value} was saved");

        let problem = &stage.answers("inspect windows.h5", 3)["problems"][0];
        assert_eq!((&problem["severity"], &problem["object"]), (&json!("error"), &json!(format!("/{object}"))));
        assert_eq!(
            problem["index"][0],
            json!(if object == "features" { index / WINDOW } else { index / 2 }),
            "{problem}"
        );
    }
}

fn set(stage: &Stage, object: &str, index: usize, value: f32) {
    stage.with_hdf5("windows.h5", |file| {
        let file = hdf5::File::open_rw(file).unwrap();
        let dataset = file.dataset(object).unwrap();
        let mut values = dataset.read_raw::<f32>().unwrap();
        values[index] = value;
        dataset.write_raw(&values).unwrap();
    });
}
