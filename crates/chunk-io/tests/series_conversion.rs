//! A series into windows, back, and into another storage: its mark of verification, and memory that
//! does not grow with samples.

mod made;

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;

use hdf5::types::VarLenUnicode;
use made::{Plan, timeframe};
use megabatch_chunk_io::{
    Compression, ConvertOptions, Error, Layout, SampleBlock, Series, SeriesFile, Source, SourceOptions, Storage,
    StorageChoice, StorageForm, WriteOptions, convert, write_series,
};
use megabatch_gpu_core::Device;

/// A series of `bars` base bars an instrument.
fn series(bars: usize) -> Series {
    let timeframes = vec![timeframe("M1", 1, 6, 7), timeframe("M5", 5, 3, 5)];
    made::series(&Plan { timeframes, base_bars: vec![bars, bars / 2], ..Plan::two_instruments() })
}

fn write(path: &Path, series: &Series, storage: Storage) {
    write_series(path, series, &WriteOptions { storage }).unwrap();
}

fn options(to: Layout, memory_bytes: usize, storage: StorageChoice) -> ConvertOptions {
    ConvertOptions { to: Some(to), threads: 1, memory_bytes, storage, ..ConvertOptions::default() }
}

/// Converts; returns the most bytes that were booked.
fn run(input: &Path, out: &Path, options: &ConvertOptions) -> Result<usize, Error> {
    let device = Device::cpu();
    let mut last = 0;
    let mut observe = |progress: megabatch_chunk_io::ConversionProgress| {
        assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
        last = progress.total_bytes - progress.done_bytes;
        ControlFlow::Continue(())
    };
    convert(input, out, options, &device.scope("convert"), &mut observe)?;
    Ok(device.usage().allocated_bytes_peak)
}

fn storages() -> [StorageChoice; 4] {
    let chunked = |rows, compression| StorageChoice {
        form: None,
        chunk_rows: NonZeroUsize::new(rows),
        compression: Some(compression),
    };
    [
        StorageChoice { form: Some(StorageForm::Contiguous), ..StorageChoice::default() },
        chunked(100, Compression::Lzf),
        chunked(64, Compression::Gzip { level: 1 }),
        chunked(333, Compression::None),
    ]
}

fn open(path: &Path) -> SeriesFile {
    SeriesFile::open(path, &Device::cpu().scope("data")).unwrap()
}

#[test]
fn a_converted_series_has_the_mark_of_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let [path, unmarked, out] = ["series.h5", "unmarked.h5", "out.h5"].map(|name| folder.path().join(name));
    let series = series(900);
    write(&path, &series, Storage::Contiguous);
    fs::copy(&path, &unmarked).unwrap();
    hdf5::File::open_rw(&unmarked).unwrap().unlink("/checksums").unwrap();
    let fingerprint = open(&path).fingerprint().map(str::to_owned);
    for storage in storages() {
        for input in [&path, &unmarked] {
            run(input, &out, &options(Layout::Series, 1 << 20, storage)).unwrap();
            assert_eq!(open(&out).fingerprint(), fingerprint.as_deref(), "{storage:?}");
            assert_eq!(open(&out).read().unwrap(), series, "{storage:?}");
        }
    }
    let file = open(&unmarked);
    let mut read = 0;
    let found = file.fingerprint_of_blocks(|bytes| {
        read += bytes as u64;
        Ok::<(), Error>(())
    });
    assert_eq!((found.ok(), read), (fingerprint, file.array_bytes()));

    // A windows file has none; the series that is made of it has.
    let windows = folder.path().join("windows.h5");
    run(&path, &windows, &options(Layout::Windows, 1 << 20, StorageChoice::default())).unwrap();
    assert!(hdf5::File::open(&windows).unwrap().group("/checksums").is_err());
    run(&windows, &out, &options(Layout::Series, 1 << 20, StorageChoice::default())).unwrap();
    assert!(open(&out).fingerprint().is_some());
}

