//! `inspect` on good and on poor files.

use std::collections::BTreeMap;
use std::path::Path;

use megabatch_chunk_io::{
    AttributeValue, Compression, Error, Inspection, Layout, SampleBlock, Severity, Shape, Storage, TimeframeShape,
    WindowsHeader, WriteOptions, inspect, write_series, write_windows,
};

use crate::made::{self, Plan};

/// Writes windows [N, T, F] whose values `value` gives, with one target a sample.
fn write(
    path: &Path,
    samples: usize,
    steps: usize,
    features: usize,
    options: &WriteOptions,
    value: impl Fn(usize) -> f32,
) {
    write_with(path, [samples, steps, features], options, &[("horizon_bars", 1.into())], value);
}

fn write_with(
    path: &Path,
    shape: [usize; 3],
    options: &WriteOptions,
    attributes: &[(&str, AttributeValue)],
    value: impl Fn(usize) -> f32,
) {
    let [samples, steps, features] = shape;
    let timeframe = TimeframeShape { name: None, steps, features };
    let shape = Shape { samples, timeframes: vec![timeframe], horizons: 1 };
    let attributes: BTreeMap<_, _> =
        attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let header = WindowsHeader { shape: &shape, sample_times: None, attributes: &attributes };
    let mut block = SampleBlock::zeros(&shape, samples);
    block.features[0].iter_mut().enumerate().for_each(|(i, out)| *out = value(i));
    block.targets.iter_mut().enumerate().for_each(|(i, out)| *out = i as f32);
    write_windows(path, &header, options, |writer| -> Result<(), Error> { writer.push(&block) }).unwrap();
}

fn messages(inspection: &Inspection) -> Vec<String> {
    let line = |problem: &megabatch_chunk_io::Problem| {
        format!("{:?} {}{:?}: {}", problem.severity, problem.object, problem.index, problem.message)
    };
    inspection.problems.iter().map(line).collect()
}

#[test]
fn a_good_series_is_described_without_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let series = made::series(&Plan::two_instruments());
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    let found = inspect(&path).unwrap();
    assert_eq!(messages(&found), Vec::<String>::new());
    assert_eq!(found.layout, Some(Layout::Series));
    assert_eq!(found.attributes["symbol"], AttributeValue::from("EURUSD"));
    assert_eq!(found.attributes["layout"], AttributeValue::from("series"));
    let [first, second] = &found.instruments[..] else { panic!("{:?}", found.instruments) };
    assert_eq!((&*first.name, &*second.name), ("PAIR0 €", "PAIR1 €"));
    assert_eq!([first.bars["M1"], second.bars["M1"]], Plan::two_instruments().base_bars[..]);
    let own = |k: i32| -> Vec<i64> {
        let instruments = &series.instruments.as_ref().unwrap().sample_instrument;
        instruments
            .iter()
            .zip(&series.sample_time)
            .filter(|(instrument, _)| **instrument == k)
            .map(|(_, time)| *time)
            .collect()
    };
    for (k, instrument) in [(0, first), (1, second)] {
        let times = own(k);
        assert_eq!(instrument.samples, times.len());
        assert_eq!(instrument.first_sample_time, times.first().copied());
        assert_eq!(instrument.last_sample_time, times.last().copied());
    }
    assert_eq!(found.bytes, std::fs::metadata(&path).unwrap().len());
    let span = found.time.as_ref().unwrap();
    assert_eq!((span.first, span.last, span.largest_gap), (600_000_000_000, 2_400_000_000_000, 60_000_000_000));

    let base = &found.timeframes[0];
    assert_eq!((base.name.as_deref(), base.steps, base.bars, base.features.len()), (Some("M1"), 4, Some(70), 3));
    let column: Vec<f64> = series.timeframes[0].values.iter().skip(1).step_by(3).map(|&x| f64::from(x)).collect();
    let statistics = &base.features[1];
    assert_eq!((statistics.name.as_str(), statistics.count), ("feature_1", 70));
    assert!((statistics.mean.unwrap() - column.iter().sum::<f64>() / 70.0).abs() < 1e-12);
    assert_eq!(found.targets.iter().map(|horizon| horizon.name.as_str()).collect::<Vec<_>>(), ["1", "2"]);

    let values = found.datasets.iter().find(|dataset| dataset.path == "/series/M1/values").unwrap();
    assert_eq!((&values.shape[..], &*values.dtype, values.byte_order), (&[70, 3][..], "float32", "little"));
    assert_eq!(values.chunk.as_deref(), Some(&[70, 3][..]));
    assert_eq!(
        (&values.filters[..], values.bytes_uncompressed),
        (&["shuffle".to_owned(), "gzip-4".to_owned()][..], 840)
    );
    assert!(serde_json::to_string(&found).unwrap().contains(r#""symbol":"EURUSD""#));
}

#[test]
fn values_that_are_not_finite_or_never_change_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    write(&path, 5, 4, 2, &WriteOptions::default(), |i| match i {
        11 | 13 => f32::NAN,
        38 => f32::INFINITY,
        _ if i % 2 == 0 => 3.0,
        _ => i as f32,
    });
    let expected = [
        "Error /features[4, 3]: column feature_0 has 1 values of infinity",
        "Error /features[1, 1]: column feature_1 has 2 values of NaN",
        "Warning /features[]: column feature_0 is constant at 3",
        "Note /timestamps[]: the file has no times, so that it can be split by position only",
    ];
    assert_eq!(messages(&inspect(&path).unwrap()), expected);
}

