//! Memory that a pool will take from its source, known from the blocks that it will be asked for.

use std::sync::Arc;

use super::{AllocationRequest, Pool, PoolSettings};
use crate::source::{Simulated, StreamId};

/// Bytes that a pool takes from a source of such granules, which maps none twice, for blocks of
/// these sizes, asked for in this order on one stream and all live at the end. The order counts: a
/// slab lies in a granule of its own, and what is free before it fits smaller blocks only.
pub(crate) fn reserved_bytes(blocks: impl IntoIterator<Item = usize>, granule_bytes: usize) -> usize {
    // Nothing is freed, so that no free range is as large as a granule: wherever a large block
    // lies, all its granules but two are new and its alone. They need no simulation.
    let whole_bytes = |bytes: usize| (bytes / granule_bytes).saturating_sub(2) * granule_bytes;
    let blocks: Vec<usize> = blocks.into_iter().collect();
    let simulated = blocks.iter().map(|&bytes| bytes - whole_bytes(bytes)).filter(|&bytes| bytes > 0);
    // Each block leaves less than a granule free before it.
    let capacity_bytes: usize =
        simulated.clone().map(|bytes| bytes.next_multiple_of(granule_bytes) + granule_bytes).sum();
    let source = Simulated::new(capacity_bytes, granule_bytes);
    let mut pool = Pool::new(Box::new(source), PoolSettings { capacity_bytes: None });
    pool.forbid_stitching();
    let owner: Arc<str> = Arc::from("planned");
    for bytes in simulated {
        let request = AllocationRequest { bytes, stream: StreamId::default(), owner: Arc::clone(&owner) };
        pool.allocate(&request).expect("the capacity is enough for all blocks");
    }
    pool.stats().reserved_bytes.now + blocks.iter().map(|&bytes| whole_bytes(bytes)).sum::<usize>()
}
