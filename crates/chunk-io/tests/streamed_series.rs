//! Series whose bars and targets stay in the file, beside the same series in memory.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

mod made;

use made::{Plan, timeframe};
use megabatch_chunk_io::{
    Compression, SampleBlock, Series, Source, SourceOptions, Storage, WriteOptions, write_series,
};
use megabatch_gpu_core::{Device, Scope};
use proptest::prelude::*;

fn scope() -> Scope {
    Device::cpu().scope("data")
}

/// Bars enough for many blocks of the cache.
fn long_series() -> Series {
    let timeframes = vec![timeframe("M1", 1, 6, 7), timeframe("M5", 5, 3, 5), timeframe("H1", 60, 2, 4)];
    made::series(&Plan { timeframes, base_bars: vec![3000, 1700], ..Plan::two_instruments() })
}

fn write(path: &Path, storage: Storage) {
    write_series(path, &long_series(), &WriteOptions { storage }).unwrap();
}

fn streamed(path: &Path, scope: &Scope, cache_bytes: usize) -> Source {
    let options = SourceOptions { series_cache_bytes: Some(cache_bytes), ..SourceOptions::default() };
    Source::open_with(path, scope, options).unwrap()
}

/// Rows of a table: bars by timeframe, then the targets.
fn read(source: &Source, table: usize, ranges: &[Range<usize>]) -> Vec<u32> {
    let series = source.series().unwrap();
    let rows: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let shape = source.shape();
    let width = shape.timeframes.get(table).map_or(shape.horizons, |timeframe| timeframe.features);
    let mut out = vec![f32::NAN; rows * width];
    match table < shape.timeframes.len() {
        true => series.read_bars(table, ranges, &mut out).unwrap(),
        false => series.read_targets(ranges, &mut out).unwrap(),
    };
    out.iter().map(|x| x.to_bits()).collect()
}

