//! Checksums of blocks of rows: made while a table is written, compared when its rows are read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use megabatch_gpu_core::Buffer;
use xxhash_rust::xxh3::xxh3_64;

use crate::slab::Element;

/// Most bytes of a block, unless a single row takes more: a page, the least that comes from a disk.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Division of a table into blocks of whole rows; the last block may have fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) rows: usize,
    pub(crate) row_bytes: usize,
    /// Rows of a block.
    pub(crate) block_rows: usize,
}

impl Blocks {
    /// Blocks of a table of `rows`, each of `row_bytes`.
    pub(crate) fn new(rows: usize, row_bytes: usize) -> Self {
        Blocks { rows, row_bytes, block_rows: (BLOCK_BYTES / row_bytes.max(1)).max(1) }
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.rows.div_ceil(self.block_rows)
    }

    /// Rows of a block.
    pub(crate) fn rows_of(&self, block: usize) -> Range<usize> {
        block * self.block_rows..((block + 1) * self.block_rows).min(self.rows)
    }

    /// Blocks that lie whole within `rows`.
    fn whole_in(&self, rows: &Range<usize>) -> Range<usize> {
        let first = rows.start.div_ceil(self.block_rows);
        let end = if rows.end == self.rows { self.count() } else { rows.end / self.block_rows };
        first..end.max(first)
    }

    /// `rows` with the rest of the blocks that they begin and end in.
    pub(crate) fn widened(&self, rows: &Range<usize>) -> Range<usize> {
        let start = rows.start / self.block_rows * self.block_rows;
        start..rows.end.next_multiple_of(self.block_rows).min(self.rows)
    }
}

/// The little-endian bytes of numbers.
pub(crate) fn little_endian<T: Element>(values: &[T]) -> Cow<'_, [u8]> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    if cfg!(target_endian = "little") {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(bytes.chunks_exact(size_of::<T>()).flat_map(|number| number.iter().rev().copied()).collect())
}

/// Consecutive checksums, from the block `first` on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SumsFrom {
    pub(crate) first: usize,
    pub(crate) sums: Vec<u64>,
}

/// Checksums of a table whose rows come in any order, each once.
#[derive(Debug)]
pub(crate) struct BlockSums {
    blocks: Blocks,
    /// Blocks that have some of their rows.
    begun: Mutex<HashMap<usize, BegunBlock>>,
}

#[derive(Debug)]
struct BegunBlock {
    bytes: Vec<u8>,
    filled: usize,
}

impl BlockSums {
    pub(crate) fn new(blocks: Blocks) -> Self {
        BlockSums { blocks, begun: Mutex::default() }
    }

    /// Takes rows from `first` on. Returns checksums of the blocks that are complete now.
    pub(crate) fn add<T: Element>(&self, first: usize, values: &[T]) -> Vec<SumsFrom> {
        let Blocks { row_bytes, .. } = self.blocks;
        let bytes = little_endian(values);
        let rows = first..first + bytes.len() / row_bytes;
        let mut complete: Vec<SumsFrom> = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let block = row / self.blocks.block_rows;
            let block_rows = self.blocks.rows_of(block);
            let end = block_rows.end.min(rows.end);
            let part = &bytes[(row - first) * row_bytes..(end - first) * row_bytes];
            let sum = match row == block_rows.start && end == block_rows.end {
                true => Some(xxh3_64(part)),
                false => self.add_part(block, (row - block_rows.start) * row_bytes, part),
            };
            match (sum, complete.last_mut()) {
                (Some(sum), Some(last)) if last.first + last.sums.len() == block => last.sums.push(sum),
                (Some(sum), _) => complete.push(SumsFrom { first: block, sums: vec![sum] }),
                (None, _) => {}
            }
            row = end;
        }
        complete
    }

    fn add_part(&self, block: usize, offset: usize, part: &[u8]) -> Option<u64> {
        let block_bytes = self.blocks.rows_of(block).len() * self.blocks.row_bytes;
        let mut all = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = all.entry(block).or_insert_with(|| BegunBlock { bytes: vec![0; block_bytes], filled: 0 });
        begun.bytes[offset..offset + part.len()].copy_from_slice(part);
        begun.filled += part.len();
        if begun.filled < block_bytes {
            return None;
        }
        all.remove(&block).map(|whole| xxh3_64(&whole.bytes))
    }
}

/// Blocks cut by a read that are remembered, with both parts, at most; they take 4 MiB.
const CUTS_MAX: usize = 1 << 16;

/// Checksums of a table in memory.
#[derive(Debug)]
pub(crate) struct TableChecksums {
    blocks: Blocks,
    pub(crate) sums: Buffer<u64>,
    /// Bytes of an element as it is hashed.
    element_bytes: usize,
    /// Blocks that reads cut in two, by number. Reads that go chunk by chunk cut a block at the
    /// same row each time.
    cuts: Mutex<HashMap<usize, CutBlock>>,
}

