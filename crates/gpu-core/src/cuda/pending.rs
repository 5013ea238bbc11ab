//! Copies to a GPU and from it that nobody has waited for.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::VecDeque;

use super::Gpu;
use super::transfer::Transfer;
use crate::error::Result;

/// Copies that are under way at most.
const COPIES: usize = 2;

/// The last copies, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingUploads {
    copies: VecDeque<Transfer<u8>>,
}

impl PendingUploads {
    /// Copies `src` to a live block on the default stream. When this returns, `src` has been
    /// read.
    pub(crate) fn send(&mut self, gpu: &Gpu, src: &[u8], dst: u64) -> Result<()> {
        // The block of the copy that was waited for goes back, and is handed out again.
        while self.copies.len() >= COPIES {
            self.copies.pop_front().map(Transfer::wait).transpose()?;
        }
        let mut pinned = gpu.pinned::<u8>(src.len())?;
        pinned.as_mut_slice().copy_from_slice(src);
        // SAFETY: the block is live. It stays mapped until the copy is done, also if it is freed
        // before: unmapping waits, and its next owner begins on the default stream, after this.
        self.copies.push_back(unsafe { gpu.default_stream().upload(pinned, dst) }?);
        Ok(())
    }
}

/// A copy to the host.
#[derive(Debug)]
pub(crate) struct PendingDownload {
    copy: Transfer<u8>,
}

impl PendingDownload {
    /// Copies `bytes` of a live block, after the work submitted to the default stream so far.
    pub(crate) fn new(gpu: &Gpu, src: u64, bytes: usize) -> Result<Self> {
        let dst = gpu.pinned::<u8>(bytes)?;
        // SAFETY: the block is live. It stays mapped until the copy is done, also if it is freed
        // before, as for copies to it.
        Ok(PendingDownload { copy: unsafe { gpu.default_stream().download(src, dst) }? })
    }

    pub(crate) fn wait(self, dst: &mut [u8]) -> Result<()> {
        dst.copy_from_slice(self.copy.wait()?.as_slice());
        Ok(())
    }
}
