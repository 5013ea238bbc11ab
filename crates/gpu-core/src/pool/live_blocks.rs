//! Live blocks, and requests on their way to become one.

use std::sync::Arc;

use super::BlockId;
use super::stream_tag::Tag;
use super::tiling::TileId;

/// A request, rounded to a block size and with its stream resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    /// Bytes of the block, rounded up to its size class if it has one.
    pub(super) bytes: usize,
    /// The stream that will use it.
    pub(super) tag: Tag,
    /// The index that the block will have among the live blocks.
    pub(super) block: u32,
    /// The size class, for a block that is small enough for a slab.
    pub(super) class: Option<usize>,
}

impl PendingRequest {
    /// Contiguous free bytes needed in the main segment: a whole granule if a slab has to be made.
    pub(super) fn contiguous_bytes(&self, granule_bytes: usize) -> usize {
        if self.class.is_some() { granule_bytes } else { self.bytes }
    }
}

/// Location of a live block.
#[derive(Clone, Debug)]
pub(super) enum BlockLocation {
    /// A tile of the main segment.
    Whole(TileId),
    /// A slot of a slab.
    Slot {
        /// Index of the slab.
        slab: u32,
        /// Index of the slot in the slab.
        slot: u32,
    },
    /// Several pieces of the main segment, contiguous in a view.
    Stitched(Box<Stitched>),
}

/// A block that is used through a view.
#[derive(Clone, Debug)]
pub(super) struct Stitched {
    /// Index of the view.
    pub(super) view: u32,
    /// Start of the block in the view, in bytes.
    pub(super) offset: usize,
    /// Its tiles of the main segment, in the order of the block.
    pub(super) pieces: Vec<TileId>,
}

/// A live block.
#[derive(Debug)]
pub(super) struct LiveBlock {
    pub(super) place: BlockLocation,
    /// First address.
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) requested_bytes: usize,
    pub(super) tag: Tag,
    pub(super) owner: Arc<str>,
}

#[derive(Debug)]
struct Entry {
    /// Number of earlier blocks with this index.
    generation: u32,
    live: Option<LiveBlock>,
}

/// The live blocks by index. An identifier holds an index and a generation, so that no identifier
/// is used twice.
#[derive(Debug, Default)]
pub(super) struct LiveBlocks {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
}

impl LiveBlocks {
    /// The index that the next block will have.
    pub(super) fn next(&self) -> u32 {
        self.vacant.last().copied().unwrap_or(self.entries.len() as u32)
    }

    pub(super) fn insert(&mut self, live: LiveBlock) -> BlockId {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, live: None });
            u32::try_from(self.entries.len() - 1).expect("fewer than four thousand million blocks")
        });
        let entry = &mut self.entries[index as usize];
        entry.live = Some(live);
        BlockId(u64::from(entry.generation) << 32 | u64::from(index))
    }

    pub(super) fn remove(&mut self, block: BlockId) -> Option<LiveBlock> {
        let entry = self.entries.get_mut(block.index()).filter(|entry| entry.generation == block.generation())?;
        let live = entry.live.take()?;
        // An index whose generations are used up is never given again.
        if let Some(generation) = entry.generation.checked_add(1) {
            entry.generation = generation;
            self.vacant.push(block.index() as u32);
        }
        Some(live)
    }

    pub(super) fn get(&self, block: BlockId) -> Option<&LiveBlock> {
        let entry = self.entries.get(block.index()).filter(|entry| entry.generation == block.generation())?;
        entry.live.as_ref()
    }

    /// The live block of an index.
    pub(super) fn at_index(&self, index: u32) -> &LiveBlock {
        self.entries[index as usize].live.as_ref().expect("tiles and slabs name live blocks")
    }

    /// The identifier of the live block of an index.
    pub(super) fn id(&self, index: u32) -> BlockId {
        BlockId(u64::from(self.entries[index as usize].generation) << 32 | u64::from(index))
    }

    /// All live blocks by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &LiveBlock)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.live.as_ref()?)))
    }
}

impl BlockId {
    fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> LiveBlock {
        LiveBlock {
            place: BlockLocation::Slot { slab: 0, slot: 0 },
            address: 0,
            bytes: 512,
            requested_bytes: 1,
            tag: Tag::IDLE,
            owner: "test".into(),
        }
    }

    #[test]
    fn a_name_dies_with_its_block() {
        let mut blocks = LiveBlocks::default();
        let first = blocks.insert(live());
        assert_eq!(blocks.next(), 1);
        assert!(blocks.remove(first).is_some());
        assert_eq!(blocks.next(), 0);
        let second = blocks.insert(live());
        assert_ne!(first, second);
        assert!(blocks.get(first).is_none() && blocks.remove(first).is_none());
        assert!(blocks.get(second).is_some());
        assert_eq!(blocks.id(0), second);
    }

    #[test]
    fn an_index_whose_names_are_spent_is_not_used_again() {
        let mut blocks = LiveBlocks::default();
        let first = blocks.insert(live());
        blocks.entries[0].generation = u32::MAX;
        let last = BlockId(first.0 | u64::from(u32::MAX) << 32);
        assert!(blocks.remove(last).is_some());
        assert_eq!(blocks.insert(live()).index(), 1);
    }
}
