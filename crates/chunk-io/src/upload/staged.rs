//! Copies to a GPU through pinned memory.

use std::collections::VecDeque;

use megabatch_gpu_core::cuda::{Event, Gpu, Stream, Transfer};
use megabatch_gpu_core::{Buffer, Cuda, Result};

/// Numbers of a piece: 4 MiB, at which a copy is as fast as one of any length.
const PIECE: usize = 1 << 20;

/// Pieces that are filled or under way.
const PIECES: usize = 2;

/// A stream for copies, and the pieces that are under way on it.
#[derive(Debug)]
pub(super) struct Staged {
    gpu: Gpu,
    stream: Stream,
    /// The oldest first.
    under_way: VecDeque<Transfer<f32>>,
}

impl Staged {
    pub(super) fn new(cuda: &Cuda) -> Result<Self> {
        let gpu = cuda.gpu().clone();
        let stream = gpu.stream()?;
        Ok(Staged { gpu, stream, under_way: VecDeque::with_capacity(PIECES) })
    }

    /// Copies `from` to the beginning of `to`, which is as long or longer. When this returns,
    /// `from` has been read.
    pub(super) fn copy(&mut self, from: &[f32], to: &mut Buffer<f32>) -> Result<()> {
        assert!(from.len() <= to.len(), "{} numbers have room among {}", from.len(), to.len());
        for (piece, address) in from.chunks(PIECE).zip((to.address()..).step_by(PIECE * size_of::<f32>())) {
            // The block of the piece that was waited for goes back, and is handed out again.
            while self.under_way.len() >= PIECES {
                self.under_way.pop_front().map(Transfer::wait).transpose()?;
            }
            let mut pinned = self.gpu.pinned::<f32>(piece.len())?;
            pinned.as_mut_slice().copy_from_slice(piece);
            // SAFETY: the piece lies within `to`, which is live. Its memory stays mapped until the
            // copy is done, also if the buffer is dropped before: unmapping waits, and its next
            // owner begins on the default stream, after this. Who had it before and read it on
            // another stream than the default one has made this stream wait.
            self.under_way.push_back(unsafe { self.stream.upload(pinned, address) }?);
        }
        Ok(())
    }

    /// The moment at which all that was copied so far has arrived.
    pub(super) fn arrival(&self) -> Result<Arrival> {
        let event = self.gpu.event()?;
        event.record(&self.stream)?;
        Ok(Arrival { event })
    }

    /// Makes later copies wait for what was submitted to `stream` so far.
    pub(super) fn wait_for(&self, stream: &Stream) -> Result<()> {
        let event = self.gpu.event()?;
        event.record(stream)?;
        self.stream.wait_for(&event)
    }
}

/// A moment in the order of the stream for copies.
#[derive(Debug)]
pub(super) struct Arrival {
    event: Event,
}

impl Arrival {
    pub(super) fn wait(&self) -> Result<()> {
        self.event.wait()
    }

    pub(super) fn order_before(&self, stream: &Stream) -> Result<()> {
        stream.wait_for(&self.event)
    }
}
