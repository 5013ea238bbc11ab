use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_chunk_io::SampleBlock;

use super::*;
use crate::error::Kind;
use crate::synth::{Filter, Layout, SampleOptions, SampleWindows, make_samples};

/// A file of 150 samples in `folder`.
fn file(folder: &Path, layout: Layout, compression: Filter) -> PathBuf {
    let path = folder.join(format!("{layout}-{compression:?}.h5"));
    let count = |count| NonZeroUsize::new(count).unwrap();
    let options = SampleOptions {
        layout,
        samples: count(150),
        windows: SampleWindows::Named("M1:7,M5:4".parse().unwrap()),
        features: count(3),
        targets: count(2),
        compression,
        chunk_rows: Some(count(11)),
        ..SampleOptions::default()
    };
    make_samples(&path, &options).unwrap();
    path
}

/// Samples and tables of a batch.
type Batch = (Vec<usize>, Vec<Vec<f32>>);

/// The batches of an epoch from the one of number `first` on.
fn epoch(loader: &BatchLoader, epoch: u64, first: u64) -> Vec<Batch> {
    let mut batches = loader.epoch(epoch, first).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = batches.next_batch().unwrap() {
        all.push((batch.samples().to_vec(), (0..batch.tables()).map(|k| batch.values(k).to_vec()).collect()));
    }
    all
}

#[test]
fn batches_hold_the_samples_of_the_file_whatever_their_way_through_memory() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        (file(folder.path(), Layout::Series, Filter::Contiguous), WindowsAt::Disk),
        (file(folder.path(), Layout::Windows, Filter::Contiguous), WindowsAt::Disk),
        (file(folder.path(), Layout::Windows, Filter::Gzip), WindowsAt::Disk),
        (file(folder.path(), Layout::Windows, Filter::Gzip), WindowsAt::Memory),
    ];
    for (path, at) in &files {
        let dataset = Dataset::open(path, *at).unwrap();
        let source = dataset.source().unwrap();
        for (chunk_bytes, rank) in [(0, 0), (5_000, 1), (1 << 20, 0)] {
            let visit = SampleVisit::Shuffled { seed: 3, run_length: Some(4) };
            let options = BatchOptions {
                batch_size: 16,
                visit,
                chunk_bytes,
                rank,
                world_size: 1 + rank,
                ..BatchOptions::default()
            };
            let loader = BatchLoader::new(&dataset, SampleRanges::from(10..140), options).unwrap();
            let batches = epoch(&loader, 1, 0);
            assert_eq!(batches.len() as u64, loader.batches_per_epoch());
            for (samples, tables) in &batches {
                let mut expected = SampleBlock::zeros(source.shape(), samples.len());
                source.gather(samples, expected.slices()).unwrap();
                expected.features.push(expected.targets);
                assert_eq!(&expected.features, tables);
            }
            let mut visited: Vec<usize> = batches.iter().flat_map(|(samples, _)| samples.clone()).collect();
            visited.sort_unstable();
            assert!(visited.iter().all(|sample| (10..140).contains(sample)));
            visited.dedup();
            assert_eq!(visited.len(), if rank == 0 { 130 } else { 65 });
            assert_eq!(epoch(&loader, 1, 5), batches[5..], "an epoch goes on at any batch");
        }
    }
}

/// Large batches of a series in memory are gathered ahead, small ones when they are asked for.
#[test]
fn batches_that_are_gathered_ahead_hold_the_same_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let count = |count| NonZeroUsize::new(count).unwrap();
    let options = SampleOptions {
        samples: count(70),
        windows: SampleWindows::Named("M1:480".parse().unwrap()),
        features: count(16),
        targets: count(2),
        ..SampleOptions::default()
    };
    make_samples(&path, &options).unwrap();
    let dataset = Dataset::open(&path, WindowsAt::Disk).unwrap();
    let loader = |batch_size| {
        let visit = SampleVisit::Shuffled { seed: 1, run_length: Some(1) };
        let options = BatchOptions { batch_size, visit, ..BatchOptions::default() };
        BatchLoader::new(&dataset, SampleRanges::from(0..70), options).unwrap()
    };
    let (large, small) = (loader(16), loader(1));
    assert_eq!((large.samples_ahead(), small.samples_ahead()), (Some(0), None));
    for first in [0, 3, 4, 5] {
        let small_batches = epoch(&small, 2, 16 * first);
        let (samples, tables) = epoch(&large, 2, first).into_iter().fold(
            (Vec::new(), vec![Vec::new(); 2]),
            |(mut samples, mut tables), (own, batch)| {
                samples.extend(own);
                tables.iter_mut().zip(batch).for_each(|(all, own): (&mut Vec<f32>, _)| all.extend(own));
                (samples, tables)
            },
        );
        assert_eq!(samples, small_batches.iter().flat_map(|(own, _)| own.clone()).collect::<Vec<_>>());
        for (k, table) in tables.iter().enumerate() {
            assert_eq!(*table, small_batches.iter().flat_map(|(_, own)| own[k].clone()).collect::<Vec<_>>());
        }
    }
    // A loop that is broken off leaves no thread that waits.
    let mut broken_off = large.epoch(0, 0).unwrap();
    assert!(broken_off.next_batch().unwrap().is_some());
}

