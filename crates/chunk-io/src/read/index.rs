//! Index of a dataset's chunks: their places in the file.

use std::ops::Range;

use hdf5::Dataset;

use super::file::FileExtent;

/// A dataset `[N, T, F]` cut into chunks; datasets of fewer axes have trailing ones of length 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkGrid {
    pub(crate) shape: [usize; 3],
    pub(crate) chunk: [usize; 3],
    /// Chunks along each axis.
    pub(crate) counts: [usize; 3],
    rank: usize,
}

impl ChunkGrid {
    /// `None` for more than three axes, or for chunks of another rank or without elements.
    pub(crate) fn new(shape: &[usize], chunk: &[usize]) -> Option<Self> {
        if shape.is_empty() || shape.len() > 3 || chunk.len() != shape.len() || chunk.contains(&0) {
            return None;
        }
        let widened = |axes: &[usize]| std::array::from_fn(|axis| axes.get(axis).copied().unwrap_or(1));
        let (shape3, chunk3): ([usize; 3], [usize; 3]) = (widened(shape), widened(chunk));
        let counts = std::array::from_fn(|axis| shape3[axis].div_ceil(chunk3[axis]));
        Some(ChunkGrid { shape: shape3, chunk: chunk3, counts, rank: shape.len() })
    }

    /// Elements of a chunk, those beyond the edge of the dataset included.
    pub(crate) fn chunk_elements(&self) -> Option<usize> {
        self.chunk.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis))
    }

    /// True if a chunk is a number of whole rows of the dataset, as they are in the caller's
    /// memory.
    pub(crate) fn has_whole_rows(&self) -> bool {
        self.chunk[1..] == self.shape[1..]
    }

    /// Number of the chunk at `place` in the grid, in row-major order.
    pub(crate) fn number(&self, place: [usize; 3]) -> usize {
        (place[0] * self.counts[1] + place[1]) * self.counts[2] + place[2]
    }

    /// Number of the chunk that begins with the element `origin`, `None` where that is outside the
    /// dataset or within a chunk.
    fn number_of_origin(&self, origin: &[u64]) -> Option<usize> {
        let mut place = [0; 3];
        for (axis, &first) in origin.iter().enumerate() {
            let first = usize::try_from(first).ok()?;
            place[axis] = first / self.chunk[axis];
            if first % self.chunk[axis] != 0 || place[axis] >= self.counts[axis] {
                return None;
            }
        }
        Some(self.number(place))
    }

    /// Indices of the first element of the chunk at `place`, as many as the dataset has axes.
    pub(crate) fn origin(&self, place: [usize; 3]) -> Vec<usize> {
        (0..self.rank).map(|axis| place[axis] * self.chunk[axis]).collect()
    }

    /// Indices along `axis` that the chunk at `place` of that axis covers within the dataset.
    pub(crate) fn covered(&self, axis: usize, place: usize) -> Range<usize> {
        let first = place * self.chunk[axis];
        first..(first + self.chunk[axis]).min(self.shape[axis])
    }
}

/// A chunk in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkEntry {
    number: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// Bit k: filter k of the pipeline was left out.
    pub(crate) mask: u32,
}

impl ChunkEntry {
    pub(crate) fn extent(&self) -> FileExtent {
        FileExtent { offset: self.offset, bytes: self.bytes as usize }
    }
}

/// The chunks of a dataset that were ever written; 24 bytes of memory each.
#[derive(Debug, Default)]
pub(crate) struct ChunkIndex {
    /// By number.
    entries: Vec<ChunkEntry>,
}

/// Reason for which an index cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Hdf5(hdf5::Error),
    /// The index is invalid, for this reason.
    Lies(String),
}

