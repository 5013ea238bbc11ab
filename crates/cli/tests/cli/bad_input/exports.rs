//! Models that a format does not hold, and options that have no meaning for it.

use super::{Case, DATA, USAGE, check, make_run};
use crate::stage::{SMALL, Stage};

const CASES: &[Case] = &[
    Case {
        what: "an option of ONNX for safetensors",
        given: make_run,
        command: "export --run run --out model.safetensors --batch 4",
        exit_code: USAGE,
        says: &["--batch is for ONNX"],
    },
    Case {
        what: "a format and another ending",
        given: make_run,
        command: "export --run run --format onnx --out model.safetensors",
        exit_code: USAGE,
        says: &["model.safetensors: the ending of its name says the format; expected .onnx"],
    },
    Case {
        what: "a scaler that is nowhere",
        given: make_run,
        command: "export --run run --out model.onnx --fold-scaler",
        exit_code: DATA,
        says: &["series.h5: no /scaler/M1 for --fold-scaler: nothing says that its features were scaled"],
    },
    Case {
        what: "a scaler of windows",
        given: |stage| {
            stage.succeeds("synth windows.h5 --layout windows --samples 60 --steps 4 --features 3 --targets 2");
            stage.succeeds(&format!("train --data windows.h5 --out run --max-steps 1 {SMALL} --set data.purge=5m"));
        },
        command: "export --run run --out model.onnx --fold-scaler",
        exit_code: DATA,
        says: &["windows.h5: windows have no scaler for --fold-scaler"],
    },
    Case {
        what: "a model over graphs",
        given: |stage| {
            stage.succeeds("synth shares --shares 6 --days 200");
            stage.succeeds(
                "ingest shares --out shares.h5 --timeframes D1:5 --features range --target log_return --horizon 2",
            );
            stage.succeeds(
                "graph build shares --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg",
            );
            stage.succeeds(&format!(
                "train --data shares.h5 --out run --max-steps 1 --set model.graph=shares.mbg {SMALL}"
            ));
        },
        command: "export --run run --out model.onnx",
        exit_code: USAGE,
        says: &["run: its samples are the nodes of graphs", "its weights are written as safetensors"],
    },
];

#[test]
fn exports_that_would_say_something_else() {
    check(CASES);
}

#[test]
fn a_batch_has_a_sample_at_least() {
    let assert = Stage::new().run("export --run run --out model.onnx --batch 0").code(USAGE).stdout("");
    let message = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(message.contains("'--batch <N>': 0 is not in 1.."), "{message}");
}