#[test]
fn a_damaged_series_is_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    let [path, out] = ["series.h5", "out.h5"].map(|name| folder.path().join(name));
    write(&path, &series(900), Storage::Contiguous);
    for object in ["/series/M5/values", "/targets", "/samples/end/M1", "/samples/reach_time", "/checksums/targets"] {
        let offset = hdf5::File::open(&path).unwrap().dataset(object).unwrap().offset().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[offset as usize + 5] ^= 1;
        let damaged = folder.path().join("damaged.h5");
        fs::write(&damaged, bytes).unwrap();
        let name = object.trim_start_matches("/checksums");
        for to in [Layout::Series, Layout::Windows] {
            let error = run(&damaged, &out, &options(to, 1 << 20, storages()[0])).unwrap_err().to_string();
            let is_named = error.contains(&format!("{name}[0]: expected rows 0 to "));
            assert!(is_named || (name != object && error.contains("/checksums@fingerprint")), "{object}: {error}");
            assert!(error.contains("damaged.h5") && !out.exists(), "{error}");
        }
    }
}

/// Beside the budget there are checksums, 8 bytes for 4 KiB.
#[test]
fn memory_of_a_conversion_does_not_grow_with_samples() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    const MEMORY_BYTES: usize = 2 << 20;
    for (name, bars) in [("short", 1_000), ("long", 150_000)] {
        write(&at(name), &series(bars), Storage::Contiguous);
    }
    // The index alone, 8 bytes for each of 8 numbers a sample, would not fit.
    assert!(fs::metadata(at("long")).unwrap().len() as usize > 8 * MEMORY_BYTES);
    for storage in &storages()[..2] {
        for to in [Layout::Series, Layout::Windows] {
            for name in ["short", "long"] {
                let little = run(&at(name), &at("little.h5"), &options(to, MEMORY_BYTES, *storage)).unwrap();
                let checksums = fs::metadata(at(name)).unwrap().len() as usize / 256;
                assert!(little <= MEMORY_BYTES + checksums, "{name} to {to}: {little} and {checksums}");
                run(&at(name), &at("much.h5"), &options(to, 1 << 30, *storage)).unwrap();
                assert!(fs::read(at("little.h5")).unwrap() == fs::read(at("much.h5")).unwrap(), "{name} to {to}");
            }
        }
    }
}

/// Stores the lists of samples of a series in chunks of 64, deflated and with Fletcher's sums, and
/// more lists of such chunks beside them.
fn filter_lists(path: &Path) {
    let file = hdf5::File::open_rw(path).unwrap();
    let samples = file.group("samples").unwrap();
    let weights = samples.dataset("weight").unwrap().read_raw::<f32>().unwrap();
    samples.unlink("weight").unwrap();
    let list = samples.new_dataset::<f64>().chunk([64]).deflate(4).fletcher32().shape([weights.len()]);
    list.create("weight").unwrap().write_raw(&weights.iter().copied().map(f64::from).collect::<Vec<_>>()).unwrap();
    for name in ["label_end_time", "reach_time", "instrument"] {
        let values = samples.dataset(name).unwrap().read_raw::<i64>().unwrap();
        samples.unlink(name).unwrap();
        let list = samples.new_dataset::<i64>().chunk([64]).deflate(4).fletcher32().shape([values.len()]);
        list.create(name).unwrap().write_raw(&values).unwrap();
    }
    let texts: Vec<VarLenUnicode> = (0..1_000).map(|n| format!("note {n}").parse().unwrap()).collect();
    let list = samples.new_dataset::<VarLenUnicode>().chunk([64]).deflate(4).fletcher32().shape([1_000]);
    list.create("note").unwrap().write_raw(&texts).unwrap();
    let list = samples.new_dataset::<f64>().chunk([64, 2]).deflate(4).fletcher32().shape([1_000, 2]);
    list.create("extra").unwrap().write_raw(&(0..2_000).map(f64::from).collect::<Vec<_>>()).unwrap();
    file.unlink("/checksums").unwrap();
}

