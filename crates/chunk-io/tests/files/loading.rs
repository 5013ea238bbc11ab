//! The loader's batches are the samples that were asked for, whatever the size of its chunks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use megabatch_chunk_io::{
    Compression, Error, LoadedBatch, Loader, LoaderOptions, SampleBlock, Shape, Source, SourceOptions, Storage,
    TimeframeShape, WindowsHeader, WriteOptions, write_series, write_windows,
};
use megabatch_gpu_core::{Device, Scope};
use megabatch_order::{Batches, Batching, LastBatch, Order, Rank};
use proptest::prelude::*;

use crate::made::{self, Plan};

/// Location of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Series,
    WindowsInMemory,
    WindowsOnDisk,
}

/// A file of two timeframes, and how many samples it has.
fn write(folder: &Path, place: Place, bars: usize, storage: Storage) -> PathBuf {
    let path = folder.join("samples.h5");
    let plan = match place {
        Place::Series => Plan { base_bars: vec![bars, 30], ..Plan::two_instruments() },
        _ => Plan { base_bars: vec![bars], ..Plan::small() },
    };
    let (series, options) = (made::series(&plan), WriteOptions { storage });
    if place == Place::Series {
        write_series(&path, &series, &options).unwrap();
        return path;
    }
    let all = folder.join("series.h5");
    write_series(&all, &series, &WriteOptions::default()).unwrap();
    let all = Source::open(&all, &scope("data")).unwrap();
    let shape = all.shape();
    let mut block = SampleBlock::zeros(shape, shape.samples);
    all.read(0..shape.samples, block.slices()).unwrap();
    let header = WindowsHeader { shape, sample_times: None, attributes: &series.attributes };
    write_windows(&path, &header, &options, |writer| writer.push(&block)).unwrap();
    path
}

fn open(path: &Path, place: Place) -> Arc<Source> {
    let resident_bytes_max = if place == Place::WindowsOnDisk { 0 } else { usize::MAX };
    let options = SourceOptions { resident_bytes_max, ..SourceOptions::default() };
    Arc::new(Source::open_with(path, &scope("data"), options).unwrap())
}

fn scope(label: &str) -> Scope {
    Device::cpu().scope(label)
}

/// The same samples, gathered one batch at a time.
fn gathered(source: &Source, list: &[usize]) -> SampleBlock {
    let mut block = SampleBlock::zeros(source.shape(), list.len());
    source.gather(list, block.slices()).unwrap();
    block
}

/// A copy of a batch, taken through every view that it gives.
fn copied(batch: &LoadedBatch<'_>, shape: &Shape) -> SampleBlock {
    let rows = |rows: megabatch_chunk_io::BatchRows<'_>| {
        let all: Vec<f32> = rows.iter().flatten().copied().collect();
        assert_eq!(rows.iter().len(), batch.len());
        assert!(rows.as_slice().is_none_or(|slice| slice == all));
        all
    };
    for k in 0..shape.timeframes.len() {
        let Some(windows) = batch.series(k) else { continue };
        for (row, end) in batch.features(k).iter().zip(windows.ends()) {
            let end = (end + 1) * windows.features;
            assert_eq!(row, &windows.values[end - windows.steps * windows.features..end]);
        }
    }
    SampleBlock {
        samples: batch.len(),
        features: (0..shape.timeframes.len()).map(|k| rows(batch.features(k))).collect(),
        targets: rows(batch.targets()),
    }
}

fn loaded(source: &Arc<Source>, lists: Vec<Vec<usize>>, chunk_samples: usize) -> Vec<(Vec<usize>, SampleBlock)> {
    let chunks = scope("chunks");
    let mut loader = Loader::new(source, lists.into_iter(), LoaderOptions { chunk_samples, scope: &chunks }).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = loader.next_batch().unwrap() {
        all.push((batch.samples().to_vec(), copied(&batch, source.shape())));
    }
    let stalls = loader.stats();
    assert_eq!(stalls.batches as usize, all.len());
    assert_eq!(stalls.samples as usize, all.iter().map(|(list, _)| list.len()).sum::<usize>());
    drop(loader);
    assert_eq!(chunks.usage().allocated_bytes, 0);
    assert_eq!(chunks.usage().buffers, 0);
    all
}

