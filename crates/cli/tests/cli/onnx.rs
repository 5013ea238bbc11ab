//! Models as ONNX files: what is in them, seen from outside. `cargo xtask peers onnx` computes with
//! them.

use serde_json::{Value, json};

use crate::stage::{SMALL, Stage, dataset, tensor};

fn contains(file: &[u8], part: &[u8]) -> bool {
    file.windows(part.len()).any(|window| window == part)
}

fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_model_takes_its_weights_and_its_names_along() {
    let stage = Stage::with_run();
    stage.succeeds("export --run run --out model.safetensors");
    let answer = stage.succeeds("export --run run --format onnx --out model.onnx");
    assert_eq!(
        answer,
        json!({
            "out": "model.onnx",
            "step": answer["step"],
            "inputs": ["features.M1", "features.M5"],
            "outputs": 2,
            "batch": Value::Null,
            "folds_scaler": false,
        })
    );
    let (weights, file) = (stage.read("model.safetensors"), stage.read("model.onnx"));
    for name in ["head.weight", "head.bias"] {
        assert!(contains(&file, &f32_bytes(tensor(&weights, name).1)), "{name}");
    }
    for name in ["features.M5", "predictions", "megabatch", "feature_0,feature_1,feature_2"] {
        assert!(contains(&file, name.as_bytes()), "{name}");
    }
    // The gates o, f, g of ONNX are the last, the second and the third quarter of PyTorch's.
    let (_, input) = tensor(&weights, "lstm.M5.weight_ih_l0");
    let quarter = input.len() / 4;
    let order = [3, 1, 2].map(|gate| input[gate * quarter..][..quarter].to_vec()).concat();
    assert!(contains(&file, &f32_bytes(order)));
}

#[test]
fn the_ending_says_the_format_and_the_batch_can_be_fixed() {
    let stage = Stage::with_run();
    stage.succeeds("export --run run --out free.onnx");
    assert_eq!(stage.succeeds("export --run run --out fixed.onnx --batch 5")["batch"], 5);
    let [free, fixed] = ["free.onnx", "fixed.onnx"].map(|name| stage.read(name));
    // A dimension has a name (field 2) or an extent (field 1).
    assert!(contains(&free, b"\x12\x05batch") && !contains(&fixed, b"\x12\x05batch"));
    assert!(contains(&fixed, &[0x0a, 2, 8, 5, 0x0a, 2, 8, 4, 0x0a, 2, 8, 3]), "[5, 4, 3] of M1");
}

#[test]
fn the_scaler_of_the_data_is_folded_in() {
    let stage = Stage::new();
    for (seed, name) in ["EURUSD", "GBPUSD"].into_iter().enumerate() {
        stage.succeeds(&format!("synth {name}.csv --days 2 --seed {seed}"));
    }
    let recipe = "--timeframes M1:4,M5:3 --features range,log_return --horizon 2";
    for (files, out, options) in [("EURUSD.csv", "one", ""), ("EURUSD.csv GBPUSD.csv", "two", "--instrument GBPUSD")] {
        stage.succeeds(&format!("ingest {files} --out {out}.h5 {recipe}"));
        stage.succeeds(&format!("train --data {out}.h5 --out {out} --max-steps 1 {SMALL}"));
        let answer = stage.succeeds(&format!("export --run {out} --out {out}.onnx --fold-scaler {options}"));
        assert_eq!(answer["folds_scaler"], true);
        let file = stage.read(&format!("{out}.onnx"));
        for object in ["center", "scale"] {
            let (_, values) = dataset::<f64>(&stage.path(&format!("{out}.h5")), &format!("scaler/M5/{object}"));
            let own = &values[values.len() - 2..];
            assert!(contains(&file, &f32_bytes(own.iter().map(|&value| value as f32))), "{out}: {object} {own:?}");
        }
    }
    let [message, _] = stage.fails("export --run two --out other.onnx --fold-scaler", 2);
    assert!(
        message.contains("two.h5: each instrument has a scaler of its own; --instrument says whose: EURUSD, GBPUSD"),
        "{message}"
    );
    let [message, _] = stage.fails("export --run two --out other.onnx --fold-scaler --instrument USDJPY", 2);
    assert!(message.contains("--instrument USDJPY: ") && message.contains("two.h5 has EURUSD, GBPUSD"), "{message}");
}

#[test]
fn models_that_go_on_from_bar_to_bar_are_written_on_request() {
    let stage = Stage::with_series();
    let settings = "--set training.loss_on=every_step --set gpu_optimization.batch_size=16 --set model.hidden=4";
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {settings}"));
    let [message, _] = stage.fails("export --run run --out model.onnx", 2);
    assert!(message.contains("in ONNX each window starts with zeros"), "{message}");
    stage.succeeds("export --run run --out model.onnx --stateless");
    assert!(contains(&stage.read("model.onnx"), b"predictions"));
}
