//! Files that h5py writes are read bit for bit, and files that this crate writes are what h5py expects.
//!
//! Runs where `MEGABATCH_PYTHON` names a Python with numpy and h5py.

mod made;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use made::Plan;
use megabatch_chunk_io::{SampleBlock, Source, SourceOptions, WriteOptions, write_series};
use megabatch_gpu_core::Device;
use serde_json::Value;

/// HDF5 opens files without close-on-exec: a Python that one test starts while another writes would inherit the file and its lock.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn python(test: &str) -> Option<(PathBuf, MutexGuard<'static, ()>)> {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let python = std::env::var_os("MEGABATCH_PYTHON").map(|python| (PathBuf::from(python), turn));
    if python.is_none() {
        println!("{test}: skipped, MEGABATCH_PYTHON is unset (a Python with numpy and h5py)");
    }
    python
}

fn run(python: &Path, arguments: &[&Path]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h5py_files.py");
    let output = Command::new(python).arg(script).args(arguments).output().expect("MEGABATCH_PYTHON can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn windows_files_of_h5py_are_read_bit_for_bit() {
    let Some((python, _turn)) = python("windows_files_of_h5py_are_read_bit_for_bit") else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &[Path::new("write"), folder.path()]);
    let mut files = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "h5") {
            check_windows(&path);
            files += 1;
        }
    }
    assert_eq!(files, 36);
}

/// Every sample by every way of reading, against the bytes that h5py saw.
fn check_windows(path: &Path) {
    let expected = std::fs::read(path.with_extension("f32")).unwrap();
    let expected: Vec<u32> =
        expected.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
    for resident_bytes_max in [0, usize::MAX] {
        let scope = Device::cpu().scope("data");
        let source =
            Source::open_with(path, &scope, SourceOptions { resident_bytes_max, ..SourceOptions::default() }).unwrap();
        let samples = source.shape().samples;
        let mut all = SampleBlock::zeros(source.shape(), samples);
        source.read(0..samples, all.slices()).unwrap();
        let flat: Vec<u32> = all.features.iter().chain([&all.targets]).flat_map(|values| bits(values)).collect();
        assert_eq!(flat, expected, "{}", path.display());

        let list = [6, 0, 3, 3, 2, 6];
        let mut gathered = SampleBlock::zeros(source.shape(), list.len());
        source.gather(&list, gathered.slices()).unwrap();
        for (gathered, all) in gathered.features.iter().zip(&all.features) {
            let row_len = all.len() / samples;
            let rows = list.iter().flat_map(|&n| &all[n * row_len..(n + 1) * row_len]).copied().collect::<Vec<_>>();
            assert_eq!(bits(gathered), bits(&rows), "{}", path.display());
        }
    }
}

#[test]
fn timeframes_of_h5py_come_shortest_first() {
    let Some((python, _turn)) = python("timeframes_of_h5py_come_shortest_first") else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &[Path::new("write"), folder.path()]);
    for (name, expected) in [("sequences", &["M1", "H1", "D1"][..]), ("grouped", &["M5", "M30"])] {
        let source = Source::open(folder.path().join(name).with_extension("h5"), &Device::cpu().scope("data")).unwrap();
        let names: Vec<_> = source.shape().timeframes.iter().map(|timeframe| timeframe.name.clone().unwrap()).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn h5py_reads_a_series_as_it_was_written() {
    let Some((python, _turn)) = python("h5py_reads_a_series_as_it_was_written") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let series = made::series(&Plan::two_instruments());
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    run(&python, &[Path::new("dump"), &path, folder.path()]);
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