impl ChunkIndex {
    /// Asks HDF5 for the places of all chunks. HDF5 lists them in the order of their numbers,
    /// except in the case of `misplaces_chunks`. A cyclic index is detected by a break of that
    /// order, or by outgrowing `file_bytes`, the length of the file.
    pub(crate) fn read(dataset: &Dataset, grid: &ChunkGrid, file_bytes: u64) -> Result<Self, Unusable> {
        let mut entries: Vec<ChunkEntry> = Vec::new();
        let mut promised = 0_u64;
        let mut lie = None;
        let visited = dataset.chunks_visit(|chunk| {
            // The entry of a chunk without bytes takes two at the very least.
            promised = promised.saturating_add(chunk.size.max(2));
            let Some(number) = grid.number_of_origin(chunk.offset) else { return 0 };
            let bytes = u32::try_from(chunk.size).unwrap_or(u32::MAX);
            if promised > file_bytes {
                lie = Some(format!("its chunks take {promised} bytes or more, and the file has {file_bytes}"));
            } else if entries.last().is_some_and(|last| last.number >= number) {
                lie = Some(format!("the chunk at {:?} comes after one that is behind it", chunk.offset));
            }
            entries.push(ChunkEntry { number, offset: chunk.addr, bytes, mask: chunk.filter_mask });
            if lie.is_some() { -1 } else { 0 }
        });
        match lie {
            Some(lie) => Err(Unusable::Lies(lie)),
            None => visited.map_err(Unusable::Hdf5).map(|()| ChunkIndex { entries }),
        }
    }

    /// The chunk of that number, `None` if it was never written.
    pub(crate) fn get(&self, number: usize) -> Option<ChunkEntry> {
        let k = if self.entries.get(number).is_some_and(|entry| entry.number == number) {
            Ok(number)
        } else {
            self.entries.binary_search_by_key(&number, |entry| entry.number)
        };
        k.ok().map(|k| self.entries[k])
    }

    /// Bytes that the chunks take in the file.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_counts_chunks_that_pass_the_edge() {
        let grid = ChunkGrid::new(&[7, 4, 3], &[2, 3, 5]).unwrap();
        assert_eq!(grid.counts, [4, 2, 1]);
        assert_eq!(grid.number([3, 1, 0]), 7);
        assert_eq!(grid.number_of_origin(&[6, 3, 0]), Some(7));
        assert_eq!(grid.origin([3, 1, 0]), [6, 3, 0]);
        assert_eq!((grid.covered(0, 3), grid.covered(1, 0), grid.covered(2, 0)), (6..7, 0..3, 0..3));
        assert_eq!(grid.number_of_origin(&[8, 0, 0]), None, "beyond the dataset");
        assert_eq!(grid.number_of_origin(&[1, 0, 0]), None, "within a chunk");
        assert_eq!(grid.number_of_origin(&[u64::MAX, 0, 0]), None);
    }

    #[test]
    fn fewer_axes_are_widened_and_more_are_refused() {
        let grid = ChunkGrid::new(&[7, 4], &[2, 4]).unwrap();
        assert_eq!((grid.shape, grid.counts, grid.has_whole_rows()), ([7, 4, 1], [4, 1, 1], true));
        assert_eq!(grid.origin([3, 0, 0]), [6, 0]);
        assert!(!ChunkGrid::new(&[7, 4, 3], &[2, 4, 5]).unwrap().has_whole_rows());
        assert_eq!(ChunkGrid::new(&[7, 4, 3, 2], &[1, 1, 1, 1]), None);
        assert_eq!(ChunkGrid::new(&[7], &[0]), None);
    }

    #[test]
    fn entries_are_found_in_full_and_in_sparse_indices() {
        let entry = |number| ChunkEntry { number, offset: 100 * number as u64, bytes: 9, mask: 0 };
        let full = ChunkIndex { entries: (0..5).map(entry).collect() };
        assert_eq!(full.get(3), Some(entry(3)));
        assert_eq!(full.get(5), None);
        let sparse = ChunkIndex { entries: [1, 4, 7].map(entry).to_vec() };
        assert_eq!([0, 1, 4, 5, 7].map(|number| sparse.get(number).is_some()), [false, true, true, false, true]);
        assert_eq!(sparse.stored_bytes(), 27);
    }
}
