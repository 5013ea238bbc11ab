#![forbid(unsafe_code)]

//! Checksums of blocks of rows: made while a table is written, compared when its rows are read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

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
    pub(crate) fn of(rows: usize, row_bytes: usize) -> Self {
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
    /// Blocks of which some rows came.
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
            let of_block = self.blocks.rows_of(block);
            let end = of_block.end.min(rows.end);
            let part = &bytes[(row - first) * row_bytes..(end - first) * row_bytes];
            let sum = match row == of_block.start && end == of_block.end {
                true => Some(xxh3_64(part)),
                false => self.add_part(block, (row - of_block.start) * row_bytes, part),
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

/// Checksums of a table in memory.
#[derive(Debug)]
pub(crate) struct TableChecksums {
    pub(crate) blocks: Blocks,
    pub(crate) sums: Buffer<u64>,
    /// Bytes of an element as it is hashed.
    pub(crate) element_bytes: usize,
}

impl TableChecksums {
    /// The first block whole within the rows from `first` on that is not the one which was written.
    /// Blocks at the edges of which rows lack are not compared.
    pub(crate) fn first_damaged<T: Element>(&self, first: usize, values: &[T]) -> Option<usize> {
        if size_of::<T>() != self.element_bytes {
            return None;
        }
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
            let blocks = Blocks::of(rows, width * 4);
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
            let checksums = TableChecksums { blocks, sums, element_bytes: 4 };
            prop_assert_eq!(checksums.first_damaged(0, &values), None);
            let (mut changed, at, from) = (values, at.index(rows), from.index(rows));
            changed[at * width] += 1.0;
            prop_assert_eq!(checksums.first_damaged(0, &changed), Some(at / blocks.block_rows));
            let is_seen = blocks.rows_of(at / blocks.block_rows).start >= from;
            let seen = checksums.first_damaged(from, &changed[from * width..]);
            prop_assert_eq!(seen, is_seen.then_some(at / blocks.block_rows));
        }
    }

    #[test]
    fn rows_are_widened_to_their_blocks() {
        let blocks = Blocks::of(100, 512);
        assert_eq!(blocks.block_rows, 8);
        for (rows, expected) in [(0..1, 0..8), (7..9, 0..16), (8..16, 8..16), (99..100, 96..100), (96..97, 96..100)] {
            assert_eq!(blocks.widened(&rows), expected, "{rows:?}");
        }
    }
}