fn storages() -> impl Strategy<Value = Storage> {
    let rows = prop::sample::select(vec![1_usize, 5, 64]).prop_map(std::num::NonZeroUsize::new);
    let compression =
        prop_oneof![Just(Compression::None), Just(Compression::Gzip { level: 1 }), Just(Compression::Lzf)];
    let chunked = (rows, compression).prop_map(|(rows, compression)| Storage::Chunked { rows, compression });
    prop_oneof![Just(Storage::Contiguous), chunked]
}

proptest! {
    #[test]
    fn nothing_depends_on_the_size_of_chunks(
        place in prop::sample::select(vec![Place::Series, Place::WindowsInMemory, Place::WindowsOnDisk]),
        (bars, storage) in (21_usize..90, storages()),
        (run_length, seed) in (prop::option::weighted(0.5, 1_usize..20), any::<u64>()),
        (batch_size, gradient_accumulation_steps, drops) in (1_usize..20, 1_usize..3, any::<bool>()),
        (rank, world) in prop::sample::select(vec![(0, 1), (1, 2), (2, 4)]),
        chunk_samples in 0_usize..120,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let source = open(&write(folder.path(), place, bars, storage), place);
        let samples = source.shape().samples;
        let order = run_length.map_or(Order::sequential(samples), |runs| Order::new(samples, runs, seed).unwrap());
        let last_batch = if drops { LastBatch::Drop } else { LastBatch::Keep };
        let rank = Rank::new(rank, world).unwrap();
        let Ok(batches) = Batches::new(order, Batching { batch_size, gradient_accumulation_steps, last_batch, rank })
        else { return Ok(()) };
        let lists: Vec<Vec<usize>> = batches.lists(0..batches.steps_per_epoch() + 1).collect();
        let batches = loaded(&source, lists.clone(), chunk_samples);
        prop_assert_eq!(batches.len(), lists.len());
        for ((samples, block), list) in batches.iter().zip(&lists) {
            prop_assert_eq!(samples, list);
            prop_assert_eq!(block, &gathered(&source, list));
        }
    }
}

#[test]
fn a_resumed_epoch_is_the_rest_of_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), Place::WindowsOnDisk, 80, Storage::default());
    for place in [Place::WindowsOnDisk, Place::WindowsInMemory] {
        let source = open(&path, place);
        let order = Order::new(source.shape().samples, 3, 5).unwrap();
        let batches = Batches::new(order, Batching { batch_size: 7, ..Batching::default() }).unwrap();
        let steps = batches.steps_per_epoch();
        let whole = loaded(&source, batches.lists(0..steps).collect(), 20);
        for step in 0..=steps {
            let rest = loaded(&source, batches.lists(step..steps).collect(), 20);
            assert_eq!(rest, whole[step as usize..]);
        }
    }
}

#[test]
fn memory_is_two_chunks_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&write(folder.path(), Place::WindowsOnDisk, 90, Storage::Contiguous), Place::WindowsOnDisk);
    let samples = source.shape().samples;
    let sample_bytes = (4 * 3 + 2 * 2 + 2) * size_of::<f32>();
    let batches = Batches::new(Order::sequential(samples), Batching { batch_size: 4, ..Batching::default() }).unwrap();
    for (chunk_samples, peak_samples) in [(4, 8), (9, 18), (20, 40), (10 * samples, 2 * samples)] {
        let chunks = scope("chunks");
        let options = LoaderOptions { chunk_samples, scope: &chunks };
        let mut loader = Loader::new(&source, batches.lists(0..200), options).unwrap();
        assert_eq!(chunks.usage().allocated_bytes, peak_samples * sample_bytes);
        while loader.next_batch().unwrap().is_some() {}
        assert_eq!(chunks.usage().allocated_bytes_peak, peak_samples * sample_bytes);
        assert_eq!(chunks.usage().allocations_total, 2 * 3, "two chunks of two timeframes and the targets");
    }
    // One chunk that is not full.
    let chunks = scope("chunks");
    let options = LoaderOptions { chunk_samples: samples, scope: &chunks };
    let loader = Loader::new(&source, std::iter::once(vec![3, 1]), options).unwrap();
    assert_eq!(chunks.usage().allocated_bytes_peak, 2 * sample_bytes);
    drop(loader);

    let resident = Arc::new(Source::open(source.path(), &scope("data")).unwrap());
    let chunks = scope("chunks");
    let mut loader =
        Loader::new(&resident, batches.lists(0..5), LoaderOptions { chunk_samples: 9, scope: &chunks }).unwrap();
    while let Some(batch) = loader.next_batch().unwrap() {
        assert!(batch.features(1).as_slice().is_some(), "neighbours are one slice");
    }
    assert_eq!(chunks.usage().allocations_total, 0, "views take no memory");
}