fn storages() -> impl Strategy<Value = Storage> {
    let chunked = |rows: usize, compression| Storage::Chunked { rows: NonZeroUsize::new(rows), compression };
    prop_oneof![
        3 => Just(Storage::Contiguous),
        1 => (1_usize..900).prop_map(move |rows| chunked(rows, Compression::None)),
        1 => (1_usize..900).prop_map(move |rows| chunked(rows, Compression::Gzip { level: 1 })),
        1 => (1_usize..900).prop_map(move |rows| chunked(rows, Compression::Lzf)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Ranges overlap, repeat and go back; caches hold one block, some, or all.
    #[test]
    fn rows_are_those_of_the_series_in_memory(
        storage in storages(),
        cache_bytes in prop_oneof![Just(0_usize), 4_000_usize..60_000, Just(10_000_000)],
        requests in prop::collection::vec(
            (0_usize..4, prop::collection::vec((0.0..1.0_f64, 0_usize..400), 0..12)), 1..20,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.h5");
        write(&path, storage);
        let resident = Source::open(&path, &scope()).unwrap();
        let source = streamed(&path, &scope(), cache_bytes);
        let file = source.series().unwrap().file();
        for (table, places) in requests {
            let rows = if table < file.timeframes().len() { file.bars(table) } else { source.shape().samples };
            let range = |&(at, len): &(f64, usize)| {
                let start = (at * rows as f64) as usize;
                start..rows.min(start + len)
            };
            let ranges: Vec<Range<usize>> = places.iter().map(range).collect();
            prop_assert_eq!(read(&source, table, &ranges), read(&resident, table, &ranges));
        }
    }
}

#[test]
fn samples_and_targets_are_those_of_the_series_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write(&path, Storage::default());
    let (resident, source) = (Source::open(&path, &scope()).unwrap(), streamed(&path, &scope(), 0));
    let samples: Vec<usize> = (0..source.shape().samples).step_by(37).rev().collect();
    let [mut expected, mut found] = [(); 2].map(|()| SampleBlock::zeros(source.shape(), samples.len()));
    resident.gather(&samples, expected.slices()).unwrap();
    source.gather(&samples, found.slices()).unwrap();
    assert_eq!((&found.features, &found.targets), (&expected.features, &expected.targets));
    let mut targets = vec![0.0; samples.len() * source.shape().horizons];
    source.read_targets(&samples, &mut targets).unwrap();
    assert_eq!(targets, expected.targets);
    assert!(!source.is_resident() && source.any_target_known(&samples).unwrap());
}

#[test]
fn a_cache_keeps_to_its_bytes_and_reads_nothing_twice_that_it_has_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write(&path, Storage::Contiguous);
    let device = Device::cpu();
    let mut source = streamed(&path, &device.scope("data"), 0);
    let bounds = source.series().unwrap().cache_bounds().unwrap();
    let cached = |device: &Device| device.scope("data/cache").usage().allocated_bytes;
    assert_eq!(cached(&device), 0);
    source.series_mut().unwrap().set_cache(0).unwrap();
    assert_eq!(cached(&device), bounds.bytes_min);
    for cache_bytes in [bounds.bytes_min, 100_000, bounds.bytes_max, 10 * bounds.bytes_max] {
        source.series_mut().unwrap().set_cache(cache_bytes).unwrap();
        assert!(cached(&device) <= cache_bytes.min(bounds.bytes_max), "{} for {cache_bytes}", cached(&device));
    }
    let all = 0..4700;
    let once = read(&source, 0, std::slice::from_ref(&all));
    let first = source.series().unwrap().read_cost().bytes_read;
    assert_eq!(read(&source, 0, &[4000..4700, 0..4700]), [&once[4000 * 7..], &once[..]].concat());
    assert_eq!((first, source.series().unwrap().read_cost().bytes_read), (4700 * 7 * 4, first));
    let mut scanned = Vec::new();
    let scan = |part: &[f32]| {
        let _: () = scanned.extend(part.iter().map(|x| x.to_bits()));
        Ok::<(), megabatch_chunk_io::Error>(())
    };
    source.series().unwrap().scan_table(0, scan).unwrap();
    assert_eq!(scanned, once);
    source.load_resident().unwrap();
    assert_eq!((read(&source, 0, &[all]), cached(&device)), (once, 0));
}

#[test]
fn a_read_that_fails_names_dataset_and_rows_and_leaves_the_cache_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write(&path, Storage::Contiguous);
    let source = streamed(&path, &scope(), 200_000);
    let cached = read(&source, 3, std::slice::from_ref(&(100..200)));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 8).unwrap();
    let mut out = vec![0.0; 2 * 2000];
    let error =
        source.series().unwrap().read_targets(std::slice::from_ref(&(1000..3000)), &mut out).unwrap_err().to_string();
    assert!(error.starts_with("/targets: rows "), "{error}");
    assert!(error.contains(&path.display().to_string()), "{error}");
    assert_eq!(read(&source, 3, std::slice::from_ref(&(100..200))), cached);
    // What could not be read is not taken for read.
    assert!(source.series().unwrap().read_targets(std::slice::from_ref(&(1000..3000)), &mut out).is_err());
}

#[test]
fn caches_of_tables_in_large_chunks_take_what_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write(&path, Storage::Contiguous);
    // All targets in one chunk, larger than all the rest.
    let file = hdf5::File::open_rw(&path).unwrap();
    let targets = file.dataset("targets").unwrap().read_raw::<f32>().unwrap();
    let shape = [targets.len() / 2, 2];
    file.unlink("targets").unwrap();
    let build = file.new_dataset::<f32>().chunk(shape).deflate(1).shape(shape);
    build.create("targets").unwrap().write_raw(&targets).unwrap();
    file.close().unwrap();
    let device = Device::cpu();
    let mut source = streamed(&path, &device.scope("data"), 0);
    let bounds = source.series().unwrap().cache_bounds().unwrap();
    for cache_bytes in [0, bounds.bytes_min, bounds.bytes_min + 3_000, 100_000, 150_000, bounds.bytes_max] {
        let planned = bounds.taken_bytes(cache_bytes);
        source.series_mut().unwrap().set_cache(planned).unwrap();
        let taken = device.scope("data/cache").usage().allocated_bytes;
        assert_eq!(taken, planned, "{cache_bytes}");
        assert!(taken <= cache_bytes.max(bounds.bytes_min), "{taken} of {cache_bytes}");
    }
}
