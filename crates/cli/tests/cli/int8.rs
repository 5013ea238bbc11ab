//! Predictions with weights in eight bits, and the report of what that changes.

use crate::stage::{Stage, dataset, numbers};

#[test]
fn eval_says_what_eight_bits_change_and_predict_computes_in_them() {
    let stage = Stage::with_run();
    let exact = stage.succeeds("eval --run run");
    let int8 = stage.succeeds("eval --run run --int8");
    let report = &int8["int8"];
    assert_eq!(report["as_trained"]["rmse"], exact["rmse"]);
    assert_eq!(int8["baselines"], exact["baselines"]);
    for (rmse, as_trained) in numbers(&int8["rmse"]).into_iter().zip(numbers(&exact["rmse"])) {
        assert!(rmse != as_trained && (rmse - as_trained).abs() < 0.02 * as_trained, "{rmse} beside {as_trained}");
    }
    let names: Vec<&str> =
        report["weights"].as_array().unwrap().iter().map(|tensor| tensor["tensor"].as_str().unwrap()).collect();
    let expected = ["M1.weight_ih_l0", "M1.weight_hh_l0", "M5.weight_ih_l0", "M5.weight_hh_l0"];
    assert_eq!(names, expected.map(|name| format!("lstm.{name}")));
    assert!(report["weights"][0]["sqnr_db"].as_f64().unwrap() > 30.0, "{report}");

    stage.succeeds("predict --run run --out exact.h5");
    assert_eq!(stage.succeeds("predict --run run --int8 --out int8.h5")["int8"], true);
    let [(shape, exact), (_, int8)] =
        ["exact.h5", "int8.h5"].map(|file| dataset::<f32>(&stage.path(file), "predictions"));
    assert_eq!(shape, [200, 2]);
    let largest = exact.iter().zip(&int8).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
    // Of the test split, which is some of these samples.
    let max_error = report["predictions"]["max_error"].as_f64().unwrap();
    assert!(max_error > 0.0 && max_error <= largest && largest < 0.05, "{max_error} of {largest}");
    assert!(report["predictions"]["rms_error"].as_f64().unwrap() <= max_error);

    let text = stage.said("eval --run run --int8");
    assert!(text.contains("RMSE in eight bits") && text.contains("lstm.M5.weight_hh_l0"), "{text}");
}

#[test]
fn predictions_in_eight_bits_are_timed() {
    let stage = Stage::new();
    let answer = stage.succeeds("bench predict --model single --batch 1 --features 3 --hidden 4 --batches 1 --int8");
    assert!(answer["int8"] == true && answer["samples_per_s"].as_f64().unwrap() > 0.0, "{answer}");
}