#[test]
fn filtered_lists_of_samples_come_along() {
    let folder = tempfile::tempdir().unwrap();
    let [path, out] = ["series.h5", "windows.h5"].map(|name| folder.path().join(name));
    let plan =
        Plan { timeframes: vec![timeframe("M1", 1, 6, 2)], base_bars: vec![505, 505], ..Plan::two_instruments() };
    write(&path, &made::series(&plan), Storage::Contiguous);
    filter_lists(&path);
    let back = folder.path().join("back.h5");
    for (from, to, layout) in
        [(&path, &back, Layout::Series), (&path, &out, Layout::Windows), (&out, &back, Layout::Series)]
    {
        run(from, to, &options(layout, 1 << 20, StorageChoice::default())).unwrap();
        let [old, new] = [from, to].map(|path| hdf5::File::open(path).unwrap().group("samples").unwrap());
        for name in ["label_end_time", "reach_time", "instrument", "weight", "extra"] {
            let [old, new] = [&old, &new].map(|samples| samples.dataset(name).unwrap().read_raw::<f64>().unwrap());
            assert_eq!((old.len() % 1_000, &old), (0, &new), "{name} of {}", to.display());
        }
        let texts = new.dataset("note").unwrap().read_raw::<VarLenUnicode>().unwrap();
        assert!(texts.iter().enumerate().all(|(n, text)| text.as_str() == format!("note {n}")), "{}", to.display());
    }
}

fn change<T: hdf5::H5Type + Copy>(path: &Path, object: &str, place: usize, value: T) {
    let file = hdf5::File::open_rw(path).unwrap();
    let _ = file.unlink("/checksums");
    let dataset = file.dataset(object).unwrap();
    let mut values = dataset.read_raw::<T>().unwrap();
    values[place] = value;
    dataset.write_raw(&values).unwrap();
}

#[test]
fn numbers_that_a_series_may_not_have_are_refused_by_name_wherever_they_are_met() {
    let folder = tempfile::tempdir().unwrap();
    let [path, windows, out] = ["series.h5", "windows.h5", "out.h5"].map(|name| folder.path().join(name));
    write(&path, &series(900), Storage::Contiguous);
    run(&path, &windows, &options(Layout::Windows, 1 << 20, StorageChoice::default())).unwrap();
    // The last bar of all is in the last window alone.
    let last = hdf5::File::open(&windows).unwrap().dataset("/features/M1").unwrap().size() - 1;
    change(&windows, "/features/M1", last, f32::NAN);
    let error = run(&windows, &out, &options(Layout::Series, 1 << 20, StorageChoice::default())).unwrap_err();
    let expected =
        "out.h5: /series/M1/values[1331]: expected finite features, found NaN for feature_6; correct or drop";
    assert!(error.to_string().contains(expected) && !out.exists(), "{error}");

    for (object, place, value, expected) in [
        (
            "/series/M5/values",
            5 * 70 + 2,
            f32::NAN,
            "/series/M5/values[70]: expected finite features, found NaN for feature_2",
        ),
        (
            "/series/M1/values",
            7 * 300 + 6,
            f32::INFINITY,
            "/series/M1/values[300]: expected finite features, found inf for",
        ),
        (
            "/targets",
            2 * 40,
            f32::NEG_INFINITY,
            "/targets[40]: expected finite numbers, or NaN for a target that is not known",
        ),
    ] {
        write(&path, &series(900), Storage::Contiguous);
        change(&path, object, place, value);
        for to in [Layout::Series, Layout::Windows] {
            let error = run(&path, &out, &options(to, 1 << 20, StorageChoice::default())).unwrap_err().to_string();
            assert!(error.contains(expected) && !out.exists(), "{to}: {error}");
        }
        let scope = Device::cpu().scope("data");
        let resident = Source::open(&path, &scope).unwrap_err().to_string();
        assert!(resident.contains(expected) && resident.contains("series.h5"), "{resident}");
        // A streamed series is verified, or else refused when the row is read.
        let options = SourceOptions { series_cache_bytes: Some(0), ..SourceOptions::default() };
        let source = Source::open_with(&path, &scope, options).unwrap();
        let file = source.series().unwrap().file();
        assert!(file.fingerprint_of_blocks(|_| Ok::<(), Error>(())).unwrap_err().to_string().contains(expected));
        let samples: Vec<usize> = (0..source.shape().samples).collect();
        let mut block = SampleBlock::zeros(source.shape(), samples.len());
        let streamed = source.gather(&samples, block.slices()).unwrap_err().to_string();
        assert!(streamed.contains(expected) && streamed.contains("series.h5"), "{streamed}");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