/// Checksums of the two parts of a block that was compared whole.
#[derive(Clone, Copy, Debug)]
struct CutBlock {
    /// First row of the second part.
    row: usize,
    sums: [u64; 2],
}

/// Rows at the start or end of a read that are a part of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BlockPart {
    block: usize,
    rows: Range<usize>,
}

impl TableChecksums {
    /// Checksums `sums` of `blocks` of elements that are hashed as `element_bytes` bytes.
    pub(crate) fn new(blocks: Blocks, sums: Buffer<u64>, element_bytes: usize) -> Self {
        TableChecksums { blocks, sums, element_bytes, cuts: Mutex::default() }
    }

    /// Division of the table into blocks.
    pub(crate) fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// The first damaged block among those that the rows from `first` on touch. `read` reads the
    /// rest of a block that is given in part.
    ///
    /// # Errors
    /// Whatever `read` returns.
    pub(crate) fn first_damaged_or_cut<T: Element, E>(
        &self,
        first: usize,
        values: &[T],
        mut read: impl FnMut(Range<usize>, &mut [T]) -> Result<(), E>,
    ) -> Result<Option<usize>, E> {
        if size_of::<T>() != self.element_bytes {
            return Ok(None);
        }
        if let Some(block) = self.first_damaged(first, values) {
            return Ok(Some(block));
        }
        let row_len = self.blocks.row_bytes / size_of::<T>();
        for part in self.cut_parts(first..first + values.len() / row_len) {
            let given = &values[(part.rows.start - first) * row_len..(part.rows.end - first) * row_len];
            if self.is_known(&part, given) {
                continue;
            }
            let rows = self.blocks.rows_of(part.block);
            let mut whole = vec![T::zeroed(); rows.len() * row_len];
            let place = |row: usize| (row - rows.start) * row_len;
            whole[place(part.rows.start)..place(part.rows.end)].copy_from_slice(given);
            for rest in [rows.start..part.rows.start, part.rows.end..rows.end] {
                if !rest.is_empty() {
                    read(rest.clone(), &mut whole[place(rest.start)..place(rest.end)])?;
                }
            }
            if xxh3_64(&little_endian(&whole)) != self.sums.as_slice()[part.block] {
                return Ok(Some(part.block));
            }
            self.remember(&part, &whole);
        }
        Ok(None)
    }

    /// The parts of blocks in which `rows` begin and end.
    fn cut_parts(&self, rows: Range<usize>) -> impl Iterator<Item = BlockPart> {
        let whole = self.blocks.whole_in(&rows);
        let block_rows = self.blocks.block_rows;
        let block = |row: usize| row / block_rows;
        let is_cut = |row: usize| !rows.is_empty() && !whole.contains(&block(row));
        let first = is_cut(rows.start).then(|| block(rows.start));
        let last = is_cut(rows.end.saturating_sub(1)).then(|| block(rows.end - 1)).filter(|last| Some(*last) != first);
        let blocks = self.blocks;
        [first, last].into_iter().flatten().map(move |block| {
            let all = blocks.rows_of(block);
            BlockPart { block, rows: all.start.max(rows.start)..all.end.min(rows.end) }
        })
    }

    /// True if these are the values with which the part was compared before.
    fn is_known<T: Element>(&self, part: &BlockPart, values: &[T]) -> bool {
        let Some(known) = self.cuts().get(&part.block).copied() else { return false };
        let all = self.blocks.rows_of(part.block);
        let sum = match (part.rows.start, part.rows.end) {
            (start, end) if (start, end) == (all.start, known.row) => known.sums[0],
            (start, end) if (start, end) == (known.row, all.end) => known.sums[1],
            _ => return false,
        };
        xxh3_64(&little_endian(values)) == sum
    }

    /// Remembers the parts of a block that is the one which was written.
    fn remember<T: Element>(&self, part: &BlockPart, whole: &[T]) {
        let all = self.blocks.rows_of(part.block);
        let row = match part.rows.start == all.start {
            true => part.rows.end,
            false if part.rows.end == all.end => part.rows.start,
            false => return,
        };
        let (before, after) = whole.split_at((row - all.start) * self.blocks.row_bytes / size_of::<T>());
        let sums = [before, after].map(|part| xxh3_64(&little_endian(part)));
        let mut cuts = self.cuts();
        if cuts.len() >= CUTS_MAX {
            cuts.clear();
        }
        cuts.insert(part.block, CutBlock { row, sums });
    }