#[test]
fn a_target_that_is_not_known_is_no_problem_and_an_infinite_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    write(&path, 5, 4, 2, &WriteOptions::default(), |i| i as f32);
    let file = hdf5::File::open_rw(&path).unwrap();
    file.dataset("targets").unwrap().write_raw(&[1.0f32, f32::NAN, f32::NAN, f32::INFINITY, 2.0]).unwrap();
    file.close().unwrap();
    let expected = [
        "Error /targets[3]: column 1 has 1 values of infinity",
        "Note /targets[1]: column 1 has 2 values of NaN",
        "Note /timestamps[]: the file has no times, so that it can be split by position only",
    ];
    assert_eq!(messages(&inspect(&path).unwrap()), expected);
}

#[test]
fn a_file_that_does_not_tell_when_its_labels_end_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    let faults = |attributes: &[(&str, AttributeValue)]| {
        write_with(&path, [9, 4, 1], &WriteOptions::default(), attributes, |i| (i % 13) as f32);
        let mut faults = messages(&inspect(&path).unwrap());
        faults.retain(|message| !message.contains("the file has no times"));
        faults
    };
    let missing = "Warning /samples/label_end_time[]: the file does not tell when its labels end";
    let [fault] = &faults(&[])[..] else { panic!() };
    assert!(fault.starts_with(missing), "{fault}");
    for bars in [0, 120] {
        assert_eq!(faults(&[("horizon_bars", bars.into())]), Vec::<String>::new());
    }
    for wrong in [AttributeValue::from(-1), 1.0.into(), "120".into()] {
        let [fault] = &faults(&[("horizon_bars", wrong)])[..] else { panic!() };
        assert!(fault.starts_with("Error /@horizon_bars[]: expected an integer from 0 on"), "{fault}");
    }

    let mut series = made::series(&Plan::two_instruments());
    series.attributes.remove("horizon_bars");
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    assert_eq!(messages(&inspect(&path).unwrap()), Vec::<String>::new(), "it has the list");
    series.sample_label_end_time.clear();
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    assert!(messages(&inspect(&path).unwrap())[0].starts_with(missing));
}

#[test]
fn large_chunks_make_single_samples_expensive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    let cases = [
        (Some(128), Compression::Gzip { level: 1 }, 1),
        (Some(64), Compression::Lzf, 0),
        (Some(128), Compression::None, 0),
        (None, Compression::Gzip { level: 1 }, 0),
    ];
    for (rows, compression, expected) in cases {
        let rows = rows.and_then(std::num::NonZeroUsize::new);
        let options = WriteOptions { storage: Storage::Chunked { rows, compression } };
        write(&path, 128, 256, 16, &options, |i| (i % 1000) as f32);
        let found = inspect(&path).unwrap();
        let expensive = found.problems.iter().filter(|problem| problem.severity == Severity::Warning);
        assert_eq!(expensive.count(), expected, "{rows:?} {compression:?}: {:?}", messages(&found));
    }
}

#[test]
fn times_out_of_order_and_data_never_written_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    write(&path, 4, 2, 1, &WriteOptions::default(), |i| i as f32);
    let file = hdf5::File::open_rw(&path).unwrap();
    file.new_dataset::<i64>().shape([4]).create("timestamps").unwrap().write_raw(&[5_i64, 9, 9, 7]).unwrap();
    file.new_dataset::<f32>().chunk([4, 4]).shape([8, 8]).create("planned").unwrap();
    file.close().unwrap();
    let found = inspect(&path).unwrap();
    let expected = [
        "Warning /planned[]: shape [8, 8] is declared, but no value was ever written",
        "Warning /timestamps[2]: the time 9 equals that of the sample before, 9",
    ];
    assert_eq!(messages(&found), expected);
    assert_eq!(found.time.unwrap().largest_gap_index, Some(1));
}

#[test]
fn statistics_count_every_piece_of_a_large_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    // 3 MB in chunks of 7 samples: several pieces, the last chunk and the last piece incomplete.
    let (samples, steps, features) = (250, 100, 30);
    for rows in [None, std::num::NonZeroUsize::new(7)] {
        let options = match rows {
            None => WriteOptions { storage: Storage::Contiguous },
            rows => WriteOptions { storage: Storage::Chunked { rows, compression: Compression::None } },
        };
        write(&path, samples, steps, features, &options, |i| match i {
            700_000 => f32::NAN,
            _ => (i / features) as f32,
        });
        let columns = &inspect(&path).unwrap().timeframes[0].features;
        let place = 700_000 / features;
        for (feature, column) in columns.iter().enumerate() {
            let missing = u64::from(feature == 700_000 % features);
            assert_eq!(column.count, (samples * steps) as u64 - missing);
            assert_eq!((column.min, column.max), (Some(0.0), Some((samples * steps - 1) as f64)));
            let expected = (missing == 1).then(|| vec![place / steps, place % steps]);
            assert_eq!(column.nan.first, expected, "feature {feature}");
        }
    }
}