#[test]
fn batches_are_in_the_order_of_training() {
    use megabatch_trainer::{Config as Training, Event, Run, Samples, Trainer};
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(&file(folder.path(), Layout::Series, Filter::Gzip), WindowsAt::Disk).unwrap();

    /// Tells the samples of the batches that training asks for.
    struct Spy<'a>(&'a dyn Samples, std::sync::Mutex<Vec<Vec<usize>>>);
    impl Samples for Spy<'_> {
        fn shape(&self) -> &megabatch_nn::model::SampleShape {
            self.0.shape()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn gather(
            &self,
            samples: &[usize],
            batch: &mut megabatch_trainer::Batch,
        ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.1.lock().unwrap().push(samples.to_vec());
            self.0.gather(samples, batch)
        }
    }
    let spy = Spy(dataset.data.samples(), std::sync::Mutex::default());
    let train = SampleRanges::from(10..140);
    let model = megabatch_nn::model::ModelConfig { hidden: 2, layers: 1, ..Default::default() };
    let config = Training { model, batch_size: 16, run_length: Some(4), seed: 3, epochs: 2, ..Training::default() };
    let run = Run { samples: &spy, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config, spy.shape().clone()).unwrap();
    trainer.train(&run, &mut |_: Event<'_>| std::ops::ControlFlow::Continue(())).unwrap();

    let visit = SampleVisit::Shuffled { seed: 3, run_length: Some(4) };
    let options = BatchOptions { batch_size: 16, visit, ..BatchOptions::default() };
    let loader = BatchLoader::new(&dataset, train, options).unwrap();
    let visited = [epoch(&loader, 0, 0), epoch(&loader, 1, 0)].concat();
    let visited: Vec<Vec<usize>> = visited.into_iter().map(|(samples, _)| samples).collect();
    assert_eq!(visited, spy.1.into_inner().unwrap());
}

#[test]
fn windows_are_seen_in_place_where_their_ends_are_evenly_apart() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(&file(folder.path(), Layout::Series, Filter::Gzip), WindowsAt::Disk).unwrap();
    let loader = |windows| {
        let options = BatchOptions { batch_size: 16, windows, ..BatchOptions::default() };
        BatchLoader::new(&dataset, SampleRanges::from(0..150), options).unwrap()
    };
    let batch = loader(WindowView::StridedWherePossible).epoch(0, 1).unwrap().next_batch().unwrap().unwrap();
    let copied = loader(WindowView::Copied).epoch(0, 1).unwrap().next_batch().unwrap().unwrap();
    let series = dataset.source().unwrap().series().unwrap().resident().unwrap();
    let (strided, values) = (batch.windows(0), series.values(0));
    assert_eq!((strided.is_of_the_file, strided.strides.as_slice()), (true, &[12, 12, 4][..]));
    let first = (strided.address - values.as_ptr() as usize) / size_of::<f32>();
    for n in 0..16 {
        let window = &values[first + 3 * n..][..21];
        assert_eq!(window, &copied.values(0)[21 * n..21 * (n + 1)]);
    }
    // Five minutes have the same bar of M5 last.
    assert!(!batch.windows(1).is_of_the_file);
    assert_eq!((batch.values(1), batch.values(2)), (copied.values(1), copied.values(2)));
}

#[test]
fn parts_of_a_split_are_those_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), Layout::Series, Filter::Gzip);
    let dataset = Dataset::open(&path, WindowsAt::Disk).unwrap();
    let facts = dataset.facts().unwrap();
    assert_eq!((facts.layout.as_str(), facts.samples, facts.targets), ("series", 150, 2));
    assert_eq!(facts.timeframes[1].feature_names.as_ref().unwrap().len(), 3);
    let settings =
        SettingSources { file: None, set: vec!["data.split=[0.6, 0.2, 0.2]".to_owned(), "data.purge=auto".to_owned()] };
    let parts = dataset.split(&settings).unwrap();
    let all = parts.train.len() + parts.validation.len() + parts.test.len() + parts.purged;
    assert!(parts.purged > 0 && parts.train.last() < parts.validation.first(), "{parts:?}");
    assert_eq!(all, 150);
    let mut folds = settings.clone();
    folds.set.push("data.walk_forward=3".to_owned());
    let folds = dataset.walk_forward(&folds).unwrap();
    assert_eq!(folds.len(), 3);
    assert!(folds.windows(2).all(|pair| pair[0].train.len() < pair[1].train.len()));
    let wrong = BatchLoader::new(&dataset, SampleRanges::from(150..151), BatchOptions::default()).err().unwrap();
    assert_eq!(wrong.kind(), Kind::Usage);
    let rank = BatchOptions { rank: 2, world_size: 2, ..BatchOptions::default() };
    assert_eq!(BatchLoader::new(&dataset, SampleRanges::from(0..9), rank).err().unwrap().kind(), Kind::Usage);
}
