//! Weights and predictions that leave the program are the ones that were in it.

use serde_json::Value;

use crate::stage::{SMALL, Stage, bits, dataset, numbers, tensor};

fn predictions(stage: &Stage, file: &str) -> (Vec<usize>, Vec<f32>) {
    dataset(&stage.path(file), "predictions")
}

#[test]
fn exported_weights_come_back_the_same() {
    let stage = Stage::with_run();
    stage.succeeds("export --run run --format safetensors --out model.safetensors");
    let weights = stage.read("model.safetensors");
    for (name, shape) in [
        ("lstm.M1.weight_ih_l0", vec![16, 3]),
        ("lstm.M1.weight_hh_l0", vec![16, 4]),
        ("lstm.M5.bias_ih_l0", vec![16]),
        ("lstm.M5.bias_hh_l0", vec![16]),
        ("head.weight", vec![2, 8]),
        ("head.bias", vec![2]),
    ] {
        assert_eq!(tensor(&weights, name).0, shape, "{name}");
    }

    stage.succeeds(&format!("import model.safetensors --data series.h5 --out imported {SMALL}"));
    for (run, out) in [("run", "first.h5"), ("imported", "second.h5")] {
        stage.succeeds(&format!("predict --run {run} --data series.h5 --out {out}"));
    }
    let [(shape, first), (_, second)] = ["first.h5", "second.h5"].map(|file| predictions(&stage, file));
    assert_eq!(shape, [200, 2]);
    assert_eq!(bits(&first), bits(&second));
    assert!(first.iter().any(|y| *y != first[0]), "a model that always says the same shows nothing");

    stage.succeeds("export --run imported --out again.safetensors");
    assert!(stage.read("again.safetensors") == weights);

    // Without settings, the weights say how large the model is.
    stage.succeeds("import model.safetensors --data series.h5 --out unset --set gpu_optimization.batch_size=16");
    stage.succeeds("export --run unset --out unset.safetensors");
    assert!(stage.read("unset.safetensors") == weights);
    let [message, _] = stage.fails("import model.safetensors --data series.h5 --out other --set model.hidden=5", 3);
    assert!(message.contains("[20, 3], found [16, 3]"), "{message}");
}

#[test]
fn weights_of_one_timeframe_fit_data_that_do_not_name_theirs() {
    let stage = Stage::new();
    let synth = "--layout windows --samples 150 --features 3 --targets 2";
    stage.succeeds(&format!("synth named.h5 {synth} --timeframes M1:4"));
    stage.succeeds(&format!("synth unnamed.h5 {synth} --steps 4"));
    stage.succeeds(&format!("train --data named.h5 --out run --max-steps 1 {SMALL}"));
    stage.succeeds("export --run run --format safetensors --out model.safetensors");
    stage.succeeds(&format!("import model.safetensors --data unnamed.h5 --out imported {SMALL} --set data.purge=5m"));
    stage.succeeds("export --run imported --out again.safetensors");
    let [named, unnamed] = ["model.safetensors", "again.safetensors"].map(|file| stage.read(file));
    assert_eq!(tensor(&named, "lstm.M1.weight_hh_l0"), tensor(&unnamed, "lstm.weight_hh_l0"));
}

#[test]
fn both_forms_of_predictions_agree() {
    let stage = Stage::with_run();
    stage.succeeds("predict --run run --samples 30..75 --out part.h5");
    stage.succeeds("predict --run run --samples 30..75 --out part.csv");
    let all = stage.succeeds("predict --run run --out all.h5");
    // Errors on samples that the model was trained on say little.
    let plan: serde_json::Value = serde_json::from_str(&stage.text("run/plan.json")).unwrap();
    let [train, validation, test] = ["train", "validation", "test"].map(|part| plan["split"][part].as_u64().unwrap());
    let note = format!(
        "{} of {} samples are those of training and validation; `--split test` predicts the {test} that the model has not seen",
        train + validation,
        all["samples"]
    );
    assert_eq!(all["notes"], serde_json::json!([note]));
    assert_eq!(stage.succeeds("predict --run run --split test --out test.csv")["notes"], serde_json::json!([]));
    let (shape, part) = predictions(&stage, "part.h5");
    assert_eq!(shape, [45, 2]);
    assert_eq!(bits(&part), bits(&predictions(&stage, "all.h5").1[30 * 2..75 * 2]), "a range is a part of all");

    let csv = stage.text("part.csv");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("sample,time,h1,h2,target1,target2"));
    let (_, targets) = dataset::<f32>(&stage.path("series.h5"), "targets");
    let (_, times) = dataset::<i64>(&stage.path("part.h5"), "timestamps");
    for (k, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[0], (30 + k).to_string());
        let time: jiff::Timestamp = fields[1].parse().unwrap();
        assert_eq!(time.as_nanosecond(), i128::from(times[k]));
        let values: Vec<f32> = fields[2..].iter().map(|field| field.parse().unwrap()).collect();
        assert_eq!(bits(&values[..2]), bits(&part[k * 2..k * 2 + 2]), "{line}");
        assert_eq!(bits(&values[2..]), bits(&targets[(30 + k) * 2..(30 + k) * 2 + 2]), "{line}");
    }
    assert_eq!(csv.lines().count(), 46);
}

