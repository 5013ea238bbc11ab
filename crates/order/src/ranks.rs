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
    fn there_is_no_rank_beyond_the_world() {
        assert_eq!(Rank::new(0, 0), Err(Error::Zero { size: "world" }));
        let beyond = Rank::new(2, 2).unwrap_err();
        assert_eq!(beyond.to_string(), "rank 2 of a world of 2: ranks count from 0, so that the last one is 1");
    }
}
