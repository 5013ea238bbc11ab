//! Bars of which no series can be made.

use super::{Case, DATA, USAGE, check, make_bars, make_nothing};
use crate::stage::Stage;

/// Three hundred minutes at about `price`, with `volume`.
fn make_minutes(stage: &Stage, price: f64, volume: &str) {
    let row = |minute: u32| {
        let close = price * (1.0 + f64::from(minute % 7) * 1e-3);
        let time = format!("2018-01-02 {:02}:{:02}", minute / 60, minute % 60);
        format!("{time},{price:e},{:e},{:e},{close:e},{volume}\n", price * 1.01, price * 0.99)
    };
    let rows: String = (0..300).map(row).collect();
    stage.write("huge.csv", &format!("time,open,high,low,close,volume\n{rows}"));
}

const CASES: &[Case] = &[
    // Written with exit 0 before, with NaN in features and infinite targets.
    Case {
        what: "prices whose changes no target can hold",
        given: |stage| make_minutes(stage, 1e307, "5"),
        command: "ingest huge.csv --out series.h5 --symbol EURUSD --pip-size 0.0001 --timeframes M1:4",
        exit_code: DATA,
        says: &[
            "series.h5: /targets[",
            "expected finite numbers, or NaN for a target that is not known, found ",
            " for target ",
        ],
    },
    Case {
        what: "a pip too small to count in",
        given: |stage| make_minutes(stage, 1.2, "5"),
        command: "ingest huge.csv --out series.h5 --symbol EURUSD --timeframes M1:4 --pip-size 1e-320",
        exit_code: DATA,
        says: &["series.h5: /targets[", "expected finite numbers"],
    },
    Case {
        what: "volumes whose sum is no number",
        given: |stage| make_minutes(stage, 1.2, "1.7e308"),
        command: "ingest huge.csv --out series.h5 --symbol EURUSD --timeframes M1:4,M5:4 --horizon 5",
        exit_code: DATA,
        says: &[
            "series.h5: /series/M5/values[",
            "expected finite features, found NaN for relative_volume of the bar that closes at ",
        ],
    },
    Case {
        what: "missing",
        given: make_nothing,
        command: "ingest absent.csv --out series.h5",
        exit_code: DATA,
        says: &["absent.csv: cannot be opened: No such file"],
    },
    Case {
        what: "an error message saved as CSV",
        given: |stage| stage.write("EURUSD.csv", "{\"error\": \"rate limit reached\"}\n"),
        command: "ingest EURUSD.csv --out series.h5",
        exit_code: DATA,
        says: &["EURUSD.csv: no bars recognised", "{\"error\": \"rate limit reached\"}"],
    },
    Case {
        what: "empty",
        given: |stage| stage.write("EURUSD.csv", ""),
        command: "ingest EURUSD.csv --out series.h5",
        exit_code: DATA,
        says: &["EURUSD.csv: there are no bars: the file is empty"],
    },
    // Only a file of unknown contents was told how to be passed over.
    Case {
        what: "an empty file in a folder",
        given: |stage| {
            std::fs::create_dir(stage.path("bars")).unwrap();
            stage.succeeds("synth bars/EURUSD.csv --days 1");
            stage.write("bars/GBPUSD.csv", "");
        },
        command: "ingest bars --out series.h5 --timeframes M1:4",
        exit_code: DATA,
        says: &[
            "bars/GBPUSD.csv: there are no bars: the file is empty",
            "; among other files, `--on-error skip` leaves such a one out and names it",
        ],
    },
    Case {
        what: "garbage",
        given: |stage| stage.write("EURUSD.csv", "time,open,high,low,close\nn/a,-,-,-,-\nn/a,-,-,-,-\n"),
        command: "ingest EURUSD.csv --out series.h5 --on-error repair",
        exit_code: DATA,
        says: &[
            "EURUSD.csv: no bars recognised",
            "HistData",
            "MetaTrader",
            "the first line is `time,open,high,low,close`",
        ],
    },
    Case {
        what: "nothing left after filtering",
        given: |stage| {
            let impossible = "1.2,1.0,1.1,1.2\n";
            stage.write("EURUSD.csv", &format!("2018-01-01 00:00,{impossible}2018-01-01 00:01,{impossible}"));
        },
        command: "ingest EURUSD.csv --out series.h5 --on-error repair",
        exit_code: DATA,
        says: &["EURUSD.csv: nothing is left: none of 2 rows can be used; first: "],
    },
    Case {
        what: "one bad row",
        given: |stage| {
            make_bars(stage);
            let text = stage.text("bars.csv");
            stage.write("bars.csv", &text.replacen("2018-01-01 00:05", "2018-01-01 00:0x", 1));
        },
        command: "ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:4",
        exit_code: DATA,
        says: &["bars.csv: line 7: ", "2018-01-01 00:0x", "`--on-error repair`"],
    },
    Case {
        what: "shorter than one window",
        given: make_bars,
        command: "ingest bars.csv --out series.h5 --symbol EURUSD",
        exit_code: DATA,
        says: &["too few bars for one sample", "H4 has 5 bars and needs ", "shorter windows or fewer timeframes"],
    },
    Case {
        what: "two files of one time",
        given: |stage| {
            make_bars(stage);
            stage.succeeds("synth more.csv --days 1");
        },
        command: "ingest bars.csv more.csv --out series.h5 --symbol EURUSD --timeframes M1:4",
        exit_code: DATA,
        says: &["bars.csv", "more.csv", "the files of one symbol must not overlap", "`--overlaps once`"],
    },
    Case {
        what: "no pip size",
        given: make_bars,
        command: "ingest bars.csv --out series.h5 --timeframes M1:4",
        exit_code: USAGE,
        says: &["bars.csv: the pip size of `BARS` is not known", "`--target log_return`", "`--pip-size`"],
    },
    // The advice was to take log returns as targets, which they were.
    Case {
        what: "no pip size for features",
        given: make_bars,
        command: "ingest bars.csv --out series.h5 --timeframes M1:4 --features all --target log_return",
        exit_code: USAGE,
        says: &[
            "bars.csv: the pip size of `BARS` is not known, and features are in pips: leave pip_change and spread_pips out of \
             `--features`, or give the size with `--pip-size`",
        ],
    },
    Case {
        what: "no pip size of several symbols",
        given: |stage| {
            stage.succeeds("synth GOLD.csv --days 1");
            stage.succeeds("synth SILVER.csv --days 1");
        },
        command: "ingest GOLD.csv SILVER.csv --out series.h5 --timeframes M1:4",
        exit_code: USAGE,
        says: &["GOLD.csv, SILVER.csv: the pip size of `GOLD`, `SILVER` is not known"],
    },
    Case {
        what: "a pip size of no symbol",
        given: make_bars,
        command: "ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:4 --pip-size EURSUD=0.00001",
        exit_code: USAGE,
        says: &["--pip-size: no bars are of the symbol EURSUD; there are EURUSD"],
    },
    Case {
        what: "a share out of range",
        given: make_bars,
        command: "ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:4 --train-fraction 1.5",
        exit_code: USAGE,
        says: &["train_fraction is 1.5: expected a number above 0 and at most 1"],
    },
];

#[test]
fn bars_that_cannot_be_ingested() {
    check(CASES);
}
