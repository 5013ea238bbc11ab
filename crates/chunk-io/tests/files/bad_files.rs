//! Files that are damaged, foreign or wrong: each is refused with the object, what was expected,
//! what was found and what to do.

use std::fs;
use std::path::Path;

use hdf5::types::VarLenUnicode;
use megabatch_chunk_io::{Error, Source, SourceOptions, WriteOptions, inspect, write_series};
use megabatch_gpu_core::Device;

use crate::made::{self, Plan};

type Build = fn(&Path);
type Change = fn(&hdf5::File);

/// Opens a file; a series whose index stays in the file breaks the same rules.
fn open(path: &Path) -> Result<Source, Error> {
    let source = Source::open(path, &Device::cpu().scope("data"));
    if let Err(Error::Invalid { fault, .. }) = &source {
        let options = SourceOptions { series_cache_bytes: Some(0), ..SourceOptions::default() };
        let in_file = Source::open_with(path, &Device::cpu().scope("data"), options);
        assert_eq!(in_file.err().and_then(|error| error.fault().cloned()).as_ref(), Some(&**fault));
    }
    source
}

fn good_series(path: &Path) {
    write_series(path, &made::series(&Plan::small()), &WriteOptions::default()).unwrap();
}

/// A good series file with one thing changed, and without the mark of verification that shows it.
fn changed(path: &Path, change: impl FnOnce(&hdf5::File)) {
    good_series(path);
    change_unmarked(path, change);
}

fn change_unmarked(path: &Path, change: impl FnOnce(&hdf5::File)) {
    let file = hdf5::File::open_rw(path).unwrap();
    file.unlink("/checksums").unwrap();
    change(&file);
}

fn new_file(path: &Path, fill: impl FnOnce(&hdf5::File)) {
    fill(&hdf5::File::create(path).unwrap());
}

/// A file of float windows and targets of these shapes, and what `fill` adds.
fn windows(path: &Path, features: &[usize], targets: &[usize], fill: impl FnOnce(&hdf5::File)) {
    new_file(path, |file| {
        zeros::<f32>(file, "features", features);
        zeros::<f32>(file, "targets", targets);
        fill(file);
    });
}

fn zeros<T: hdf5::H5Type>(file: &hdf5::File, object: &str, shape: &[usize]) -> hdf5::Dataset {
    file.new_dataset::<T>().shape(shape).create(object).unwrap()
}

/// A dataset whose shape claims more than the file has: nothing of it is written.
fn claim<T: hdf5::H5Type>(file: &hdf5::File, object: &str, shape: &[usize]) {
    if file.link_exists(object) {
        file.unlink(object).unwrap();
    }
    let chunk: Vec<usize> = shape.iter().map(|&axis| axis.min(1 << 20)).collect();
    file.new_dataset::<T>().chunk(chunk).shape(shape).create(object).unwrap();
}

fn replace<T: hdf5::H5Type>(file: &hdf5::File, object: &str, shape: &[usize]) {
    file.unlink(object).unwrap();
    zeros::<T>(file, object, shape);
}

fn set<T: hdf5::H5Type>(file: &hdf5::File, object: &str, index: usize, value: T) {
    let dataset = file.dataset(object).unwrap();
    let mut values = dataset.read_raw::<T>().unwrap();
    values[index] = value;
    dataset.write_raw(&values).unwrap();
}

fn set_text_attribute(file: &hdf5::File, name: &str, text: &str) {
    let text: VarLenUnicode = text.parse().unwrap();
    file.new_attr::<VarLenUnicode>().create(name).unwrap().write_scalar(&text).unwrap();
}

