//! Runs, weights and samples that do not belong together.

use std::fs;

use super::{Case, DATA, USAGE, check, make_run, make_series};
use crate::stage::{SMALL, Stage};

const CASES: &[Case] = &[
    Case {
        what: "resumed before it began",
        given: make_series,
        command: "train --out run --resume",
        exit_code: USAGE,
        says: &["run: not a run folder: it has no config.yaml"],
    },
    Case {
        what: "judged where its data are gone",
        given: make_run_without_data,
        command: "eval --run run",
        exit_code: DATA,
        says: &["series.h5: the data that run was trained on are not there; give their new place with --data"],
    },
    Case {
        what: "asked where its data are gone",
        given: make_run_without_data,
        command: "predict --run run --out predictions.csv",
        exit_code: DATA,
        says: &["series.h5: the data that run was trained on are not there; give their new place with --data"],
    },
    Case {
        what: "asked for the latest where its data are gone",
        given: make_run_without_data,
        command: "predict --run run --samples latest --out predictions.csv",
        exit_code: DATA,
        says: &["series.h5: the data that run was trained on are not there; give their new place with --data"],
    },
    Case {
        what: "resumed where its data are gone",
        given: make_run_without_data,
        command: "train --out run --resume",
        exit_code: DATA,
        says: &["series.h5: the data that run was trained on are not there; give their new place with --data"],
    },
    Case {
        what: "resumed with another seed",
        given: make_run,
        command: "train --out run --resume --set training.seed=9",
        exit_code: USAGE,
        says: &["made with training.seed 0, but this run has 9; resume with the settings of the checkpoint"],
    },
    Case {
        what: "resumed with another model",
        given: make_run,
        command: "train --out run --resume --set model.hidden=5",
        exit_code: USAGE,
        says: &["model.hidden"],
    },
    Case {
        what: "there already",
        given: make_run,
        command: "train --data series.h5 --out run",
        exit_code: USAGE,
        says: &["run: holds a run already; --resume goes on with it, or name another folder"],
    },
    Case {
        what: "among other files",
        given: |stage| {
            make_series(stage);
            fs::create_dir(stage.path("mine")).unwrap();
            stage.write("mine/thesis.txt", "precious");
        },
        command: "train --data series.h5 --out mine",
        exit_code: USAGE,
        says: &["mine: holds no run, but other files, such as thesis.txt; name a new or an empty folder"],
    },
    Case {
        what: "imported over",
        given: |stage| {
            make_run(stage);
            stage.succeeds("export --run run --out model.safetensors");
        },
        command: "import model.safetensors --data series.h5 --out run",
        exit_code: USAGE,
        says: &["run: holds a run already"],
    },
    Case {
        what: "begun with weights of another size",
        given: |stage| {
            make_run(stage);
            stage.succeeds("export --run run --out model.safetensors");
        },
        command: "train --data series.h5 --out other --init model.safetensors --set model.hidden=5",
        exit_code: DATA,
        says: &[
            "model.safetensors: the tensors are not those of this model",
            "lstm.M1.weight_ih_l0",
            "[20, 3]",
            "[16, 3]",
        ],
    },
    Case {
        what: "no run",
        given: make_series,
        command: "predict --run . --out predictions.h5",
        exit_code: USAGE,
        says: &[".: not a run folder: it has no config.yaml; `megabatch train --out` makes one"],
    },
    Case {
        what: "without a checkpoint",
        given: |stage| {
            make_run(stage);
            fs::remove_dir_all(stage.path("run/checkpoints")).unwrap();
        },
        command: "eval --run run",
        exit_code: USAGE,
        says: &["run: the run has no checkpoint yet"],
    },
    Case {
        what: "whose checkpoint is damaged",
        given: |stage| {
            make_run(stage);
            for checkpoint in fs::read_dir(stage.path("run/checkpoints")).unwrap() {
                fs::write(checkpoint.unwrap().path().join("model.safetensors"), "weights").unwrap();
            }
        },
        command: "eval --run run",
        exit_code: DATA,
        says: &[
            "model.safetensors: damaged: ",
            "; remove the folder run/checkpoints/step-",
            "the checkpoint before it is used",
        ],
    },
    Case {
        what: "begun with weights that are none",
        given: |stage| {
            make_series(stage);
            stage.write("model.safetensors", "no weights");
        },
        command: "import model.safetensors --data series.h5 --out run",
        exit_code: DATA,
        says: &["model.safetensors: not a readable safetensors file"],
    },
    Case {
        what: "evaluated on data of another shape",
        given: |stage| {
            make_run(stage);
            stage.succeeds("synth other.h5 --samples 200 --timeframes M1:4,M5:3 --features 5 --targets 2");
        },
        command: "eval --run run --data other.h5",
        exit_code: DATA,
        says: &["the model takes ", "but the samples are ", "use data made as the training data was"],
    },
    Case {
        what: "asked about data of another shape",
        given: |stage| {
            make_run(stage);
            stage.succeeds("synth other.h5 --samples 200 --timeframes M1:4 --features 3 --targets 2");
        },
        command: "predict --run run --data other.h5 --out predictions.h5",
        exit_code: DATA,
        says: &["the model takes ", "but the samples are "],
    },
    Case {
        what: "dense, evaluated on windows",
        given: make_dense_run_and_windows,
        command: "eval --run run --data windows.h5",
        exit_code: USAGE,
        says: &["training.loss_on is every_step: expected last_step", "`megabatch convert`"],
    },
    Case {
        what: "dense, asked about windows",
        given: make_dense_run_and_windows,
        command: "predict --run run --data windows.h5 --out predictions.h5",
        exit_code: USAGE,
        says: &["training.loss_on is every_step: expected last_step", "`megabatch convert`"],
    },
    Case {
        what: "asked about samples beyond the end",
        given: make_run,
        command: "predict --run run --samples 100..201 --out predictions.h5",
        exit_code: USAGE,
        says: &["--samples 100..201: ", "series.h5 has 200 samples"],
    },
    Case {
        what: "dumped beyond the end",
        given: make_series,
        command: "inspect series.h5 --dump 0..201 dump.safetensors",
        exit_code: USAGE,
        says: &["series.h5: samples 0..201 were asked for, and the file has 200"],
    },
    Case {
        what: "dumped backwards",
        given: make_series,
        command: "inspect series.h5 --dump 7..3 dump.safetensors",
        exit_code: USAGE,
        says: &["`7..3` is no range of samples; expected A..B with A < B, half-open"],
    },
    Case {
        what: "evaluated on a part that is empty",
        given: |stage| {
            make_series(stage);
            let settings = "--set data.split=[0.8,0.2,0]";
            stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {settings} {SMALL}"));
        },
        command: "eval --run run --split test",
        exit_code: USAGE,
        says: &["--split test: it is empty"],
    },
];

fn make_run_without_data(stage: &Stage) {
    make_run(stage);
    fs::rename(stage.path("series.h5"), stage.path("moved.h5")).unwrap();
}

fn make_dense_run_and_windows(stage: &Stage) {
    make_series(stage);
    let dense = "--set training.loss_on=every_step --set training.run_length=8";
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {dense} {SMALL}"));
    stage.succeeds("convert series.h5 windows.h5 --to windows --storage contiguous");
}

#[test]
fn runs() {
    check(CASES);
}
