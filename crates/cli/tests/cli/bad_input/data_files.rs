//! Files that hold no samples.

use std::fs;

use serde_json::json;

use super::{Case, DATA, USAGE, check, make_bars, make_hdf5, make_nothing, make_run, make_series, make_zeros};
use crate::stage::Stage;

const CASES: &[Case] = &[
    Case {
        what: "missing, inspected",
        given: make_nothing,
        command: "inspect absent.h5",
        exit_code: DATA,
        says: &["absent.h5: there is no such file; check the path"],
    },
    Case {
        what: "missing, trained on",
        given: make_nothing,
        command: "train --data absent.h5 --out run",
        exit_code: DATA,
        says: &["absent.h5: there is no such file"],
    },
    Case {
        what: "an empty folder",
        given: |stage| fs::create_dir(stage.path("folder")).unwrap(),
        command: "inspect folder",
        exit_code: DATA,
        says: &["folder: a folder without data files; expected HDF5 files (.h5) or bars as text (.csv)"],
    },
    Case {
        what: "the folder of a run",
        given: make_run,
        command: "inspect run",
        exit_code: USAGE,
        says: &[
            "run: the folder of a run, which `megabatch eval`, `predict`, `compare` and `monitor` read; report.html",
        ],
    },
    Case {
        what: "bars as HDF5",
        given: make_bars,
        command: "train --data bars.csv --out run",
        exit_code: DATA,
        says: &["bars.csv: expected an HDF5 file, found text that starts with \"time,open,high", "`megabatch ingest`"],
    },
    Case {
        what: "cut short",
        given: |stage| {
            make_series(stage);
            let bytes = stage.read("series.h5");
            fs::write(stage.path("series.h5"), &bytes[..bytes.len() / 2]).unwrap();
        },
        command: "train --data series.h5 --out run",
        exit_code: DATA,
        says: &["series.h5: the file is cut short: it has ", "copy or write it again"],
    },
    Case {
        what: "no datasets",
        given: |stage| make_hdf5(stage, |_| {}),
        command: "train --data data.h5 --out run",
        exit_code: DATA,
        says: &["data.h5: /features: expected floats [N, T, F], found no such object; the file contains no datasets"],
    },
    Case {
        what: "other datasets",
        given: |stage| make_hdf5(stage, |file| make_zeros(file, "prices/close", &[7])),
        command: "plan --data data.h5",
        exit_code: DATA,
        says: &["the file contains /prices/close [7]", "docs/reference/formats.md"],
    },
    Case {
        what: "wrong rank",
        given: |stage| make_hdf5(stage, |file| make_zeros(file, "features", &[50, 4])),
        command: "train --data data.h5 --out run",
        exit_code: DATA,
        says: &["data.h5: /features: expected floats [N, T, F], found float32 of shape [50, 4]"],
    },
    Case {
        what: "features without targets",
        given: |stage| make_hdf5(stage, |file| make_zeros(file, "features", &[50, 4, 2])),
        command: "inspect data.h5 --dump 0..1 dump.safetensors",
        exit_code: DATA,
        says: &["data.h5: /targets: expected numbers [N], [N, K]", "the file contains /features [50, 4, 2]"],
    },
];

#[test]
fn files_without_samples() {
    check(CASES);
}

#[test]
fn a_file_that_breaks_its_layout_is_still_inspected() {
    let stage = Stage::new();
    make_hdf5(&stage, |file| make_zeros(file, "features", &[50, 4]));
    let answer = stage.answers("inspect data.h5", 3);
    assert_eq!(answer["problems"][0]["severity"], "error");
    assert_eq!(answer["problems"][0]["object"], "/features");
    assert_eq!(answer["datasets"][0]["shape"], json!([50, 4]));
}