#[test]
fn what_is_no_usable_file_at_all() {
    let cases: [(&str, Build, &str); 9] = [
        ("missing", |_| {}, "there is no such file; check the path"),
        ("folder", |path| fs::create_dir(path).unwrap(), "this is not a file; give the path of an HDF5 file"),
        ("empty", |path| fs::write(path, "").unwrap(), "expected an HDF5 file, found an empty file"),
        (
            "text",
            |path| fs::write(path, "20180101 170000;1.20\n20180101").unwrap(),
            "expected an HDF5 file, found text that starts with \"20180101 170000;1.20\"",
        ),
        ("gzip", |path| fs::write(path, b"\x1f\x8b\x08\0\0\0\0\0").unwrap(), "found a gzip file"),
        ("binary", |path| fs::write(path, [0xff; 700]).unwrap(), "found other binary data"),
        (
            "truncated",
            |path| {
                good_series(path);
                let bytes = fs::read(path).unwrap();
                fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
            },
            "the file is cut short: it has ",
        ),
        ("header-only", |path| fs::write(path, b"\x89HDF\r\n\x1a\n").unwrap(), "HDF5 cannot open the file"),
        (
            "random-after-signature",
            |path| fs::write(path, [&b"\x89HDF\r\n\x1a\n"[..], &[7; 900]].concat()).unwrap(),
            "HDF5 cannot open the file",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, build, expected) in cases {
        let path = folder.path().join(name);
        build(&path);
        for message in [open(&path).unwrap_err().to_string(), inspect(&path).unwrap_err().to_string()] {
            assert!(message.starts_with(&*path.to_string_lossy()), "{message}");
            assert!(message.contains(expected), "{name}: {message}");
        }
    }
}

#[test]
fn a_file_that_another_process_is_writing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    good_series(&path);
    // HDF5 holds the same lock on a file open for writing.
    let writer = fs::File::open(&path).unwrap();
    writer.lock().unwrap();
    let message = open(&path).unwrap_err().to_string();
    assert!(message.ends_with("another process has the file open for writing (errno 11, file locking); wait until it closes the file or end that process"), "{message}");
    writer.unlock().unwrap();
    open(&path).unwrap();
}

