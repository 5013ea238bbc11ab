use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::chunk::SampleChunk;
use crate::cost::ReadCost;
use crate::error::{Error, Result};
use crate::shape::{SampleSlices, Shape};
use crate::source::Source;

/// Fills chunks: a source, or a test's stand-in for one.
pub(super) trait SampleReader: Send + Sync {
    fn path(&self) -> &Path;

    fn shape(&self) -> &Shape;

    /// Copies `samples` to `out`.
    fn read_list(&self, samples: &[usize], out: SampleSlices<'_>) -> Result<ReadCost>;
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
    fn read_list(&self, samples: &[usize], out: SampleSlices<'_>) -> Result<ReadCost> {
        match samples {
            [] => Ok(ReadCost::default()),
            [first, ..] if is_consecutive(samples) => self.read(*first..first.saturating_add(samples.len()), out),
            _ => self.gather(samples, out),
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
}

/// Chunks that there are.
pub(super) const CHUNKS: usize = 2;

impl ReaderThread {
    pub(super) fn start(reader: Arc<dyn SampleReader>) -> Result<Self> {
        let path = reader.path().to_owned();
        let (empty, given) = sync_channel(CHUNKS);
        let (done, filled) = sync_channel(CHUNKS);
        let thread = thread::Builder::new().name("loader".to_owned()).spawn(move || fill_all(&*reader, &given, &done));
        let thread =
            thread.map_err(|source| Error::Io { path, action: "start a thread to read ahead with", source })?;
        Ok(ReaderThread { empty: Some(empty), filled: Some(filled), thread: Some(thread) })
    }

    /// Has `chunk` filled, after those given before it.
    pub(super) fn give(&self, chunk: SampleChunk) {
        let empty = self.empty.as_ref().expect("there until the thread is dropped");
        // A thread that has ended left an error or a panic behind, which `take` reports.
        let _ = empty.send(chunk);
    }

    /// Waits for the next chunk that is filled; one must have been given.
    pub(super) fn take(&mut self) -> Result<SampleChunk> {
        let filled = self.filled.as_ref().expect("there until the thread is dropped").recv();
        filled.unwrap_or_else(|_| {
            let thread = self.thread.take().expect("a thread that ends in a panic is asked once");
            resume_unwind(thread.join().expect_err("the thread ends by itself after an error only, which was taken"))
        })
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        // With nobody to give to and nobody to take from, the thread ends after the chunk that it
        // is at.
        self.empty = None;
        self.filled = None;
        if let Some(thread) = self.thread.take() {
            // A panic that nobody waited for is ignored when the loader is dropped.
            let _ = thread.join();
        }
    }
}

/// Fills chunks until there is an error or nobody to take them.
fn fill_all(reader: &dyn SampleReader, given: &Receiver<SampleChunk>, done: &SyncSender<Result<SampleChunk>>) {
    for mut chunk in given {
        let (samples, out) = chunk.parts(reader.shape());
        let read = reader.read_list(samples, out);
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
