use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::live_blocks::BlockLocation;
use super::slab::class_bytes;
use super::tiling::TileKind;
use super::view::GONE;
use super::{BlockId, Pool};
use crate::source::StreamId;

/// A run of consecutive mapped addresses, tiled by blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// Kind of the addresses.
    pub kind: SegmentKind,
    /// The blocks in order of address; the sum of their bytes is the segment's.
    pub blocks: Vec<BlockInfo>,
}

/// Kinds of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// Addresses at which granules are mapped for as long as they exist. The bytes of all main
    /// segments are the reserved bytes.
    #[serde(rename = "home")]
    Main,
    /// A second address of granules, made by stitching: the bytes of its blocks are lent in the
    /// main segment, and count once.
    View,
}

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// Requested bytes; 0 unless live.
    pub requested_bytes: usize,
    /// State of the block.
    pub state: BlockState,
    /// The stream that uses it, or used it last; 0 as well when no stream's work is outstanding on
    /// it.
    pub stream: StreamId,
    /// Label of its scope, if live.
    pub owner: Option<Arc<str>>,
    /// The block's name, if live.
    pub id: Option<BlockId>,
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Given to somebody.
    Live,
    /// Can be given.
    Free,
    /// Used, or free, at another address: in the main segment, bytes of a block that is in a view;
    /// in a view, bytes beside its blocks.
    Lent,
}

impl Pool {
    /// All that is mapped, as maximal runs of addresses in order of address, each with its blocks.
    /// Views that hold no live block are left out.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let mut slots: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
        let mut viewed: BTreeMap<u32, BTreeMap<usize, u32>> = BTreeMap::new();
        for (index, live) in self.blocks.iter() {
            match &live.place {
                &BlockLocation::Slot { slab, slot } => {
                    slots.entry(slab).or_default().insert(slot, index);
                }
                BlockLocation::Stitched(stitched) => {
                    viewed.entry(stitched.view).or_default().insert(stitched.offset, index);
                }
                BlockLocation::Whole(_) => {}
            }
        }
        let mut segments = self.home_segments(&slots);
        segments.extend(viewed.iter().flat_map(|(&view, blocks)| self.view_segments(view, blocks)));
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    fn home_segments(&self, slots: &BTreeMap<u32, BTreeMap<u32, u32>>) -> Vec<SegmentInfo> {
        let mut segments: Vec<SegmentInfo> = Vec::new();
        for tile in self.main.tiling().iter().map(|tile| self.main.get(tile)) {
            let address = || self.main.address(tile.start);
            let blocks = match tile.kind {
                TileKind::Unmapped => continue,
                TileKind::Free(tag) => {
                    vec![BlockInfo {
                        stream: self.streams.stream(tag),
                        ..unused(address(), tile.bytes, BlockState::Free)
                    }]
                }
                TileKind::Live(index) => vec![self.live_info(index)],
                TileKind::Piece(index) => {
                    let stream = self.streams.stream(self.blocks.at_index(index).tag);
                    vec![BlockInfo { stream, ..unused(address(), tile.bytes, BlockState::Lent) }]
                }
                TileKind::Slab(slab) => self.slab_blocks(slab, slots.get(&slab)),
            };
            match segments.last_mut() {
                Some(segment) if segment.address + segment.bytes as u64 == address() => {
                    segment.bytes += tile.bytes;
                    segment.blocks.extend(blocks);
                }
                _ => segments.push(SegmentInfo {
                    address: address(),
                    bytes: tile.bytes,
                    kind: SegmentKind::Main,
                    blocks,
                }),
            }
        }
        segments
    }

    /// The blocks of a slab; free slots that follow each other are one free block.
    fn slab_blocks(&self, slab: u32, live: Option<&BTreeMap<u32, u32>>) -> Vec<BlockInfo> {
        let stream = self.streams.stream(self.slabs.get(slab).tag);
        let mut blocks: Vec<BlockInfo> = Vec::new();
        for slot in 0..self.slabs.get(slab).slots() as u32 {
            let range = self.slot_range(slab, slot);
            match (live.and_then(|live| live.get(&slot)), blocks.last_mut()) {
                (Some(&index), _) => blocks.push(self.live_info(index)),
                (None, Some(last)) if last.state == BlockState::Free => last.bytes += range.len(),
                (None, _) => {
                    let address = self.main.address(range.start);
                    blocks.push(BlockInfo { stream, ..unused(address, range.len(), BlockState::Free) });
                }
            }
        }
        // The end of the granule that is smaller than a block.
        let used = self.slabs.get(slab).slots() * class_bytes(self.slabs.get(slab).class);
        let tile = self.main.get(self.slabs.get(slab).tile);
        match (tile.bytes - used, blocks.last_mut()) {
            (0, _) => {}
            (rest, Some(last)) if last.state == BlockState::Free => last.bytes += rest,
            (rest, _) => {
                let address = self.main.address(tile.start + used);
                blocks.push(BlockInfo { stream, ..unused(address, rest, BlockState::Free) });
            }
        }
        blocks
    }

    /// A view by its live blocks. What lies between them is in use, or free, in the main segment,
    /// and shown as lent; granules that are gone divide it.
    fn view_segments(&self, view: u32, blocks: &BTreeMap<usize, u32>) -> Vec<SegmentInfo> {
        let (view, shift) = (self.views.get(view), self.main.granule_shift());
        let mut segments = Vec::new();
        let mut slot = 0;
        for run in view.slots.chunk_by(|a, b| (*a == GONE) == (*b == GONE)) {
            let range = slot << shift..(slot + run.len()) << shift;
            slot += run.len();
            if run[0] == GONE {
                continue;
            }
            let mut info = SegmentInfo {
                address: view.address + range.start as u64,
                bytes: range.len(),
                kind: SegmentKind::View,
                blocks: Vec::new(),
            };
            let mut end = range.start;
            for (&offset, &index) in blocks.range(range.clone()) {
                if end < offset {
                    info.blocks.push(unused(view.address + end as u64, offset - end, BlockState::Lent));
                }
                info.blocks.push(self.live_info(index));
                end = offset + self.blocks.at_index(index).bytes;
            }
            if end < range.end {
                info.blocks.push(unused(view.address + end as u64, range.end - end, BlockState::Lent));
            }
            segments.push(info);
        }
        segments
    }

    fn live_info(&self, index: u32) -> BlockInfo {
        let live = self.blocks.at_index(index);
        BlockInfo {
            address: live.address,
            bytes: live.bytes,
            requested_bytes: live.requested_bytes,
            state: BlockState::Live,
            stream: self.streams.stream(live.tag),
            owner: Some(Arc::clone(&live.owner)),
            id: Some(self.blocks.id(index)),
        }
    }
}

fn unused(address: u64, bytes: usize, state: BlockState) -> BlockInfo {
    BlockInfo { address, bytes, requested_bytes: 0, state, stream: StreamId::default(), owner: None, id: None }
}
