use std::sync::Arc;

use megabatch_gpu_core::pool::{AllocationRequest, BlockId, Pool, PoolSettings};
use megabatch_gpu_core::source::{Source, StreamId};

use crate::allocator::{Allocator, Levels};

/// The pool of gpu-core as a policy.
pub(crate) struct Pooled {
    pool: Pool,
    owner: Arc<str>,
}

impl Pooled {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Pooled { pool: Pool::new(source, PoolSettings { capacity_bytes: None }), owner: Arc::from("replay") }
    }
}

impl Allocator for Pooled {
    type Block = BlockId;

    fn allocate(&mut self, bytes: usize, stream: StreamId) -> Option<BlockId> {
        let request = AllocationRequest { bytes, stream, owner: Arc::clone(&self.owner) };
        self.pool.allocate(&request).ok()
    }

    fn free(&mut self, block: BlockId) {
        self.pool.free(block);
    }

    fn step(&mut self) {
        self.pool.step();
    }

    fn levels(&self) -> Levels {
        let (stats, counts) = (self.pool.stats(), self.pool.counts());
        Levels {
            reserved_bytes: stats.reserved_bytes.now,
            allocated_bytes: stats.allocated_bytes.now,
            largest_free_bytes: counts.largest_free_block_bytes,
            inactive_split_bytes: stats.inactive_split_bytes.now,
            driver_calls: stats.driver_calls_total,
            stitches: stats.stitches_total,
        }
    }
}
