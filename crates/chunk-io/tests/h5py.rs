//! Files that h5py writes are read bit for bit, and files that this crate writes are what h5py
//! expects.
//!
//! Runs where `MEGABATCH_PYTHON` names a Python with numpy and h5py.

mod h5py_side;
mod made;

use std::path::Path;

use h5py_side::{check_every_way, hdf5_files, python, run};
use made::Plan;
use megabatch_chunk_io::{Source, WriteOptions, write_series};
use megabatch_gpu_core::Device;
use serde_json::Value;

const SCRIPT: &str = "h5py_files.py";

#[test]
fn windows_files_of_h5py_are_read_bit_for_bit() {
    let Some((python, _turn)) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, SCRIPT, &[Path::new("write"), folder.path()]);
    let files = hdf5_files(folder.path());
    assert_eq!(files.len(), 36);
    files.iter().for_each(|path| check_every_way(path));
}

#[test]
fn timeframes_of_h5py_come_shortest_first() {
    let Some((python, _turn)) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, SCRIPT, &[Path::new("write"), folder.path()]);
    for (name, expected) in [("sequences", &["M1", "H1", "D1"][..]), ("grouped", &["M5", "M30"])] {
        let source = Source::open(folder.path().join(name).with_extension("h5"), &Device::cpu().scope("data")).unwrap();
        let names: Vec<_> = source.shape().timeframes.iter().map(|timeframe| timeframe.name.clone().unwrap()).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn h5py_reads_a_series_as_it_was_written() {
    let Some((python, _turn)) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let series = made::series(&Plan::two_instruments());
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    run(&python, SCRIPT, &[Path::new("dump"), &path, folder.path()]);
    let index: Value = serde_json::from_slice(&std::fs::read(folder.path().join("index.json")).unwrap()).unwrap();

    let samples = series.sample_time.len();
    let instruments = series.instruments.as_ref().unwrap();
    let check = |object: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>| {
        let entry = &index["datasets"][object];
        assert_eq!(entry["dtype"], dtype, "{object}");
        assert_eq!(entry["shape"], serde_json::json!(shape), "{object}");
        let found = std::fs::read(folder.path().join(entry["file"].as_str().unwrap())).unwrap();
        assert!(found == bytes, "{object}");
    };
    check("/samples/time", "<i8", &[samples], le(&series.sample_time, i64::to_le_bytes));
    check("/samples/reach_time", "<i8", &[samples], le(&series.sample_reach_time, i64::to_le_bytes));
    check("/samples/label_end_time", "<i8", &[samples], le(&series.sample_label_end_time, i64::to_le_bytes));
    check("/samples/weight", "<f4", &[samples], le(&series.sample_weight, f32::to_le_bytes));
    check("/targets", "<f4", &[samples, 2], le(&series.targets, f32::to_le_bytes));
    check("/samples/instrument", "<i4", &[samples], le(&instruments.sample_instrument, i32::to_le_bytes));
    assert_eq!(index["datasets"]["/instruments"]["texts"], serde_json::json!(instruments.names));
    for timeframe in &series.timeframes {
        let (name, bars, features) = (&timeframe.name, timeframe.close_time.len(), timeframe.feature_names.len());
        let scaler = timeframe.scaler.as_ref().unwrap();
        check(&format!("/series/{name}/values"), "<f4", &[bars, features], le(&timeframe.values, f32::to_le_bytes));
        check(&format!("/series/{name}/close_time"), "<i8", &[bars], le(&timeframe.close_time, i64::to_le_bytes));
        check(
            &format!("/series/{name}/instrument_start"),
            "<i8",
            &[3],
            le(&timeframe.instrument_start, i64::to_le_bytes),
        );
        check(&format!("/series/{name}/segment_start"), "<i8", &[2], le(&timeframe.segment_start, i64::to_le_bytes));
        check(&format!("/samples/end/{name}"), "<i8", &[samples], le(&timeframe.sample_end, i64::to_le_bytes));
        check(&format!("/scaler/{name}/center"), "<f8", &[features], le(&scaler.center, f64::to_le_bytes));
        check(&format!("/scaler/{name}/scale"), "<f8", &[features], le(&scaler.scale, f64::to_le_bytes));
        assert_eq!(
            index["datasets"][format!("/feature_names/{name}")]["texts"],
            serde_json::json!(timeframe.feature_names)
        );
        assert_eq!(index["attributes"][format!("/series/{name}/values@seq_len")], timeframe.steps);
        assert_eq!(index["attributes"][format!("/scaler/{name}@kind")], "robust");
        assert_eq!(index["attributes"][format!("/scaler/{name}@fit_end_time")], scaler.fit_end_time);
    }
    assert_eq!(index["attributes"]["/@layout"], "series");
    assert_eq!(index["attributes"]["/@format_version"], 1);
    assert_eq!(index["attributes"]["/@symbol"], "EURUSD");
    assert_eq!(index["attributes"]["/@pip_size"], 0.0001);
}

fn le<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}
