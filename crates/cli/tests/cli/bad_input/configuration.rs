//! Settings and arguments that cannot be meant.

use super::{Case, DEVICE, USAGE, check, make_nothing, make_series};

const SETTINGS: &[Case] = &[
    Case {
        what: "unknown key in YAML",
        given: |stage| stage.write("c.yaml", "# mine\ntraining:\n  epoch: 3\n"),
        command: "train --config c.yaml --data series.h5 --out run",
        exit_code: USAGE,
        says: &["c.yaml, line 3: unknown key `training.epoch`; the nearest known key is `training.epochs`"],
    },
    Case {
        what: "unknown key of --set",
        given: make_nothing,
        command: "plan --data series.h5 --set model.hiden=3",
        exit_code: USAGE,
        says: &["--set model.hiden=3: unknown key `model.hiden`; the nearest known key is `model.hidden`"],
    },
    Case {
        what: "out of range",
        given: |stage| stage.write("c.yaml", "training:\n  lr: -1\n"),
        command: "train --config c.yaml --data series.h5 --out run",
        exit_code: USAGE,
        says: &["c.yaml, line 2: training.lr = -1: expected a number greater than 0"],
    },
    Case {
        what: "no number",
        given: make_nothing,
        command: "train --data series.h5 --out run --set training.epochs=many",
        exit_code: USAGE,
        says: &["training.epochs = many: expected a whole number"],
    },
    Case {
        what: "shares that do not sum to 1",
        given: make_nothing,
        command: "train --data series.h5 --out run --set data.split=[0.7,0.2,0.2]",
        exit_code: USAGE,
        says: &["data.split = [0.7,0.2,0.2]: expected three shares that sum to 1"],
    },
    Case {
        what: "an unknown choice",
        given: make_nothing,
        command: "train --data series.h5 --out run --set training.precision=fp8",
        exit_code: USAGE,
        says: &["training.precision = fp8: expected auto, fp32, bf16, fp16, bf16-mixed, 16-mixed"],
    },
    Case {
        what: "mixed precision without it",
        given: make_nothing,
        command: "train --data series.h5 --out run --set training.precision=fp32 --set gpu_optimization.use_amp=true",
        exit_code: USAGE,
        says: &["gpu_optimization.use_amp is true and training.precision is fp32"],
    },
    Case {
        what: "contradiction",
        given: |stage| {
            stage.write("c.yaml", "training:\n  batch_size: 8\ngpu_optimization:\n  batch_size: 16\n");
        },
        command: "train --config c.yaml --data series.h5 --out run",
        exit_code: USAGE,
        says: &[
            "gpu_optimization.batch_size = 16 (c.yaml, line 4) contradicts training.batch_size = 8 (c.yaml, line 2)",
        ],
    },
    Case {
        what: "malformed YAML",
        given: |stage| stage.write("c.yaml", "model:\n  hidden: 8\ntraining: [1, 2\n"),
        command: "train --config c.yaml --data series.h5 --out run",
        exit_code: USAGE,
        says: &["c.yaml, line "],
    },
    Case {
        what: "a key twice",
        given: |stage| stage.write("c.yaml", "model:\n  hidden: 8\nmodel:\n  layers: 2\n"),
        command: "plan --config c.yaml --data series.h5",
        exit_code: USAGE,
        says: &["c.yaml, line 3: ", "duplicated key"],
    },
    Case {
        what: "no file",
        given: make_nothing,
        command: "train --config absent.yaml --data series.h5 --out run",
        exit_code: USAGE,
        says: &["absent.yaml: cannot be read: No such file"],
    },
    Case {
        what: "no value",
        given: make_nothing,
        command: "train --data series.h5 --out run --set training.lr",
        exit_code: USAGE,
        says: &["--set training.lr: expected key=value, such as --set training.lr=VALUE"],
    },
    Case {
        what: "a blank in place of the equals sign",
        given: make_nothing,
        command: "train --data series.h5 --out run --set training.lr 0.001",
        exit_code: USAGE,
        says: &["--set training.lr 0.001: a setting and its value are one word; write --set training.lr=0.001"],
    },
    Case {
        what: "a colon in place of the equals sign",
        given: make_nothing,
        command: "plan --data series.h5 --set training.lr:0.001",
        exit_code: USAGE,
        says: &["--set training.lr:0.001: expected key=value; write `--set training.lr=0.001`"],
    },
    Case {
        what: "no data",
        given: make_nothing,
        command: "train --out run",
        exit_code: USAGE,
        says: &["no data: give --data FILE, or data.path in the configuration"],
    },
    Case {
        what: "no folder",
        given: make_nothing,
        command: "train --data series.h5",
        exit_code: USAGE,
        says: &["no folder for the run: give --out FOLDER, or output.dir"],
    },
];

const DEVICES: &[Case] = &[
    Case {
        what: "far more than any machine has, or no driver",
        given: make_series,
        command: "train --data series.h5 --out run --device cuda:99",
        exit_code: DEVICE,
        says: &["cuda:99", "use cpu"],
    },
    Case {
        what: "unknown",
        given: make_series,
        command: "train --data series.h5 --out run --device gpu",
        exit_code: USAGE,
        says: &["`gpu`", "cpu", "cuda:"],
    },
];

#[test]
fn settings() {
    check(SETTINGS);
}

#[test]
fn devices() {
    check(DEVICES);
}
