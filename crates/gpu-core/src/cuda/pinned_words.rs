//! Words of page-locked memory that kernels write while the host reads them.

#![allow(unsafe_code, reason = "the driver is called")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::Gpu;
use super::pinned::Pinned;
use crate::error::Result;

#[derive(Debug)]
pub(crate) struct PinnedWords {
    words: Pinned<u64>,
}

impl PinnedWords {
    pub(crate) fn new(gpu: &Gpu, len: usize) -> Result<Self> {
        let mut words = gpu.pinned(len)?;
        words.as_mut_slice().fill(0);
        Ok(PinnedWords { words })
    }

    pub(crate) fn address(&self) -> u64 {
        self.words.address() as u64
    }

    pub(crate) fn take(&self, index: usize) -> u64 {
        assert!(index < self.words.len(), "there are {} words", self.words.len());
        // SAFETY: the word is one of the block's, which lives as long as `self`, and is aligned;
        // host and GPU access it as a whole.
        unsafe { AtomicU64::from_ptr(self.words.address().cast::<u64>().add(index)) }.swap(0, Ordering::Relaxed)
    }
}
