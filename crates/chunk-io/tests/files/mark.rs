//! The mark of verification: what it says, and what it finds.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use megabatch_chunk_io::{
    Compression, Error, Series, SeriesColumn, SeriesFile, Source, SourceOptions, Storage, WriteOptions, inspect,
    remove_mark, write_series,
};
use megabatch_gpu_core::{Device, Scope};

use crate::made::{self, Plan, timeframe};

fn scope() -> Scope {
    Device::cpu().scope("data")
}

/// Several blocks of checksums in each array.
fn series() -> Series {
    let timeframes = vec![timeframe("M1", 1, 6, 7), timeframe("M5", 5, 3, 5)];
    let plan = Plan { timeframes, horizons: 36, ..Plan::two_instruments() };
    made::series(&Plan { base_bars: vec![3000, 2500], ..plan })
}

fn write(path: &Path, series: &Series, storage: Storage) {
    write_series(path, series, &WriteOptions { storage }).unwrap();
}

fn streamed(path: &Path) -> Result<Source, Error> {
    Source::open_with(path, &scope(), SourceOptions { series_cache_bytes: Some(0), ..SourceOptions::default() })
}

fn fingerprint(path: &Path) -> Option<String> {
    streamed(path).unwrap().series().unwrap().file().fingerprint().map(str::to_owned)
}

#[test]
fn the_fingerprint_is_that_of_the_numbers_however_they_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let chunked = |rows: usize, compression| Storage::Chunked { rows: NonZeroUsize::new(rows), compression };
    let storages = [
        Storage::Contiguous,
        Storage::default(),
        chunked(7, Compression::Lzf),
        chunked(333, Compression::None),
        chunked(90, Compression::Gzip { level: 1 }),
    ];
    let mut found = Vec::new();
    for storage in storages {
        write(&path, &series(), storage);
        found.push(fingerprint(&path).unwrap());
        // The attributes of the root are the caller's alone.
        assert_eq!(SeriesFile::open(&path, &scope()).unwrap().read().unwrap(), series());
    }
    assert!(found.iter().all(|one| *one == found[0] && one.starts_with("blocks-")), "{found:?}");

    type Change = fn(&mut Series);
    let changes: [Change; 6] = [
        |series| series.timeframes[0].values[20_000] += 1.0,
        |series| *series.targets.last_mut().unwrap() = f32::NAN,
        |series| series.timeframes[1].steps = 2,
        |series| series.timeframes[0].name = "M2".to_owned(),
        |series| series.sample_time.iter_mut().for_each(|time| *time += 1),
        |series| series.timeframes[0].segment_start.insert(1, 2),
    ];
    for (k, change) in changes.iter().enumerate() {
        let mut other = series();
        change(&mut other);
        write(&path, &other, Storage::Contiguous);
        assert_ne!(fingerprint(&path).unwrap(), found[0], "change {k}");
    }
}

/// Place of the first byte of a dataset that is contiguous.
fn offset(path: &Path, object: &str) -> u64 {
    hdf5::File::open(path).unwrap().dataset(object).unwrap().offset().unwrap()
}

/// The file at `path` with one bit changed.
fn with_flipped_bit(path: &Path, at: u64) -> PathBuf {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 4;
    let flipped = path.with_extension("flipped.h5");
    fs::write(&flipped, bytes).unwrap();
    flipped
}

/// Reads everything of a streamed series, by the ways in which training does, until one fails.
fn read_all(source: &Source) -> Result<(), Error> {
    let series = source.series().unwrap();
    let file = series.file();
    let samples = 0..source.shape().samples;
    let mut list = vec![0; 1];
    for sample in samples.clone().step_by(64) {
        for column in [SeriesColumn::SampleTime, SeriesColumn::ReachTime, SeriesColumn::LabelEndTime] {
            file.read_column(column, sample..sample + 1, &mut list)?;
        }
        for k in 0..file.timeframes().len() {
            file.read_column(SeriesColumn::SampleEnd(k), sample..sample + 1, &mut list)?;
        }
    }
    for k in 0..file.timeframes().len() {
        let width = file.timeframes()[k].feature_names().len();
        let mut bar = vec![0.0; width];
        for row in (0..file.bars(k)).step_by(50) {
            series.read_bars(k, std::slice::from_ref(&(row..row + 1)), &mut bar)?;
        }
        file.scan_column(SeriesColumn::CloseTime(k), 0..file.bars(k), |_, _| Ok::<(), Error>(()))?;
    }
    let mut targets = vec![0.0; source.shape().horizons];
    samples.step_by(20).try_for_each(|sample| source.read_targets(&[sample], &mut targets))
}