#[test]
fn files_that_break_a_rule() {
    let cases: [(&str, Build, &str); 35] = [
        (
            "nothing",
            |path| new_file(path, |_| {}),
            "/features: expected floats [N, T, F], found no such object; the file contains no datasets",
        ),
        (
            "others",
            |path| {
                new_file(path, |file| {
                    zeros::<f32>(file, "a/b", &[2, 3]);
                    zeros::<i8>(file, "x", &[4]);
                });
            },
            "found no such object; the file contains /a/b [2, 3], /x [4]; see docs/reference/formats.md for both layouts",
        ),
        (
            "rank",
            |path| new_file(path, |file| drop(zeros::<f64>(file, "features", &[5, 4]))),
            "/features: expected floats [N, T, F], found float64 of shape [5, 4]",
        ),
        (
            "integers",
            |path| new_file(path, |file| drop(zeros::<i16>(file, "features", &[5, 4, 2]))),
            "/features: expected floats [N, T, F], found int16 of shape [5, 4, 2]",
        ),
        (
            "strings",
            |path| new_file(path, |file| drop(zeros::<VarLenUnicode>(file, "features", &[5, 4, 2]))),
            "/features: expected floats [N, T, F], found",
        ),
        (
            "scalar",
            |path| new_file(path, |file| drop(file.new_dataset::<f32>().create("features").unwrap())),
            "/features: expected floats [N, T, F], found float32 of shape []",
        ),
        (
            "no-targets",
            |path| new_file(path, |file| drop(zeros::<f32>(file, "features", &[5, 4, 2]))),
            "/targets: expected numbers [N], [N, K] or [N, K, 1], found no such object; the file contains /features [5, 4, 2]",
        ),
        (
            "other-n",
            |path| windows(path, &[5, 4, 2], &[6, 1], |_| {}),
            "/targets: expected 5 rows, as many as /features has, found 6 (shape [6, 1])",
        ),
        (
            "targets-3",
            |path| windows(path, &[5, 4, 2], &[5, 1, 2], |_| {}),
            "/targets: expected numbers [N], [N, K] or [N, K, 1], found shape [5, 1, 2]",
        ),
        (
            "empty",
            |path| windows(path, &[0, 4, 2], &[0, 1], |_| {}),
            "/features: expected at least one element along each axis, found shape [0, 4, 2]",
        ),
        (
            "timeframes-n",
            |path| {
                new_file(path, |file| {
                    zeros::<f32>(file, "sequences/M1", &[5, 4, 2]);
                    zeros::<f32>(file, "sequences/M5", &[4, 4, 2]);
                });
            },
            "/sequences/M5: expected 5 rows, as many as /sequences/M1 has, found 4",
        ),
        (
            "no-timeframes",
            |path| new_file(path, |file| drop(file.create_group("features").unwrap())),
            "/features: expected one dataset [N, T, F] a timeframe, found a group without datasets",
        ),
        (
            "timestamps",
            |path| windows(path, &[5, 4, 2], &[5, 1], |file| drop(zeros::<f64>(file, "timestamps", &[5]))),
            "/timestamps: expected integers [N], ns since 1970 UTC, found float64 of shape [5]",
        ),
        (
            "milliseconds",
            |path| {
                windows(path, &[2, 4, 2], &[2, 1], |file| {
                    let times = zeros::<i64>(file, "timestamps", &[2]);
                    times.write_raw(&[157_766_400_000_i64, 1_704_153_600_000]).unwrap();
                });
            },
            "/timestamps: expected ns since 1970 UTC, found times from 157766400000 on, which look like milliseconds: \
             as ns they all lie in January 1970; multiply them by 1000000",
        ),
        (
            "windows-instrument",
            |path| {
                windows(path, &[3, 4, 2], &[3, 1], |file| {
                    file.create_group("samples").unwrap();
                    zeros::<i32>(file, "samples/instrument", &[3]).write_raw(&[0, 1, 2]).unwrap();
                    let names: [VarLenUnicode; 2] = ["A", "B"].map(|name| name.parse().unwrap());
                    let dataset = file.new_dataset::<VarLenUnicode>().shape([2]).create("instruments").unwrap();
                    dataset.write_raw(&names).unwrap();
                });
            },
            "/samples/instrument[2]: expected an instrument from 0 to 1, found 2",
        ),
        (
            "huge",
            |path| {
                new_file(path, |file| {
                    let build = file.new_dataset::<f32>().chunk((1, 1, 1));
                    build.shape((1 << 30, 1 << 20, 1 << 10)).create("features").unwrap();
                });
            },
            "/features: expected a shape that fits in memory, found [1073741824, 1048576, 1024]",
        ),
        (
            "layout",
            |path| new_file(path, |file| set_text_attribute(file, "layout", "tensor")),
            "/@layout: expected \"series\" or \"windows\", found `tensor`",
        ),
        (
            "no-layout",
            |path| changed(path, |file| file.delete_attr("layout").unwrap()),
            "/@layout: expected the text \"series\", as there is a group /series, found no such attribute",
        ),
        (
            "version",
            |path| changed(path, |file| file.attr("format_version").unwrap().write_scalar(&2_i64).unwrap()),
            "/@format_version: expected the integer 1, found 2",
        ),
        (
            "no-series",
            |path| changed(path, |file| file.unlink("series").unwrap()),
            "/series: expected a group with one group a timeframe, found no such object; the file contains",
        ),
        (
            "no-values",
            |path| changed(path, |file| file.unlink("series/M5/values").unwrap()),
            "/series/M5/values: expected floats [bars, F], found no such object",
        ),
        (
            "bars",
            |path| changed(path, |file| replace::<i64>(file, "/series/M5/close_time", &[9])),
            "/series/M5/close_time: expected 8 rows, as many as /series/M5/values has, found 9 (shape [9])",
        ),
        (
            "close-float",
            |path| changed(path, |file| replace::<f64>(file, "/series/M5/close_time", &[8])),
            "/series/M5/close_time: expected integers [bars] or [N], ns since 1970 UTC, found float64 of shape [8]",
        ),
        (
            "close-order",
            |path| changed(path, |file| set(file, "/series/M5/close_time", 3, 0_i64)),
            "/series/M5/close_time[3]: expected a time after 900000000000, that of the bar before, found 0; sort the bars by time and drop repeated ones",
        ),
        (
            "ends-n",
            |path| changed(path, |file| replace::<i64>(file, "/samples/end/M1", &[30])),
            "/samples/end/M1: expected 31 rows, as many as /samples/time has, found 30",
        ),
        (
            "end-early",
            |path| changed(path, |file| set(file, "/samples/end/M1", 2, 2_i64)),
            "/samples/end/M1[2]: expected the last bar of a window of 4 bars within bars 0..40 of its instrument, found 2; drop samples that have no full window",
        ),
        (
            "end-negative",
            |path| changed(path, |file| set(file, "/samples/end/M1", 2, i64::MIN)),
            "within bars 0..40 of its instrument, found -9223372036854775808",
        ),
        (
            "end-late",
            |path| changed(path, |file| set(file, "/samples/end/M5", 30, 8_i64)),
            "/samples/end/M5[30]: expected the last bar of a window of 2 bars within bars 0..8 of its instrument, found 8",
        ),
        (
            "future",
            |path| changed(path, |file| set(file, "/samples/end/M5", 0, 2_i64)),
            "/samples/end/M5[0]: expected a bar that had closed at the sample's time 600000000000, found bar 2, which closes at 900000000000; the sample sees the future; use the last closed bar",
        ),
        (
            "stale",
            |path| changed(path, |file| set(file, "/samples/end/M5", 30, 6_i64)),
            "/samples/end/M5[30]: expected the last bar closed at the sample's time 2400000000000, found bar 6, though bar 7 had closed at 2400000000000; use the last closed bar",
        ),
        (
            "steps",
            |path| {
                changed(path, |file| {
                    file.dataset("/series/M1/values").unwrap().attr("seq_len").unwrap().write_scalar(&41_i64).unwrap();
                });
            },
            "/series/M1/values@seq_len: expected the window length, an integer from 1 to 40, the number of bars, found 41",
        ),
        (
            "no-steps",
            |path| changed(path, |file| file.dataset("/series/M1/values").unwrap().delete_attr("seq_len").unwrap()),
            "/series/M1/values@seq_len: expected the window length, an integer from 1 to 40, the number of bars, found no such attribute",
        ),
        (
            "names",
            |path| changed(path, |file| replace::<VarLenUnicode>(file, "/feature_names/M1", &[2])),
            "/feature_names/M1: expected a list of 3 strings, found strings of shape [2]",
        ),
        (
            "scaler",
            |path| changed(path, |file| replace::<f64>(file, "/scaler/M1/scale", &[4])),
            "/scaler/M1/scale: expected [3] or one such row an instrument, found [4]",
        ),
        (
            "targets-n",
            |path| changed(path, |file| replace::<f32>(file, "/targets", &[30, 2])),
            "/targets: expected 31 rows, as many as /samples/time has, found 30 (shape [30, 2])",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, build, expected) in cases {
        let path = folder.path().join(name).with_extension("h5");
        build(&path);
        let error = open(&path).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(expected), "{name}: {message}");
        assert!(message.starts_with(&*path.to_string_lossy()), "{message}");

        // Inspecting such a file is no failure: it is how one finds out.
        let fault = error.fault().unwrap();
        let inspection = inspect(&path).unwrap();
        assert!(
            inspection.problems.iter().any(|problem| problem.object == fault.object && problem.fix == fault.fix),
            "{name}"
        );
        assert!(inspection.shape.is_none() || inspection.timeframes.is_empty() || name == "targets-n", "{name}");
    }
}

