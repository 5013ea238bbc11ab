//! A series that a reader would refuse is not written, and what was at the path stays.

mod made;

use std::fs;

use made::Plan;
use megabatch_chunk_io::{Series, WriteOptions, write_series};

type Change = fn(&mut Series);

#[test]
fn a_series_that_breaks_a_rule_is_not_written() {
    let cases: [(Change, &str); 21] = [
        (|series| series.sample_time.clear(), "/samples/time: expected at least one sample, found none"),
        (
            |series| series.targets.truncate(61),
            "/targets: expected [N, K] with K at least 1, found 61 values for 31 samples",
        ),
        (|series| series.targets.clear(), "/targets: expected [N, K] with K at least 1, found 0 values for 31 samples"),
        (|series| series.timeframes.clear(), "/series: expected at least one timeframe, found none"),
        (|series| series.timeframes[1].name = "M1".into(), "/series: expected each timeframe once, found M1 twice"),
        (
            |series| series.timeframes[0].name = "a/b".into(),
            "/series: expected timeframe names such as M5, found a name that is no single step of an HDF5 path",
        ),
        (|series| series.timeframes[0].steps = 0, "/series/M1/values@seq_len: expected at least 1, found 0"),
        (
            |series| series.timeframes[0].feature_names.clear(),
            "/feature_names/M1: expected at least one feature, found none",
        ),
        (
            |series| series.timeframes[0].values.truncate(119),
            "/series/M1/values: expected [bars, F], found 119 values for 40 bars of 3 features",
        ),
        (|series| series.timeframes[0].sample_end.truncate(30), "/samples/end/M1: expected 31 entries, found 30"),
        (|series| series.timeframes[0].sample_end[0] += 1, "/samples/end/M1[0]: expected a bar that had closed"),
        (
            |series| series.timeframes[1].instrument_start = vec![0, 8],
            "/series/M5/instrument_start: expected nothing, as the series names no instruments, found 2 entries",
        ),
        (
            |series| series.timeframes[0].scaler.as_mut().unwrap().scale.truncate(2),
            "/scaler/M1: expected center and scale [F] or [I, F], found 3 and 2 values for 3 features",
        ),
        // `ingest` wrote these of prices of 1e307, volumes of 1.7e308 and `--pip-size 1e-320`, and
        // training failed on them.
        (
            |series| series.timeframes[1].values[5] = f32::NAN,
            "/series/M5/values[2]: expected finite features, found NaN for feature_1 of the bar that closes at 900000000000",
        ),
        (
            |series| series.timeframes[0].values[3] = f32::INFINITY,
            "/series/M1/values[1]: expected finite features, found inf",
        ),
        (
            |series| series.targets[7] = f32::NEG_INFINITY,
            "/targets[3]: expected finite numbers, or NaN for a target that is not known, found -inf for target 1",
        ),
        (
            |series| series.timeframes[0].scaler.as_mut().unwrap().scale[2] = f64::INFINITY,
            "/scaler/M1/scale[2]: expected finite numbers, found inf for feature_2",
        ),
        (
            |series| series.sample_label_end_time = series.sample_time.iter().map(|time| time - 1).collect(),
            "/samples/label_end_time[0]: expected the sample's time, 600000000000, or a later one",
        ),
        (|series| series.sample_weight = vec![1.0; 3], "/samples/weight: expected"),
        (
            |series| series.sample_weight = series.sample_time.iter().map(|_| f32::NAN).collect(),
            "/samples/weight[0]: expected a finite number from 0 on, found NaN",
        ),
        (|series| drop(series.attributes.insert("layout".into(), "windows".into())), "found `layout`"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    fs::write(&path, "earlier").unwrap();
    for (change, expected) in cases {
        let mut series = made::series(&Plan::small());
        change(&mut series);
        let message = write_series(&path, &series, &WriteOptions::default()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"earlier");
    }
    let mut text_with_zero = made::series(&Plan::small());
    text_with_zero.attributes.insert("symbol".into(), "EUR\0USD".into());
    let message = write_series(&path, &text_with_zero, &WriteOptions::default()).unwrap_err().to_string();
    assert!(
        message.contains("/@symbol: HDF5 cannot write the attribute: the text \"EUR\\0USD\" has a zero byte"),
        "{message}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"earlier");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn instruments_that_disagree_are_not_written() {
    let cases: [(Change, &str); 4] = [
        (
            |series| series.instruments.as_mut().unwrap().names.truncate(1),
            "/samples/instrument[31]: expected an instrument from 0 to 0, found 1",
        ),
        (
            |series| series.instruments.as_mut().unwrap().sample_instrument.truncate(5),
            "/samples/instrument: expected 52 entries, found 5",
        ),
        (
            |series| series.timeframes[0].instrument_start.clear(),
            "/series/M1/instrument_start: expected 3 entries for 2 instruments, found 0",
        ),
        (|series| series.instruments = None, "/series/M1/instrument_start: expected nothing"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    for (change, expected) in cases {
        let mut series = made::series(&Plan::two_instruments());
        change(&mut series);
        let message = write_series(&path, &series, &WriteOptions::default()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!path.exists());
    }
}