#[test]
fn a_budget_that_is_too_small_is_told_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&write(folder.path(), Place::WindowsOnDisk, 90, Storage::Contiguous), Place::WindowsOnDisk);
    let device = Device::cpu();
    device.set_budget_bytes(Some(20 * 18 * size_of::<f32>()));
    let chunks = device.scope("chunks");
    let lists = || (0..8).map(|n| (n * 5..n * 5 + 5).collect());
    let error = Loader::new(&source, lists(), LoaderOptions { chunk_samples: 20, scope: &chunks }).err().unwrap();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    assert!(Loader::new(&source, lists(), LoaderOptions { chunk_samples: 10, scope: &chunks }).is_ok());
}

/// One byte of one chunk in the middle is changed on the disk.
#[test]
fn a_damaged_chunk_is_told_by_name_after_what_comes_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let storage =
        Storage::Chunked { rows: std::num::NonZeroUsize::new(8), compression: Compression::Gzip { level: 4 } };
    let path = write(folder.path(), Place::WindowsOnDisk, 90, storage);
    damage(&path, "/features/M1", 5);
    let source = open(&path, Place::WindowsOnDisk);
    let lists = (0..10).map(|n| (n * 8..n * 8 + 8).collect());
    let chunks = scope("chunks");
    let mut loader = Loader::new(&source, lists, LoaderOptions { chunk_samples: 16, scope: &chunks }).unwrap();
    // Chunks of 16 samples are pairs of the file's, of which the sixth is damaged.
    for _ in 0..4 {
        assert_eq!(loader.next_batch().unwrap().unwrap().len(), 8);
    }
    let message = loader.next_batch().unwrap_err().to_string();
    assert!(message.contains("samples.h5") && message.contains("/features/M1"), "{message}");
    assert!(loader.next_batch().unwrap().is_none());
    assert_eq!(loader.stats().batches, 4);
}

/// Overwrites the first bytes of the `n`-th chunk of a dataset.
fn damage(path: &Path, dataset: &str, n: usize) {
    let file = hdf5::File::open(path).unwrap();
    let chunk = file.dataset(dataset).unwrap().chunk_info(n).unwrap();
    drop(file);
    let mut bytes = std::fs::read(path).unwrap();
    bytes[chunk.addr as usize..][..8].fill(0xA5);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_sample_that_is_not_there_is_refused_wherever_samples_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), Place::WindowsOnDisk, 40, Storage::Contiguous);
    for place in [Place::WindowsOnDisk, Place::WindowsInMemory] {
        let source = open(&path, place);
        for beyond in [source.shape().samples, usize::MAX] {
            let lists = [vec![0, 1], vec![beyond], vec![2]];
            let chunks = scope("chunks");
            let options = LoaderOptions { chunk_samples: 2, scope: &chunks };
            let mut loader = Loader::new(&source, lists.into_iter(), options).unwrap();
            assert_eq!(loader.next_batch().unwrap().unwrap().samples(), [0, 1]);
            assert!(matches!(loader.next_batch().unwrap_err(), Error::BadRequest { .. }));
            assert!(loader.next_batch().unwrap().is_none(), "an error is the end");
        }
    }
}

#[test]
fn shapes_are_those_of_the_file() {
    let timeframe = TimeframeShape { name: Some("M1".to_owned()), steps: 4, features: 3 };
    let folder = tempfile::tempdir().unwrap();
    let source = open(&write(folder.path(), Place::Series, 40, Storage::Contiguous), Place::Series);
    assert_eq!(source.shape().timeframes[0], timeframe);
    let chunks = scope("chunks");
    let lists = std::iter::once(vec![4, 2, 2]);
    let mut loader = Loader::new(&source, lists, LoaderOptions { chunk_samples: 2, scope: &chunks }).unwrap();
    let batch = loader.next_batch().unwrap().unwrap();
    assert_eq!((batch.len(), batch.features(0).row_len(), batch.targets().row_len()), (3, 12, 2));
    assert_eq!(batch.features(0).row(1).as_ptr(), batch.features(0).row(2).as_ptr(), "one window, no copy");
}
