use std::collections::BTreeMap;

use serde::Serialize;

use super::{BlockState, PoolTotals, SegmentKind, Snapshot};

/// Key figures of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The counters.
    #[serde(flatten)]
    pub totals: PoolTotals,
    /// 1 − largest free block / free bytes.
    pub fragmentation: f64,
    /// Segments at which granules have their home.
    pub home_segments: usize,
    /// Views that hold a live block.
    pub view_segments: usize,
    /// Bytes at home that are in use through a view.
    pub lent_bytes: usize,
    /// Holders of live bytes, the most first; of equal ones in the order of their labels.
    pub owners: Vec<OwnerBytes>,
    /// Sizes of the free blocks, the largest first.
    pub free_blocks_bytes: Vec<usize>,
}

/// The live blocks of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerBytes {
    /// The label.
    pub owner: String,
    /// Bytes of its blocks.
    pub bytes: usize,
    /// Number of its blocks.
    pub blocks: usize,
}

impl Summary {
    /// The summary of `snapshot`.
    pub fn new(snapshot: &Snapshot) -> Self {
        let views = snapshot.segments.iter().filter(|segment| segment.kind == SegmentKind::View).count();
        let mut free_blocks_bytes: Vec<usize> =
            snapshot.blocks().filter(|block| block.state == BlockState::Free).map(|block| block.bytes).collect();
        free_blocks_bytes.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
        // Snapshots of earlier versions left free blocks in slabs out of this one.
        let largest_free_block_bytes = free_blocks_bytes.first().copied().unwrap_or(0);
        let totals = PoolTotals { largest_free_block_bytes, ..snapshot.totals.clone() };
        Summary {
            fragmentation: totals.fragmentation(),
            totals,
            home_segments: snapshot.segments.len() - views,
            view_segments: views,
            lent_bytes: lent_bytes(snapshot),
            owners: owners(snapshot),
            free_blocks_bytes,
        }
    }
}

fn lent_bytes(snapshot: &Snapshot) -> usize {
    let home = snapshot.segments.iter().filter(|segment| segment.kind == SegmentKind::Main);
    let lent = home.flat_map(|segment| &segment.blocks).filter(|block| block.state == BlockState::Lent);
    lent.map(|block| block.bytes).sum()
}

fn owners(snapshot: &Snapshot) -> Vec<OwnerBytes> {
    let mut by_label: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for block in snapshot.blocks().filter(|block| block.state == BlockState::Live) {
        let (bytes, blocks) = by_label.entry(block.owner.as_deref().unwrap_or_default()).or_default();
        *bytes += block.bytes;
        *blocks += 1;
    }
    let owned =
        |(owner, (bytes, blocks)): (&str, (usize, usize))| OwnerBytes { owner: owner.to_owned(), bytes, blocks };
    let mut owners: Vec<OwnerBytes> = by_label.into_iter().map(owned).collect();
    owners.sort_by_key(|owned| std::cmp::Reverse(owned.bytes));
    owners
}
