//! Rows of one dataset through a cache of bounded size.
//!
//! ```text
//! read(ranges): cut ranges at block boundaries
//!               a block that is cached      -> its slot, marked as recent
//!               a block that is not         -> a slot by CLOCK, read with the others of its group
//!               a group ends where slots or staging end: read its blocks, then copy its rows
//! ```

use std::collections::HashMap;
use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};

use crate::checksums::Blocks;
use crate::cost::ReadCost;
use crate::error::{Error, Result};
use crate::numeric_dataset::NumericDataset;
use crate::read::{RowSelection, cut, take};

/// Most bytes that are read at once.
const STAGING_BYTES: usize = 1 << 20;

/// Blocks of rows of a dataset, kept in memory by recency of use.
#[derive(Debug)]
pub(super) struct RowCache {
    table: NumericDataset,
    /// Rows of a block; the last block may have fewer.
    block_rows: usize,
    /// `[slots, block_rows, row_len]`.
    slots: Buffer<f32>,
    /// `[staged blocks, block_rows, row_len]`.
    staging: Buffer<f32>,
    staging_scope: Scope,
    slot_of_block: HashMap<usize, usize>,
    /// Slots that were used so far, the first of all.
    states: Vec<SlotState>,
    /// Slot at which the search for one to give up goes on.
    hand: usize,
    group: Group,
}

/// Contents of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotState {
    block: Option<usize>,
    /// True if it was used since the hand passed it.
    is_recent: bool,
    /// Number of the last group that uses it.
    group: u64,
}

/// Pieces that are copied together, once their blocks are there.
#[derive(Debug, Default)]
struct Group {
    /// Number of the group, from 1.
    number: u64,
    /// Block and slot of each block to read.
    missing: Vec<(usize, usize)>,
    /// Slot, and rows within its block.
    pieces: Vec<(usize, Range<usize>)>,
}

/// Size of a cache of a dataset before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowCacheSize {
    pub(super) block_rows: usize,
    block_len: usize,
    blocks: usize,
}

impl RowCacheSize {
    /// Blocks of `table`: those of its checksums, or of a dataset that is decoded whole chunks, so
    /// that each is decoded once while its rows are needed. They are no smaller than those of
    /// checksums, so that each of these lies in two at most.
    pub(super) fn for_table(table: &NumericDataset) -> Result<Self> {
        let (rows, row_len) = (table.rows(), table.row_len().max(1));
        let page = Blocks::new(rows, row_len * size_of::<f32>()).block_rows;
        let block_rows = page.next_multiple_of(table.decoded_chunk_rows()?.unwrap_or(page));
        Ok(Self::new(rows, row_len, block_rows))
    }

    /// Blocks of `block_rows` of a table of `rows`.
    pub(super) fn new(rows: usize, row_len: usize, block_rows: usize) -> Self {
        let block_rows = block_rows.clamp(1, rows.max(1));
        RowCacheSize { block_rows, block_len: block_rows * row_len, blocks: rows.div_ceil(block_rows) }
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_len * size_of::<f32>()
    }

    fn staged(&self) -> usize {
        (STAGING_BYTES / self.block_bytes()).clamp(1, self.blocks.max(1))
    }

    /// Bytes with which every block stays.
    pub(super) fn bytes_max(&self) -> usize {
        (self.blocks + self.staged()) * self.block_bytes()
    }

    /// Least bytes of a cache: those of a block and of its rows as they are read.
    pub(super) fn bytes_min(&self) -> usize {
        2 * self.block_bytes()
    }

    /// Bytes of the slots, and of the staged blocks, of a cache of about `bytes`.
    pub(super) fn taken_blocks(&self, bytes: usize) -> [usize; 2] {
        self.fitting(bytes).map(|blocks| blocks * self.block_bytes())
    }

    /// Slots, and staged blocks, for `bytes`.
    fn fitting(&self, bytes: usize) -> [usize; 2] {
        let fitting = (bytes / self.block_bytes()).max(2);
        let staged = self.staged().min(fitting / 2).max(1);
        [(fitting - staged).clamp(1, self.blocks.max(1)), staged]
    }
}

