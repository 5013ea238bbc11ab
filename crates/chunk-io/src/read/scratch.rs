use crate::decode::ChunkDecoder;

/// Buffers of a thread. It grows to what its largest piece needs, a block or a chunk, and is kept
/// for the next request.
pub(crate) struct ThreadBuffers {
    pub(super) staging: Vec<u8>,
    pub(super) decoder: ChunkDecoder,
}

impl Default for ThreadBuffers {
    fn default() -> Self {
        ThreadBuffers { staging: Vec::new(), decoder: ChunkDecoder::new() }
    }
}

impl std::fmt::Debug for ThreadBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadBuffers").finish_non_exhaustive()
    }
}