/// Errors of one horizon, in double precision: root mean square, mean absolute, and the share of
/// signs that are right.
fn errors(predictions: &[f32], targets: &[f32], horizon: usize) -> [f64; 3] {
    let at = |values: &[f32]| -> Vec<f64> { values.iter().skip(horizon).step_by(2).copied().map(f64::from).collect() };
    let pairs: Vec<(f64, f64)> = at(predictions).into_iter().zip(at(targets)).collect();
    let share = |sum: f64| sum / pairs.len() as f64;
    let right = pairs.iter().filter(|(y, target)| y * target > 0.0).count();
    [
        share(pairs.iter().map(|(y, target)| (y - target).powi(2)).sum()).sqrt(),
        share(pairs.iter().map(|(y, target)| (y - target).abs()).sum()),
        share(right as f64),
    ]
}

fn check_errors(found: &Value, predictions: &[f32], targets: &[f32]) {
    for (m, metric) in ["rmse", "mae", "direction_accuracy"].into_iter().enumerate() {
        let found = numbers(&found[metric]);
        assert_eq!(found.len(), 2, "{metric}: one number a horizon");
        for (horizon, found) in found.into_iter().enumerate() {
            let expected = errors(predictions, targets, horizon)[m];
            assert!((found - expected).abs() < 1e-12, "{metric} of horizon {horizon}: {found}, expected {expected}");
        }
    }
}

#[test]
fn errors_are_those_of_the_predictions() {
    let stage = Stage::with_run();
    stage.succeeds("inspect series.h5 --dump 0..200 dump.safetensors");
    stage.succeeds("predict --run run --out all.h5");
    let (_, targets) = tensor(&stage.read("dump.safetensors"), "targets");
    let answer = stage.succeeds("eval --run run --data series.h5 --split all");
    assert_eq!((&answer["samples"], &answer["split"]), (&200.into(), &"all".into()));
    check_errors(&answer, &predictions(&stage, "all.h5").1, &targets);

    let baselines = answer["baselines"].as_object().unwrap();
    assert_eq!(baselines.keys().collect::<Vec<_>>(), ["linear", "mean", "no_change"]);
    check_errors(&baselines["no_change"], &[0.0; 400], &targets);
    // Fitted on the first 140 samples.
    let mean_of = |horizon: usize| {
        let sum: f64 = targets[..280].iter().skip(horizon).step_by(2).copied().map(f64::from).sum();
        (sum / 140.0) as f32
    };
    check_errors(&baselines["mean"], &[mean_of(0), mean_of(1)].repeat(200), &targets);
    let [linear, no_change] = ["linear", "no_change"].map(|name| numbers(&baselines[name]["rmse"])[0]);
    assert!(linear < 0.9 * no_change, "half of the variance is linear in the last bar: {linear} {no_change}");
}

#[test]
fn the_parts_of_a_split_are_evaluated_apart() {
    let stage = Stage::with_run();
    let plan: Value = serde_json::from_str(&stage.text("run/plan.json")).unwrap();
    for part in ["train", "validation", "test"] {
        let answer = stage.succeeds(&format!("eval --run run --split {part}"));
        assert_eq!((&answer["split"], &answer["samples"]), (&part.into(), &plan["split"][part]));
    }
    let parts = ["train", "validation", "test", "purged"].map(|part| plan["split"][part].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), 200);
    assert!(parts[3] > 0, "{parts:?}");
}

/// A NaN among the weights passed `import`, `predict`, `eval` ("NaN % worse") and ONNX.
#[test]
fn weights_that_are_not_finite_are_refused_wherever_they_are_read() {
    let stage = Stage::new();
    stage.succeeds("synth series.h5 --samples 60 --timeframes M1:4 --features 2 --targets 2");
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 2 {SMALL}"));
    stage.succeeds("export --run run --out model.safetensors");
    let spoil = |path: &std::path::Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(path, bytes).unwrap();
    };
    spoil(&stage.path("model.safetensors"));
    let folders = std::fs::read_dir(stage.path("run/checkpoints")).unwrap().map(|one| one.unwrap().path());
    let folders: Vec<std::path::PathBuf> = folders.collect();
    folders.iter().for_each(|folder| spoil(&folder.join("model.safetensors")));
    // As if they had been written so.
    for _ in &folders {
        for which in ["best", "last"] {
            let line = format!("predict --run run --checkpoint {which} --out predictions.csv");
            let [message, _] = stage.fails(&line, 3);
            let word_after = |text: &str| message.split_once(text).and_then(|(_, rest)| rest.split([',', ';']).next());
            let sums = ["its checksum is ", "checksums.xxh128 says "].map(word_after);
            let [Some(found), Some(recorded)] = sums else { continue };
            for file in folders.iter().map(|folder| folder.join("checksums.xxh128")) {
                std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace(recorded, found)).unwrap();
            }
        }
    }
    for command in [
        &format!("import model.safetensors --data series.h5 --out imported {SMALL}"),
        &format!("train --data series.h5 --out other --init model.safetensors {SMALL}"),
        "predict --run run --out predictions.csv",
        "eval --run run",
        "export --run run --out model.onnx",
        "export --run run --out again.safetensors",
    ] {
        let [message, _] = stage.fails(command, 3);
        assert!(message.contains("model.safetensors: weights that are not finite"), "{command}: {message}");
        assert!(message.contains("expected finite numbers, found NaN at index"), "{command}: {message}");
    }
    for file in ["imported/config.yaml", "predictions.csv", "model.onnx", "again.safetensors"] {
        assert!(!stage.path(file).exists(), "{file}");
    }
}
