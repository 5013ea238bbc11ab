//! Places that cannot be written to, and files that must not be.

use std::fs;

use super::{Case, USAGE, check, make_bars, make_nothing, make_run, make_series};
use crate::stage::SMALL;

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
        says: &["absent/series.h5: cannot write here: absent: No such file"],
    },
    Case {
        what: "predictions below a file",
        given: make_run,
        command: "predict --run run --out series.h5/predictions.h5",
        exit_code: USAGE,
        says: &["series.h5/predictions.h5: cannot write here: series.h5 is not a folder"],
    },
    // An export of bars was replaced by predictions.
    Case {
        what: "predictions over the bars of the series",
        given: |stage| {
            stage.succeeds("synth EURUSD.csv --days 6");
            stage.succeeds("ingest EURUSD.csv --out eurusd.h5 --timeframes M1:4 --horizon 2 --stride 20");
            stage.succeeds(&format!("train --data eurusd.h5 --out run --max-steps 1 {SMALL}"));
        },
        command: "predict --run run --out EURUSD.csv",
        exit_code: USAGE,
        says: &["EURUSD.csv: cannot write here: this is the file that is read; name another"],
    },
    Case {
        what: "made-up samples below a file",
        given: make_series,
        command: "synth series.h5/more.h5 --samples 20 --steps 2 --layout windows",
        exit_code: USAGE,
        says: &["series.h5/more.h5: cannot write here"],
    },
    Case {
        what: "made-up bars in a folder that is not there",
        given: make_nothing,
        command: "synth absent/bars.csv",
        exit_code: USAGE,
        says: &["absent/bars.csv: cannot ", "No such file"],
    },
    Case {
        what: "a dump in a folder that is not there",
        given: make_series,
        command: "inspect series.h5 --dump 0..4 absent/dump.safetensors",
        exit_code: USAGE,
        says: &["absent/dump.safetensors: cannot ", "No such file"],
    },
    Case {
        what: "weights in a folder that is not there",
        given: make_run,
        command: "export --run run --out absent/model.safetensors",
        exit_code: USAGE,
        says: &["absent/model.safetensors: cannot ", "No such file"],
    },
    Case {
        what: "weights in a format of another name",
        given: make_run,
        command: "export --run run --out model.pt",
        exit_code: USAGE,
        says: &["model.pt: the ending of its name says the format; expected .safetensors"],
    },
    Case {
        what: "predictions as CSV in a folder that is not there",
        given: make_run,
        command: "predict --run run --out absent/predictions.csv",
        exit_code: USAGE,
        says: &["absent/predictions.csv: cannot ", "No such file"],
    },
    Case {
        what: "bars where the system lets nobody write",
        given: make_nothing,
        command: "synth /proc/bars.csv --days 1",
        exit_code: USAGE,
        says: &["/proc/bars.csv: cannot write here: no file can be made beside it"],
    },
    Case {
        what: "a series where the system lets nobody write",
        given: make_bars,
        command: "ingest bars.csv --out /proc/series.h5 --symbol EURUSD --timeframes M1:4",
        exit_code: USAGE,
        says: &["/proc/series.h5: cannot write here: no file can be made beside it"],
    },
    Case {
        what: "windows where the system lets nobody write",
        given: make_series,
        command: "convert series.h5 /proc/windows.h5",
        exit_code: USAGE,
        says: &["/proc/windows.h5: cannot write here: no file can be made beside it"],
    },
    Case {
        what: "predictions where the system lets nobody write",
        given: make_run,
        command: "predict --run run --out /proc/predictions.csv",
        exit_code: USAGE,
        says: &["/proc/predictions.csv: cannot write here: no file can be made beside it"],
    },
    Case {
        what: "weights where the system lets nobody write",
        given: make_run,
        command: "export --run run --out /proc/model.safetensors",
        exit_code: USAGE,
        says: &["/proc/model.safetensors: cannot write here: no file can be made beside it"],
    },
    Case {
        what: "a comparison where the system lets nobody write",
        given: make_run,
        command: "compare run run --out /proc/page.html",
        exit_code: USAGE,
        says: &["/proc/page.html: cannot write here: no file can be made beside it"],
    },
    Case {
        what: "predictions over the data",
        given: make_run,
        command: "predict --run run --out series.h5",
        exit_code: USAGE,
        says: &["series.h5"],
    },
    Case {
        what: "a series over its bars",
        given: make_bars,
        command: "ingest bars.csv --out bars.csv --symbol EURUSD --timeframes M1:4",
        exit_code: USAGE,
        says: &["bars.csv"],
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
