use megabatch_gpu_core::source::StreamId;

/// Allocator on which a trace is replayed.
pub(crate) trait Allocator {
    /// A live block.
    type Block;

    /// A block of at least `bytes`, one or more, for work on `stream`; `None` when memory has run
    /// out.
    fn allocate(&mut self, bytes: usize, stream: StreamId) -> Option<Self::Block>;

    /// Takes a block back.
    fn free(&mut self, block: Self::Block);

    /// A step of the recorded program ends here.
    fn step(&mut self);

    /// Current levels of the allocator.
    fn levels(&self) -> Levels;
}

/// Memory of an allocator at a moment, and its work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Bytes of physical memory taken from the device.
    pub(crate) reserved_bytes: usize,
    /// Bytes of live blocks, as the allocator rounds them.
    pub(crate) allocated_bytes: usize,
    /// Longest run of free bytes that one block could have as it is.
    pub(crate) largest_free_bytes: usize,
    /// Free bytes that cannot go back to the device, because live bytes share their segment, page
    /// or granule.
    pub(crate) inactive_split_bytes: usize,
    pub(crate) driver_calls: u64,
    pub(crate) stitches: u64,
}

impl Levels {
    /// 1 − largest free block / free bytes; 0 when nothing is free.
    pub(crate) fn fragmentation(&self) -> f64 {
        match self.reserved_bytes - self.allocated_bytes {
            0 => 0.0,
            free => 1.0 - self.largest_free_bytes as f64 / free as f64,
        }
    }
}