#[test]
fn instruments_that_disagree() {
    let cases: [(&str, Change, &str); 11] = [
        (
            "claimed-samples",
            |file| {
                claim::<i64>(file, "/samples/time", &[1 << 58]);
                claim::<f32>(file, "/targets", &[1 << 58, 2]);
                claim::<i64>(file, "/samples/end/M1", &[1 << 58]);
                claim::<i32>(file, "/samples/instrument", &[1 << 58]);
            },
            "/samples/time: expected a list whose every entry was written, found 288230376151711744 entries",
        ),
        (
            "claimed-segments",
            |file| claim::<i8>(file, "/series/M1/segment_start", &[1 << 59]),
            "/series/M1/segment_start: expected at most",
        ),
        (
            "claimed-names",
            |file| claim::<hdf5::types::FixedAscii<1>>(file, "/instruments", &[1 << 40]),
            "1099511627776 strings of fixed length are too many",
        ),
        (
            "segments",
            |file| set(file, "/series/M1/segment_start", 1, 39_i64),
            "/series/M1/segment_start: expected an entry 40, where an instrument begins, found none",
        ),
        (
            "reach",
            |file| set(file, "/samples/reach_time", 3, i64::MAX),
            "/samples/reach_time[3]: expected a time before the sample's",
        ),
        (
            "weight",
            |file| set(file, "/samples/weight", 3, -1.0_f32),
            "/samples/weight[3]: expected a finite number from 0 on, found -1",
        ),
        (
            "label-end",
            |file| set(file, "/samples/label_end_time", 3, 0_i64),
            "/samples/label_end_time[3]: expected the sample's time, ",
        ),
        (
            "starts",
            |file| file.unlink("/series/M1/instrument_start").unwrap(),
            "/series/M1/instrument_start: expected a list of integers, found no such object",
        ),
        (
            "of-sample",
            |file| file.unlink("/samples/instrument").unwrap(),
            "/samples/instrument: expected a list of integers, found no such object",
        ),
        (
            "range",
            |file| set(file, "/samples/instrument", 50, 2_i32),
            "/samples/instrument[50]: expected an instrument from 0 to 1, found 2",
        ),
        (
            "across",
            |file| set(file, "/series/M1/instrument_start", 1, 31_i64),
            "/series/M1/close_time[40]: expected a time after",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, change, expected) in cases {
        let path = folder.path().join(name);
        write_series(&path, &made::series(&Plan::two_instruments()), &WriteOptions::default()).unwrap();
        change_unmarked(&path, change);
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains(expected), "{name}: {message}");
    }
}
