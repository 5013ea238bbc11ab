use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::chunk::SampleChunk;
use crate::cost::ReadCost;
use crate::error::{Error, Result};
use crate::shape::{SampleSlices, Shape};
use crate::source::Source;

/// Interval at which a consumer that waits for a chunk is asked whether it still wants it.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Fills chunks: a source, or a test's stand-in for one.
pub(super) trait SampleReader: Send + Sync {
    fn path(&self) -> &Path;

    fn shape(&self) -> &Shape;

    /// Copies `samples` to `out`, until `stop` is true.
    fn read_list(&self, samples: &[usize], out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost>;
}

impl SampleReader for Source {
    fn path(&self) -> &Path {
        Source::path(self)
    }

    fn shape(&self) -> &Shape {
        Source::shape(self)
    }

    /// In one request, so that each chunk of the file is decoded once for all samples that are in
    /// it.
    fn read_list(&self, samples: &[usize], out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        match samples {
            [] => Ok(ReadCost::default()),
            [first, ..] if is_consecutive(samples) => {
                self.read_until(*first..first.saturating_add(samples.len()), out, stop)
            }
            _ => self.gather_until(samples, out, stop),
        }
    }
}

/// True if the samples are neighbours in ascending order.
pub(super) fn is_consecutive(samples: &[usize]) -> bool {
    samples.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

/// A thread that fills chunks in the order in which it is given them.
pub(super) struct ReaderThread {
    /// Empty chunks on their way to the thread; gone when it is to end.
    empty: Option<SyncSender<SampleChunk>>,
    filled: Option<Receiver<Result<SampleChunk>>>,
    thread: Option<JoinHandle<()>>,
    /// Ends the read that the thread is in.
    stop: Arc<AtomicBool>,
}

/// Chunks that there are.
pub(super) const CHUNKS: usize = 2;

impl ReaderThread {
    pub(super) fn start(reader: Arc<dyn SampleReader>) -> Result<Self> {
        let path = reader.path().to_owned();
        let (empty, given) = sync_channel(CHUNKS);
        let (done, filled) = sync_channel(CHUNKS);
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let fill = move || fill_all(&*reader, &given, &done, &ended);
        let thread = thread::Builder::new().name("loader".to_owned()).spawn(fill);
        let thread =
            thread.map_err(|source| Error::Io { path, action: "start a thread to read ahead with", source })?;
        Ok(ReaderThread { empty: Some(empty), filled: Some(filled), thread: Some(thread), stop })
    }

    /// Has `chunk` filled, after those given before it.
    pub(super) fn give(&self, chunk: SampleChunk) {
        let empty = self.empty.as_ref().expect("there until the thread is dropped");
        // A thread that has ended left an error or a panic behind, which `take` reports.
        let _ = empty.send(chunk);
    }

    /// Waits for the next chunk that is filled; one must have been given. The error is
    /// [`Error::Stopped`] once `is_wanted` returns false.
    pub(super) fn take(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<SampleChunk> {
        let filled = self.filled.as_ref().expect("there until the thread is dropped");
        loop {
            match filled.recv_timeout(ASK_INTERVAL) {
                Ok(chunk) => return chunk,
                Err(RecvTimeoutError::Timeout) if is_wanted() => {}
                Err(RecvTimeoutError::Timeout) => return Err(Error::Stopped),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let thread = self.thread.take().expect("a thread that ends in a panic is asked once");
        resume_unwind(thread.join().expect_err("the thread ends by itself after an error only, which was taken"))
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        // With nobody to give to and nobody to take from, the thread ends in the chunk that it is
        // at.
        self.stop.store(true, Relaxed);
        self.empty = None;
        self.filled = None;
        if let Some(thread) = self.thread.take() {
            // A panic that nobody waited for is ignored when the loader is dropped.
            let _ = thread.join();
        }
    }
}

/// Fills chunks until there is an error or nobody to take them.
fn fill_all(
    reader: &dyn SampleReader,
    given: &Receiver<SampleChunk>,
    done: &SyncSender<Result<SampleChunk>>,
    stop: &AtomicBool,
) {
    for mut chunk in given {
        let (samples, out) = chunk.parts(reader.shape());
        let read = reader.read_list(samples, out, stop);
        let failed = read.is_err();
        let filled = read.map(|cost| {
            chunk.cost = cost;
            chunk
        });
        if done.send(filled).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_told_from_others() {
        for (samples, neighbours) in
            [(&[][..], true), (&[5], true), (&[5, 6, 7], true), (&[5, 7], false), (&[6, 5], false), (&[5, 5], false)]
        {
            assert_eq!(is_consecutive(samples), neighbours, "{samples:?}");
        }
    }
}