    fn cuts(&self) -> MutexGuard<'_, HashMap<usize, CutBlock>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first damaged block that lies whole within the rows from `first` on. Blocks at the edges
    /// that lack rows are not compared.
    fn first_damaged<T: Element>(&self, first: usize, values: &[T]) -> Option<usize> {
        let row_bytes = self.blocks.row_bytes;
        let rows = first..first + size_of_val(values) / row_bytes;
        let compared = self.blocks.whole_in(&rows);
        if compared.is_empty() {
            return None;
        }
        let bytes = little_endian(values);
        let sums = self.sums.as_slice();
        compared.into_iter().find(|&block| {
            let rows = self.blocks.rows_of(block);
            xxh3_64(&bytes[(rows.start - first) * row_bytes..(rows.end - first) * row_bytes]) != sums[block]
        })
    }
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Rows come in pieces, in any order; damage is found in each block that is whole.
        #[test]
        fn checksums_are_those_of_whole_blocks_and_find_a_changed_row(
            width in 1_usize..700, rows in 1_usize..90, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
            seed in any::<u64>(), at in any::<prop::sample::Index>(), from in any::<prop::sample::Index>(),
        ) {
            let values: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.37).sin()).collect();
            let blocks = Blocks::new(rows, width * 4);
            prop_assert!(blocks.block_rows == 1 || blocks.block_rows * width * 4 <= BLOCK_BYTES);
            let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index(rows + 1)).chain([0, rows]).collect();
            edges.sort_unstable();
            let mut pieces: Vec<Range<usize>> = edges.windows(2).map(|pair| pair[0]..pair[1]).collect();
            let turn = (seed % pieces.len() as u64) as usize;
            pieces.rotate_left(turn);
            let sums = BlockSums::new(blocks);
            let mut found = vec![None; blocks.count()];
            for piece in pieces {
                for part in sums.add(piece.start, &values[piece.start * width..piece.end * width]) {
                    let places = found[part.first..].iter_mut().zip(part.sums);
                    places.for_each(|(place, sum)| assert!(place.replace(sum).is_none(), "twice"));
                }
            }
            let expected: Vec<Option<u64>> =
                values.chunks(blocks.block_rows * width).map(|block| Some(xxh3_64(&little_endian(block)))).collect();
            prop_assert_eq!(&found, &expected);

            let all: Vec<u64> = found.into_iter().flatten().collect();
            let sums = Buffer::from_slice(&Device::cpu().scope("sums"), &all).unwrap();
            let checksums = TableChecksums::new(blocks, sums, 4);
            prop_assert_eq!(checksums.first_damaged(0, &values), None);
            let (mut changed, at, from) = (values.clone(), at.index(rows), from.index(rows));
            changed[at * width] += 1.0;
            prop_assert_eq!(checksums.first_damaged(0, &changed), Some(at / blocks.block_rows));
            let is_seen = blocks.rows_of(at / blocks.block_rows).start >= from;
            let seen = checksums.first_damaged(from, &changed[from * width..]);
            prop_assert_eq!(seen, is_seen.then_some(at / blocks.block_rows));

            // Parts of blocks are compared with the rest, which is read once.
            let to = from + (seed % (rows - from) as u64) as usize + 1;
            let mut rests = Vec::new();
            let mut first_damaged = |values: &[f32]| {
                let read = |rest: Range<usize>, out: &mut [f32]| {
                    out.copy_from_slice(&values[rest.start * width..rest.end * width]);
                    rests.push(rest);
                    Ok::<(), std::convert::Infallible>(())
                };
                checksums.first_damaged_or_cut(from, &values[from * width..to * width], read).unwrap()
            };
            let (block, read_blocks) = (at / blocks.block_rows, blocks.widened(&(from..to)));
            let damaged = read_blocks.contains(&blocks.rows_of(block).start).then_some(block);
            prop_assert_eq!(first_damaged(&changed), damaged);
            prop_assert_eq!((first_damaged(&values), first_damaged(&values)), (None, None));
            let is_one_cut = blocks.rows_of(from / blocks.block_rows).start == from
                || blocks.rows_of((to - 1) / blocks.block_rows).end == to
                || from / blocks.block_rows < (to - 1) / blocks.block_rows;
            let distinct: std::collections::BTreeSet<_> = rests.iter().map(|rest| (rest.start, rest.end)).collect();
            prop_assert!(!is_one_cut || rests.len() <= 2 * distinct.len(), "{rests:?}");
        }
    }

    #[test]
    fn rows_are_widened_to_their_blocks() {
        let blocks = Blocks::new(100, 512);
        assert_eq!(blocks.block_rows, 8);
        for (rows, expected) in [(0..1, 0..8), (7..9, 0..16), (8..16, 8..16), (99..100, 96..100), (96..97, 96..100)] {
            assert_eq!(blocks.widened(&rows), expected, "{rows:?}");
        }
    }
}