#[test]
fn a_bit_that_changed_is_named_when_its_block_is_read_and_at_once_by_a_resident_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write(&path, &series(), Storage::Contiguous);
    read_all(&streamed(&path).unwrap()).unwrap();
    // Dataset, byte of the changed bit, first and last row of its block.
    let cases: [(&str, u64, usize, usize); 9] = [
        ("/series/M1/values", 4 * (7 * 2000 + 3), 1898, 2043),
        ("/series/M5/values", 4 * (5 * 1090), 1020, 1099),
        ("/series/M1/close_time", 8 * 5000, 4608, 5119),
        ("/samples/end/M1", 8 * 1500, 1024, 1535),
        ("/samples/end/M5", 8 * 5, 0, 511),
        ("/samples/time", 8 * 600, 512, 1023),
        ("/samples/reach_time", 8 * 5400, 5120, 5471),
        ("/samples/label_end_time", 8 * 511, 0, 511),
        ("/targets", 4 * (36 * 700 + 1), 700, 727),
    ];
    for (object, byte, first, last) in cases {
        let flipped = with_flipped_bit(&path, offset(&path, object) + byte);
        let expected =
            format!("{}: {object}[{first}]: expected rows {first} to {last} as they were written", flipped.display());
        let source = streamed(&flipped).unwrap();
        let error = read_all(&source).unwrap_err().to_string();
        assert!(error.contains(&expected), "{object}: {error}");
        let resident = Source::open(&flipped, &scope()).unwrap_err().to_string();
        assert!(resident.contains(&expected), "{object}: {resident}");
        let inspection = inspect(&flipped).unwrap();
        assert!(inspection.problems.iter().any(|problem| problem.object == object), "{object}");
    }
}

#[test]
fn instruments_checksums_and_lists_are_compared_when_the_file_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write(&path, &series(), Storage::Contiguous);
    for (object, byte, expected) in [
        ("/samples/instrument", 4 * 3000, "/samples/instrument[2048]: expected rows 2048 to 3071"),
        ("/checksums/targets", 8, "/checksums@fingerprint: expected blocks-"),
        ("/checksums/samples/reach_time", 0, "/checksums@digest: expected "),
        ("/checksums/series/M5/close_time", 8, "/checksums@digest: expected "),
        ("/series/M1/instrument_start", 8, "/checksums@digest: expected "),
        ("/series/M5/segment_start", 8, "/checksums@fingerprint: expected "),
    ] {
        let flipped = with_flipped_bit(&path, offset(&path, object) + byte);
        let error = streamed(&flipped).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("delete its group /checksums"), "{object}: {error}");
    }
}

#[test]
fn a_file_without_a_mark_or_with_that_of_another_version_is_read_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let [unmarked, newer] = ["unmarked.h5", "newer.h5"].map(|name| folder.path().join(name));
    for path in [&unmarked, &newer] {
        write(path, &series(), Storage::Contiguous);
    }
    remove_mark(&unmarked).unwrap();
    assert!(remove_mark(&unmarked).is_err());
    let file = hdf5::File::open_rw(&newer).unwrap();
    file.group("/checksums").unwrap().attr("version").unwrap().write_scalar(&2_i64).unwrap();
    drop(file);
    for path in [&unmarked, &newer] {
        assert_eq!(fingerprint(path), None);
        assert_eq!(SeriesFile::open(path, &scope()).unwrap().read().unwrap(), series());
        let flipped = with_flipped_bit(path, offset(path, "/series/M1/values") + 4);
        read_all(&streamed(&flipped).unwrap()).unwrap();
    }
}
