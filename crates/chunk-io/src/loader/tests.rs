//! Faults, consumers that leave early, and time, with a stand-in for the source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;

use super::chunk::BatchQueue;
use super::prefetching::PrefetchedBatches;
use super::reader::SampleReader;
use crate::cost::ReadCost;
use crate::error::{Error, Result};
use crate::shape::{SampleSlices, Shape, TimeframeShape};

/// Samples whose numbers are their own index.
struct StandIn {
    shape: Shape,
    reads: AtomicUsize,
    fault: Fault,
}

/// Fault at a read, counted from 0.
#[derive(Clone, Copy)]
enum Fault {
    None,
    Error {
        at: usize,
    },
    Panic {
        at: usize,
    },
    /// It goes on until it is stopped.
    Slow {
        at: usize,
    },
}

impl StandIn {
    fn new(fault: Fault) -> Arc<Self> {
        let timeframes = vec![TimeframeShape { name: None, steps: 2, features: 1 }];
        Arc::new(StandIn {
            shape: Shape { samples: 1_000, timeframes, horizons: 1 },
            reads: AtomicUsize::new(0),
            fault,
        })
    }
}

impl SampleReader for StandIn {
    fn path(&self) -> &Path {
        Path::new("made-up.h5")
    }

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn read_list(&self, samples: &[usize], mut out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        let read = self.reads.fetch_add(1, Relaxed);
        match self.fault {
            Fault::Error { at } if at == read => {
                let path = self.path().to_owned();
                return Err(Error::Truncated { path, bytes: 5, detail: format!("read {read}") });
            }
            Fault::Panic { at } if at == read => panic!("read {read} went wrong"),
            Fault::Slow { at } if at == read => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(60) {
                    if stop.load(Relaxed) {
                        return Err(Error::Stopped);
                    }
                    std::thread::yield_now();
                }
                panic!("nobody stopped read {read}");
            }
            _ => {}
        }
        for (i, &sample) in samples.iter().enumerate() {
            out.features[0][2 * i..][..2].fill(sample as f32);
            out.targets[i] = sample as f32;
        }
        let each = Duration::from_micros(samples.len() as u64);
        Ok(ReadCost { bytes_read: samples.len() as u64, disk: each, decode: 2 * each, copy: 3 * each })
    }
}

/// Batches of three, from sample 0 on; two fit a chunk.
fn ahead(reader: &Arc<StandIn>, batches: usize) -> PrefetchedBatches<impl Iterator<Item = Vec<usize>>> {
    let lists = (0..batches).map(|n| (n * 3..n * 3 + 3).map(|sample| sample % 1_000).collect());
    let scope = Device::cpu().scope("chunks");
    PrefetchedBatches::start(Arc::clone(reader) as Arc<dyn SampleReader>, BatchQueue::new(lists, 6), &scope).unwrap()
}

/// The first sample of each batch up to the end or to an error.
fn drain(ahead: &mut PrefetchedBatches<impl Iterator<Item = Vec<usize>>>) -> (Vec<usize>, Option<Error>) {
    let mut seen = Vec::new();
    loop {
        match ahead.next_batch(&|| true) {
            Ok(Some(batch)) => {
                let expected: Vec<f32> = batch.samples().iter().map(|&sample| sample as f32).collect();
                assert_eq!(batch.targets().as_slice(), Some(&expected[..]));
                assert_eq!(batch.features(0).row(2), [expected[2]; 2]);
                assert!(batch.series(0).is_none());
                seen.push(batch.samples()[0]);
            }
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

#[test]
fn an_error_is_told_once_after_the_batches_before_it() {
    for at in [0, 1, 2, 3] {
        let reader = StandIn::new(Fault::Error { at });
        let mut ahead = ahead(&reader, 100);
        let (seen, error) = drain(&mut ahead);
        assert_eq!(seen.len(), 2 * at);
        assert!(error.unwrap().to_string().contains(&format!("read {at}")));
        assert!(ahead.next_batch(&|| true).unwrap().is_none());
        assert!(ahead.next_batch(&|| true).unwrap().is_none());
        assert_eq!(reader.reads.load(Relaxed), at + 1, "nothing is read after an error");
    }
}

#[test]
fn a_panic_of_the_thread_is_the_consumers() {
    for at in [0, 1, 4] {
        let reader = StandIn::new(Fault::Panic { at });
        let mut ahead = ahead(&reader, 100);
        let panic = catch_unwind(AssertUnwindSafe(|| drain(&mut ahead))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("read {at} went wrong"));
    }
}

#[test]
fn a_loader_that_is_dropped_ends_its_thread() {
    let reader = StandIn::new(Fault::None);
    for batches in 0..9 {
        let mut ahead = ahead(&reader, usize::MAX / 3);
        (0..batches).for_each(|_| assert!(ahead.next_batch(&|| true).unwrap().is_some()));
        let reads = reader.reads.swap(0, Relaxed);
        drop(ahead);
        assert_eq!(Arc::strong_count(&reader), 1, "the thread is gone");
        assert!(reads + reader.reads.swap(0, Relaxed) <= batches / 2 + 2, "no more is read than two chunks ahead");
    }
}

#[test]
fn a_read_under_way_ends_with_its_loader() {
    let reader = StandIn::new(Fault::Slow { at: 1 });
    let mut ahead = ahead(&reader, 100);
    assert!(ahead.next_batch(&|| true).unwrap().is_some());
    let start = Instant::now();
    drop(ahead);
    assert_eq!(Arc::strong_count(&reader), 1, "the thread is gone");
    assert!(start.elapsed() < Duration::from_secs(30), "the read ended where it was");
}

#[test]
fn a_consumer_that_wants_no_batch_any_longer_does_not_wait_for_it() {
    for at in [0, 1] {
        let reader = StandIn::new(Fault::Slow { at });
        let mut ahead = ahead(&reader, 100);
        (0..2 * at).for_each(|_| assert!(ahead.next_batch(&|| true).unwrap().is_some()));
        let asked = AtomicUsize::new(0);
        assert!(matches!(ahead.next_batch(&|| asked.fetch_add(1, Relaxed) < 2), Err(Error::Stopped)));
        assert_eq!(asked.into_inner(), 3);
        assert!(ahead.next_batch(&|| true).unwrap().is_none());
        assert_eq!(Arc::strong_count(&reader), 2, "the test and the loader have it, and no thread");
    }
}

#[test]
fn what_is_counted_adds_up() {
    let reader = StandIn::new(Fault::None);
    let mut ahead = ahead(&reader, 11);
    assert_eq!(drain(&mut ahead).0, (0..11).map(|n| n * 3).collect::<Vec<_>>());
    let stats = ahead.stats();
    assert_eq!((stats.batches, stats.samples, stats.read.bytes_read), (11, 33, 33));
    let each = Duration::from_micros(33);
    assert_eq!([stats.read.disk, stats.read.decode, stats.read.copy], [each, 2 * each, 3 * each]);
    assert!(stats.waited > Duration::ZERO);
    assert_eq!(stats.disk + stats.decode + stats.copy, stats.waited);
    // The waits are shared out as the work was: one, two and three parts of six.
    let sixth = stats.waited / 6;
    for (part, parts) in [(stats.disk, 1), (stats.decode, 2), (stats.copy, 3)] {
        assert!(part.abs_diff(parts * sixth) < Duration::from_micros(1), "{stats:?}");
    }
}
