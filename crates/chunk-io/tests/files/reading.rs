//! Rows read past the HDF5 library are those that it reads, whatever is asked for; and what the
//! options promise.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use megabatch_chunk_io::{Error, NonFinite, ReadBy, SampleBlock, Source, SourceOptions};
use megabatch_gpu_core::Device;
use proptest::prelude::*;

/// Nothing is held in memory, so that each request reads the file.
const FROM_FILE: SourceOptions = SourceOptions {
    resident_bytes_max: 0,
    series_cache_bytes: None,
    is_checked: false,
    threads: 2,
    non_finite: NonFinite::Pass,
};

fn open(path: &Path, options: SourceOptions) -> Source {
    Source::open_with(path, &Device::cpu().scope("data"), options).unwrap()
}

/// Storage of a dataset.
#[derive(Clone, Debug)]
struct Form {
    shape: [usize; 3],
    chunk: Option<[usize; 3]>,
    filters: u8,
    width: u8,
}

fn forms() -> impl Strategy<Value = Form> {
    let axes = (1_usize..30, 1_usize..12, 1_usize..9);
    (axes, prop::option::weighted(0.5, (1_usize..7, 1_usize..13, 1_usize..10)), 0_u8..5, 0_u8..3).prop_map(
        |((n, t, f), chunk, filters, width)| Form {
            shape: [n, t, f],
            chunk: chunk.map(|(rows, steps, features)| [rows.min(n), steps.min(t), features.min(f)]),
            filters,
            width,
        },
    )
}

/// Writes `features` in this form, and targets.
fn write(path: &Path, form: &Form) {
    let file = hdf5::File::create(path).unwrap();
    let elements: usize = form.shape.iter().product();
    let values = (0..elements).map(|k| ((k * 7919) % 1009) as f32 * 0.25 - 100.0);
    match form.width {
        0 => write_as(&file, form, &values.map(half::f16::from_f32).collect::<Vec<_>>()),
        1 => write_as(&file, form, &values.collect::<Vec<_>>()),
        _ => write_as(&file, form, &values.map(f64::from).collect::<Vec<_>>()),
    }
    file.new_dataset::<f32>().shape([form.shape[0], 1]).create("targets").unwrap();
}

fn write_as<T: hdf5::H5Type>(file: &hdf5::File, form: &Form, values: &[T]) {
    let builder = file.new_dataset::<T>();
    let builder = match form.chunk {
        None => builder,
        Some(chunk) => {
            let builder = builder.chunk(chunk);
            match form.filters {
                0 => builder,
                1 => builder.deflate(3),
                2 => builder.shuffle().deflate(6).fletcher32(),
                3 => builder.shuffle().lzf(),
                _ => builder.fletcher32(),
            }
        }
    };
    builder.shape(form.shape).create("features").unwrap().write_raw(values).unwrap();
}

proptest! {
    #[test]
    fn any_rows_are_as_the_library_reads_them(
        form in forms(), list in prop::collection::vec(0_usize..1000, 0..40), ends in (0_usize..1000, 0_usize..1000), threads in 1_usize..4
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windows.h5");
        write(&path, &form);
        let [samples, steps, features] = form.shape;
        let library: Vec<f32> = hdf5::File::open(&path).unwrap().dataset("features").unwrap().read_raw().unwrap();
        let row = steps * features;

        let source = open(&path, SourceOptions { threads, ..FROM_FILE });
        let list: Vec<usize> = list.into_iter().map(|sample| sample % samples).collect();
        let mut gathered = SampleBlock::zeros(source.shape(), list.len());
        source.gather(&list, gathered.slices()).unwrap();
        let expected = list.iter().flat_map(|&sample| &library[sample * row..(sample + 1) * row]);
        prop_assert!(gathered.features[0].iter().eq(expected));

        let (a, b) = (ends.0 % (samples + 1), ends.1 % (samples + 1));
        let range = a.min(b)..a.max(b);
        let mut read = SampleBlock::zeros(source.shape(), range.len());
        source.read(range.clone(), read.slices()).unwrap();
        prop_assert_eq!(&read.features[0], &library[range.start * row..range.end * row]);
        let ways = source.storage().unwrap();
        prop_assert!(!matches!(ways[0].read_by, ReadBy::Library { .. }), "{:?}", ways[0]);
    }
}