impl RowCache {
    /// A cache of `table` in about `bytes` of memory, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub(super) fn new(table: &NumericDataset, size: RowCacheSize, bytes: usize, scope: &Scope) -> Result<Self> {
        let [slots, staged] = size.fitting(bytes);
        let buffer = |blocks: usize| Buffer::zeros(scope, blocks * size.block_len).map_err(Error::memory(table.path()));
        Ok(RowCache {
            table: table.clone(),
            block_rows: size.block_rows,
            slots: buffer(slots)?,
            staging: buffer(staged)?,
            staging_scope: scope.child("staging"),
            slot_of_block: HashMap::new(),
            states: Vec::new(),
            hand: 0,
            group: Group { number: 1, ..Group::default() },
        })
    }

    /// Copies the rows of `ranges`, in any order, to `out`, one range after the other.
    ///
    /// # Errors
    /// [`Error::Rows`] names the dataset and the rows that cannot be read. What was cached stays.
    pub(super) fn read(&mut self, ranges: &[Range<usize>], mut out: &mut [f32]) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        for range in ranges {
            for piece in cut(range.clone(), self.block_rows) {
                let block = piece.start / self.block_rows;
                let slot = match self.cached(block) {
                    Some(slot) => slot,
                    None => self.claim(block, &mut cost, &mut out)?,
                };
                let first = block * self.block_rows;
                self.group.pieces.push((slot, piece.start - first..piece.end - first));
            }
        }
        self.finish_group(&mut cost, &mut out)?;
        Ok(cost)
    }

    /// The slot of a block that is cached or about to be read.
    fn cached(&mut self, block: usize) -> Option<usize> {
        let slot = *self.slot_of_block.get(&block)?;
        let state = &mut self.states[slot];
        (state.is_recent, state.group) = (true, self.group.number);
        Some(slot)
    }

    /// A slot for a block that is to be read.
    fn claim(&mut self, block: usize, cost: &mut ReadCost, out: &mut &mut [f32]) -> Result<usize> {
        if self.group.missing.len() == self.staged() {
            self.finish_group(cost, out)?;
        }
        let slot = match self.give_up() {
            Some(slot) => slot,
            None => {
                self.finish_group(cost, out)?;
                self.give_up().expect("a new group uses no slot")
            }
        };
        if let Some(before) = self.states[slot].block {
            self.slot_of_block.remove(&before);
        }
        // Not recent: what is read once is given up before what is read again.
        self.states[slot] = SlotState { block: Some(block), is_recent: false, group: self.group.number };
        self.slot_of_block.insert(block, slot);
        self.group.missing.push((block, slot));
        Ok(slot)
    }

    fn staged(&self) -> usize {
        self.staging.len() / self.block_len()
    }

    fn slots(&self) -> usize {
        self.slots.len() / self.block_len()
    }

    fn block_len(&self) -> usize {
        self.block_rows * self.table.row_len()
    }

    /// The next slot that was never used or, where all were, not lately, nor by this group.
    fn give_up(&mut self) -> Option<usize> {
        if self.states.len() < self.slots() {
            self.states.push(SlotState::default());
            return Some(self.states.len() - 1);
        }
        for _ in 0..2 * self.states.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.states.len();
            let state = &mut self.states[slot];
            if state.group == self.group.number {
                continue;
            }
            if !std::mem::take(&mut state.is_recent) {
                return Some(slot);
            }
        }
        None
    }

    /// Reads the blocks of the group and copies its pieces.
    fn finish_group(&mut self, cost: &mut ReadCost, out: &mut &mut [f32]) -> Result<()> {
        if let Err(error) = self.read_missing(cost) {
            for (block, slot) in self.group.missing.drain(..) {
                self.slot_of_block.remove(&block);
                self.states[slot] = SlotState::default();
            }
            self.group.pieces.clear();
            return Err(error);
        }
        let (row_len, block_len) = (self.table.row_len(), self.block_len());
        for (slot, rows) in self.group.pieces.drain(..) {
            let block = &self.slots.as_slice()[slot * block_len..][..block_len];
            take(out, rows.len() * row_len).copy_from_slice(&block[rows.start * row_len..rows.end * row_len]);
        }
        self.group.number += 1;
        Ok(())
    }

    fn read_missing(&mut self, cost: &mut ReadCost) -> Result<()> {
        if self.group.missing.is_empty() {
            return Ok(());
        }
        self.group.missing.sort_unstable();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for &(block, _) in &self.group.missing {
            let rows = block * self.block_rows..((block + 1) * self.block_rows).min(self.table.rows());
            match ranges.last_mut() {
                Some(last) if last.end == rows.start => last.end = rows.end,
                _ => ranges.push(rows),
            }
        }
        let (row_len, block_len) = (self.table.row_len(), self.block_len());
        let rows: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let staging = &mut self.staging.as_mut_slice()[..rows * row_len];
        let read = self.table.read_f32(&RowSelection::Ranges(&ranges), staging, &self.staging_scope);
        *cost += read.map_err(|source| self.table.rows_failed(&ranges, source))?;
        let mut staged = self.staging.as_slice();
        for (block, slot) in self.group.missing.drain(..) {
            let rows = self.block_rows.min(self.table.rows() - block * self.block_rows);
            let (values, rest) = staged.split_at(rows * row_len);
            self.slots.as_mut_slice()[slot * block_len..][..values.len()].copy_from_slice(values);
            staged = rest;
        }
        Ok(())
    }
}
