#![forbid(unsafe_code)]

//! Batches read on another thread, one ahead of the computation.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use megabatch_gpu_core::Scope;

use crate::error::{Error, Result};
use crate::samples::{Batch, Samples};

/// Where batches come from and the memory that they take.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) samples: &'a dyn Samples,
    pub(crate) scope: &'a Scope,
    /// Samples in the largest batch.
    pub(crate) capacity: usize,
}

/// Gathers the batches of `schedule` in order while `consume` works on those before. Two batches exist at any time: the one
/// being consumed and the one being read. Reading ends when `consume` returns, whatever is left of the schedule.
pub(crate) fn with_batches<T>(
    source: Source<'_>,
    schedule: impl Iterator<Item = Vec<usize>> + Send,
    consume: impl FnOnce(&mut Feed) -> Result<T>,
) -> Result<T> {
    let (give_back, empty) = sync_channel(2);
    for _ in 0..2 {
        let batch = Batch::new(source.scope, source.samples.shape(), source.capacity)?;
        give_back.send(batch).expect("the receiver is alive and has room for two");
    }
    let (ready, gathered) = sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || read(source.samples, schedule, &empty, &ready));
        // Owned by this closure, so that it is gone, and the reader told to end, before the scope waits for the reader.
        let mut feed = Feed { gathered, give_back, current: None, waited: Duration::ZERO };
        consume(&mut feed)
    })
}

/// Sends gathered batches until the schedule ends, a batch cannot be read or nobody listens.
fn read(
    samples: &dyn Samples,
    schedule: impl Iterator<Item = Vec<usize>>,
    empty: &Receiver<Batch>,
    ready: &SyncSender<Result<Batch>>,
) {
    for indices in schedule {
        let Ok(mut batch) = empty.recv() else { return };
        let gathered = gather(samples, &indices, &mut batch).map(|()| batch);
        let failed = gathered.is_err();
        if ready.send(gathered).is_err() || failed {
            return;
        }
    }
}

fn gather(samples: &dyn Samples, indices: &[usize], batch: &mut Batch) -> Result<()> {
    let (first, last) = (indices.iter().min().copied(), indices.iter().max().copied());
    let (Some(first), Some(last)) = (first, last) else {
        batch.resize(0);
        return Ok(());
    };
    if last >= samples.len() {
        return Err(Error::SampleOutOfRange { sample: last, len: samples.len() });
    }
    batch.resize(indices.len());
    samples.gather(indices, batch).map_err(|source| Error::Gather { first, last, count: indices.len(), source })
}

/// The batches, in the order of the schedule.
pub(crate) struct Feed {
    gathered: Receiver<Result<Batch>>,
    give_back: SyncSender<Batch>,
    current: Option<Batch>,
    waited: Duration,
}

impl Feed {
    /// The next batch, or `None` after the last one. The batch before it is given back to the reader.
    pub(crate) fn next(&mut self) -> Result<Option<&Batch>> {
        if let Some(done) = self.current.take() {
            // Nobody listens once the schedule has ended; the batch is then dropped here.
            let _ = self.give_back.send(done);
        }
        let start = Instant::now();
        self.current = self.gathered.recv().ok().transpose()?;
        self.waited += start.elapsed();
        Ok(self.current.as_ref())
    }

    /// Time spent waiting for the reader since the last call.
    pub(crate) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }
}