proptest! {
    #[test]
    fn no_rows_are_read_once_nobody_wants_them(form in forms(), threads in 1_usize..4) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windows.h5");
        write(&path, &form);
        let source = open(&path, SourceOptions { threads, ..FROM_FILE });
        let list: Vec<usize> = (0..form.shape[0]).rev().collect();
        let mut block = SampleBlock::zeros(source.shape(), list.len());
        let stopped = source.gather_until(&list, block.slices(), &AtomicBool::new(true));
        prop_assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        source.gather_until(&list, block.slices(), &AtomicBool::new(false)).unwrap();
    }
}

/// A file of 20 samples in chunks, with NaN and infinities at three places of the features and one
/// of the targets.
fn dirty(path: &Path) {
    let file = hdf5::File::create(path).unwrap();
    let mut values = vec![1.0_f32; 20 * 3 * 2];
    values[7 * 6 + 2 * 2 + 1] = f32::NAN;
    values[7 * 6 + 5] = f32::NAN;
    values[9 * 6] = f32::INFINITY;
    values[19 * 6 + 3] = f32::NEG_INFINITY;
    let dataset = file.new_dataset::<f32>().chunk([4, 2, 2]).deflate(1).shape([20, 3, 2]);
    dataset.create("features").unwrap().write_raw(&values).unwrap();
    let mut targets = vec![0.5_f64; 20];
    targets[3] = f64::NAN;
    file.new_dataset::<f64>().shape([20, 1]).create("targets").unwrap().write_raw(&targets).unwrap();
}

#[test]
fn values_that_are_not_finite_are_passed_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dirty.h5");
    dirty(&path);
    for threads in [1, 3] {
        let read = |non_finite, samples: std::ops::Range<usize>| {
            let source = open(&path, SourceOptions { threads, non_finite, ..FROM_FILE });
            let mut block = SampleBlock::zeros(source.shape(), samples.len());
            source.read(samples, block.slices()).map(|_| block)
        };
        let block = read(NonFinite::Pass, 0..20).unwrap();
        assert!(block.features[0][47].is_nan() && block.targets[3].is_nan());

        for (samples, index, found) in
            [(0..20, 7, "NaN for feature_1 in row 2"), (8..20, 9, "inf for feature_0 in row 0")]
        {
            let message = read(NonFinite::Fail, samples).unwrap_err().to_string();
            let expected =
                format!("/features[{index}]: expected a sample of finite features, found {found} of its window");
            assert!(message.contains(&expected), "{message}");
        }
        assert!(read(NonFinite::Fail, 0..7).unwrap().targets[3].is_nan());
    }
    let held = SourceOptions { resident_bytes_max: 1 << 20, non_finite: NonFinite::Fail, ..FROM_FILE };
    let error = Source::open_with(&path, &Device::cpu().scope("data"), held).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

/// A NaN of any sample refused those that were asked for.
#[test]
fn windows_that_are_held_unchecked_are_checked_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dirty.h5");
    dirty(&path);
    let mut held = open(&path, SourceOptions { non_finite: NonFinite::Fail, ..FROM_FILE });
    let from_file = open(&path, SourceOptions { non_finite: NonFinite::Fail, ..FROM_FILE });
    held.load_resident_unchecked().unwrap();
    assert!(held.is_resident());
    for source in [&held, &from_file] {
        let mut block = SampleBlock::zeros(source.shape(), 3);
        source.gather(&[8, 3, 18], block.slices()).unwrap();
        assert!(block.targets[1].is_nan());
        let error = source.gather(&[8, 19, 7], block.slices()).unwrap_err().to_string();
        assert!(error.contains("/features[19]: expected a sample of finite features, found -inf"), "{error}");
        let error = source.read(6..9, block.slices()).unwrap_err().to_string();
        assert!(error.contains("/features[7]: expected a sample of finite features, found NaN"), "{error}");
        source.gather_unchecked(&[8, 19, 7], block.slices()).unwrap();
        assert_eq!(block.features[0][6 + 3], f32::NEG_INFINITY);
    }
}

/// It was called infinite, and a gap.
#[test]
fn a_number_beyond_the_range_of_f32_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.h5");
    {
        let file = hdf5::File::create(&path).unwrap();
        let mut values = vec![1.0_f64; 4 * 3 * 2];
        values[2 * 6 + 3] = -1e39;
        file.new_dataset::<f64>().shape([4, 3, 2]).create("features").unwrap().write_raw(&values).unwrap();
        file.new_dataset::<f64>().shape([4, 1]).create("targets").unwrap();
    }
    let source = open(&path, SourceOptions { non_finite: NonFinite::Fail, ..FROM_FILE });
    let mut block = SampleBlock::zeros(source.shape(), 4);
    let error = source.read(0..4, block.slices()).unwrap_err().to_string();
    let expected = "/features[2]: expected a sample of finite features, found -inf for feature_1 in row 1 of its window: \
                    -1e39, which is beyond the range of 32-bit floats; scale the numbers before the file is written";
    assert!(error.contains(expected), "{error}");
}

