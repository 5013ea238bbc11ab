//! Data that cannot be split as asked.

use super::{Case, DATA, USAGE, check, make_bars, make_hdf5, make_series, make_zeros};

const CASES: &[Case] = &[
    Case {
        what: "nothing left to validate on",
        given: make_series,
        command: "train --data series.h5 --out run --set data.split=[0.98,0.01,0.01]",
        exit_code: USAGE,
        says: &["no samples are left for validation (2 before the purge, 0 after it)", "data.split"],
    },
    Case {
        what: "a purge longer than the data",
        given: make_series,
        command: "plan --data series.h5 --set data.purge=1d",
        exit_code: USAGE,
        says: &["no samples are left for validation (30 before the purge, 0 after it)"],
    },
    Case {
        what: "a time to purge in data without times",
        given: |stage| {
            make_hdf5(stage, |file| {
                make_zeros(file, "features", &[50, 4, 2]);
                make_zeros(file, "targets", &[50, 1]);
            });
        },
        command: "plan --data data.h5 --set data.purge=1h",
        exit_code: USAGE,
        says: &["data.purge: ", "data.h5 has no timestamps", "use auto"],
    },
    Case {
        what: "early stopping without validation, planned",
        given: make_series,
        command: "plan --data series.h5 --set data.split=[0.8,0,0.2] --set training.early_stopping=3",
        exit_code: USAGE,
        says: &["training.early_stopping is 3: expected none where nothing is validated", "data.split"],
    },
    Case {
        what: "early stopping without validation",
        given: make_series,
        command: "train --data series.h5 --out run --set data.split=[0.8,0,0.2] --set training.early_stopping=3",
        exit_code: USAGE,
        says: &["training.early_stopping is 3: expected none where nothing is validated", "data.split"],
    },
    Case {
        what: "a scaler that saw the validation split",
        given: |stage| {
            make_bars(stage);
            stage.succeeds("ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:4 --train-fraction 0.9");
        },
        command: "train --data series.h5 --out run",
        exit_code: DATA,
        says: &["series.h5: /scaler/M1: fitted on bars up to 2018-01-01 ", "`ingest --train-fraction`"],
    },
];

#[test]
fn splits() {
    check(CASES);
}
