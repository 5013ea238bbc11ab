use std::ops::Range;

use crate::error::{Error, Result};

/// One of the processes that share every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    rank: usize,
    world: usize,
}

impl Default for Rank {
    /// The only one.
    fn default() -> Self {
        Rank { rank: 0, world: 1 }
    }
}

impl Rank {
    /// Rank `rank`, counted from 0, of `world`.
    ///
    /// # Errors
    /// [`Error::Zero`] for a world of none, [`Error::Rank`] for a rank that it does not have.
    pub fn new(rank: usize, world: usize) -> Result<Self> {
        match (rank, world) {
            (_, 0) => Err(Error::Zero { size: "world" }),
            (rank, world) if rank >= world => Err(Error::Rank { rank, world }),
            (rank, world) => Ok(Rank { rank, world }),
        }
    }

    /// This rank's part of the positions `batch`: the `rank`-th of `world` contiguous slices that
    /// together are the batch, in order.
    ///
    /// If the world does not divide the batch, the first ranks have one sample more than the
    /// others. In a batch with fewer samples than ranks, the last ranks have an empty slice, so
    /// that all ranks count the same batches.
    pub fn slice(&self, batch: Range<usize>) -> Range<usize> {
        let (each, one_more) = (batch.len() / self.world, batch.len() % self.world);
        let start_of = |rank: usize| batch.start + rank * each + rank.min(one_more);
        start_of(self.rank)..start_of(self.rank + 1)
    }

    /// This rank's part of positions that are cut into `blocks`, one after the other without gaps:
    /// the `rank`-th of `world` contiguous ranges of whole blocks.
    ///
    /// A sum that is formed block by block, and handed on from rank to rank, then has the bits of
    /// one that a single process forms. With fewer blocks than ranks, the last ranks have none.
    pub fn slice_of_blocks(&self, blocks: &[Range<usize>]) -> Range<usize> {
        let end = blocks.last().map_or(0, |block| block.end);
        match &blocks[self.slice(0..blocks.len())] {
            [first, .., last] => first.start..last.end,
            [only] => only.clone(),
            [] => end..end,
        }
    }

    /// Its number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.world
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(world: usize, batch: Range<usize>) -> Vec<Range<usize>> {
        (0..world).map(|rank| Rank::new(rank, world).unwrap().slice(batch.clone())).collect()
    }

    #[test]
    fn ranks_share_a_batch() {
        assert_eq!(slices(1, 5..9), vec![5..9]);
        assert_eq!(slices(2, 5..9), [5..7, 7..9]);
        assert_eq!(slices(4, 10..20), [10..13, 13..16, 16..18, 18..20]);
        assert_eq!(slices(3, 0..2), [0..1, 1..2, 2..2]);
        assert_eq!(slices(2, 7..7), [7..7, 7..7]);
    }

    #[test]
    fn ranks_share_blocks_whole() {
        let blocks = [10..42, 42..74, 74..78, 78..110, 110..111];
        let shares = |world: usize, blocks: &[Range<usize>]| -> Vec<Range<usize>> {
            (0..world).map(|rank| Rank::new(rank, world).unwrap().slice_of_blocks(blocks)).collect()
        };
        assert_eq!(shares(1, &blocks), vec![10..111]);
        assert_eq!(shares(2, &blocks), [10..78, 78..111]);
        assert_eq!(shares(3, &blocks), [10..74, 74..110, 110..111]);
        assert_eq!(shares(6, &blocks), [10..42, 42..74, 74..78, 78..110, 110..111, 111..111]);
        assert_eq!(shares(2, &[]), [0..0, 0..0]);
    }

    #[test]
    fn there_is_no_rank_beyond_the_world() {
        assert_eq!(Rank::new(0, 0), Err(Error::Zero { size: "world" }));
        let beyond = Rank::new(2, 2).unwrap_err();
        assert_eq!(beyond.to_string(), "rank 2 of a world of 2: ranks count from 0, so that the last one is 1");
    }
}
