//! Places that cannot be written to, and files that must not be.

use std::fs;

use super::{Case, USAGE, check, make_bars, make_nothing, make_run, make_series};

const CASES: &[Case] = &[
    Case {
        what: "a run below a file",
        given: make_series,
        command: "train --data series.h5 --out series.h5/run",
        exit_code: USAGE,
        says: &["series.h5/run: cannot be written to: Not a directory"],
    },
    Case {
        what: "a series in a folder that is not there",
        given: make_bars,
        command: "ingest bars.csv --out absent/series.h5 --symbol EURUSD --timeframes M1:4",
        exit_code: USAGE,
        says: &["absent/series.h5: cannot write here: No such file", "check that the folder exists"],
    },
    Case {
        what: "predictions below a file",
        given: make_run,
        command: "predict --run run --out series.h5/predictions.h5",
        exit_code: USAGE,
        says: &["series.h5/predictions.h5: cannot write here: Not a directory"],
    },
    Case {
        what: "made-up samples below a file",
        given: make_series,
        command: "synth series.h5/more.h5 --samples 20 --steps 2 --layout windows",
        exit_code: USAGE,
        says: &["series.h5/more.h5: cannot write here"],
    },
    Case {
        what: "made-up data of no known kind",
        given: make_nothing,
        command: "synth data.parquet",
        exit_code: USAGE,
        says: &["data.parquet: the ending says what to make up: .csv for bars, .h5 for samples"],
    },
    Case {
        what: "a demo over somebody's files",
        given: |stage| {
            fs::create_dir(stage.path("mine")).unwrap();
            stage.write("mine/thesis.txt", "precious");
        },
        command: "demo --out mine --force",
        exit_code: USAGE,
        says: &["mine: holds something else"],
    },
];

#[test]
fn outputs_that_cannot_be_written() {
    check(CASES);
}
