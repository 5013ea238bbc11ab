use std::collections::TryReserveError;
use std::ops::Range;

use crate::decode::ChunkDecoder;

/// Alignment of addresses, offsets and lengths for reads past the page cache; no disk in use asks
/// for more.
pub(super) const PAGE_BYTES: usize = 4096;

/// Buffers of a thread. It grows to what its largest piece needs, a block or a chunk, and is kept
/// for the next request.
pub(crate) struct ThreadBuffers {
    pub(super) staging: Aligned,
    pub(super) decoder: ChunkDecoder,
}

impl Default for ThreadBuffers {
    fn default() -> Self {
        ThreadBuffers { staging: Aligned::default(), decoder: ChunkDecoder::new() }
    }
}

impl std::fmt::Debug for ThreadBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// Bytes that start at a multiple of [`PAGE_BYTES`].
#[derive(Default)]
pub(super) struct Aligned {
    memory: Vec<u8>,
}

impl Aligned {
    /// `len` bytes of unspecified content.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn sized(&mut self, len: usize) -> Result<&mut [u8], TryReserveError> {
        if self.memory.len() < len + PAGE_BYTES {
            self.memory.clear();
            self.memory.try_reserve_exact(len + PAGE_BYTES)?;
            self.memory.resize(len + PAGE_BYTES, 0);
        }
        let start = self.start();
        Ok(&mut self.memory[start..start + len])
    }

    /// A part of what [`Aligned::sized`] handed out last.
    pub(super) fn part(&self, range: Range<usize>) -> &[u8] {
        let start = self.start();
        &self.memory[start + range.start..start + range.end]
    }

    fn start(&self) -> usize {
        self.memory.as_ptr().align_offset(PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_whatever_its_length() {
        let mut memory = Aligned::default();
        for len in [0, 1, PAGE_BYTES, 3 * PAGE_BYTES + 1, 5] {
            let bytes = memory.sized(len).unwrap();
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % PAGE_BYTES), (len, 0));
            bytes.fill(7);
            assert_eq!(memory.part(len / 2..len), &vec![7; len - len / 2][..]);
        }
        assert!(memory.sized(usize::MAX / 4).is_err());
    }
}