/// They were refused, and h5py writes them for `targets > 0`.
#[test]
fn targets_of_booleans_are_zero_or_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signs.h5");
    {
        let file = hdf5::File::create(&path).unwrap();
        file.new_dataset::<f32>().shape([4, 3, 2]).create("features").unwrap();
        let signs = file.new_dataset::<bool>().shape([4]).create("targets").unwrap();
        signs.write_raw(&[true, false, false, true]).unwrap();
    }
    let source = open(&path, FROM_FILE);
    let mut targets = [0.5; 4];
    source.read_targets(&[0, 1, 2, 3], &mut targets).unwrap();
    assert_eq!(targets, [1.0, 0.0, 0.0, 1.0]);
}

/// The text was that of a series, which is made of bars.
#[test]
fn an_infinite_target_of_windows_is_told_of_in_their_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dirty.h5");
    dirty(&path);
    {
        let dataset = hdf5::File::open_rw(&path).unwrap().dataset("targets").unwrap();
        let mut values = dataset.read_raw::<f64>().unwrap();
        values[5] = f64::INFINITY;
        dataset.write_raw(&values).unwrap();
    }
    let mut held = open(&path, SourceOptions { non_finite: NonFinite::Fail, ..FROM_FILE });
    for _ in 0..2 {
        let mut targets = [0.0; 2];
        held.read_targets(&[3, 4], &mut targets).unwrap();
        let error = held.read_targets(&[4, 5], &mut targets).unwrap_err().to_string();
        let expected = "/targets[5]: expected finite numbers, or NaN for a target that is not known, found inf for target 0; \
                        correct the target, or leave the sample out before the file is written";
        assert!(error.contains(expected), "{error}");
        held.load_resident_unchecked().unwrap();
    }
}

#[test]
fn a_file_that_changes_while_it_is_open_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    let form = Form { shape: [20, 5, 3], chunk: None, filters: 0, width: 1 };
    type Change = fn(&Path);
    let changes: [(Change, &str); 3] = [
        (
            |path| {
                let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.seek(SeekFrom::End(0)).unwrap();
                file.write_all(b"more").unwrap();
            },
            "bytes and has",
        ),
        (|path| std::fs::File::options().write(true).open(path).unwrap().set_len(2100).unwrap(), "bytes and has 2100"),
        (
            |path| {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            },
            "it was written to",
        ),
    ];
    for (change, expected) in changes {
        for read_before in [true, false] {
            write(&path, &form);
            let source = open(&path, FROM_FILE);
            let mut block = SampleBlock::zeros(source.shape(), 3);
            if read_before {
                source.read(0..3, block.slices()).unwrap();
            }
            change(&path);
            let message = source.gather(&[19, 0, 4], block.slices()).unwrap_err().to_string();
            assert!(
                message.contains("the file changed while it was in use") && message.contains(expected),
                "{message}"
            );
        }
    }
    write(&path, &form);
    let source = open(&path, FROM_FILE);
    write(&folder.path().join("other.h5"), &form);
    std::fs::rename(folder.path().join("other.h5"), &path).unwrap();
    let message = source.read(0..3, SampleBlock::zeros(source.shape(), 3).slices()).unwrap_err().to_string();
    assert!(message.contains("another file is in its place"), "{message}");
}

#[test]
fn storage_tells_what_a_planner_needs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    write(&path, &Form { shape: [20, 5, 3], chunk: Some([6, 5, 2]), filters: 2, width: 2 });
    let [features, targets] = &open(&path, FROM_FILE).storage().unwrap()[..] else { panic!("features and targets") };
    assert_eq!((&features.object[..], &features.shape[..], features.element_bytes), ("/features", &[20, 5, 3][..], 8));
    assert_eq!(features.chunk, Some(vec![6, 5, 2]));
    assert_eq!(features.filters, ["shuffle", "deflate", "fletcher32"]);
    assert_eq!(features.read_by, ReadBy::Chunk);
    assert!((1..20 * 5 * 3 * 8 * 2).contains(&features.stored_bytes), "{features:?}");
    // Never written: nothing takes room.
    assert_eq!((targets.stored_bytes, &targets.read_by, &targets.chunk), (0, &ReadBy::Position, &None));
}
