//! Edges from lists of their ends.

#![forbid(unsafe_code)]

use rayon::prelude::*;

use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::offsets::check_indices;
use crate::sort::{Sorted, sort};

/// Edges in the order of one of their ends, stably: by row it is a CSR, by column a CSC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressed<I> {
    /// Where the edges of each row (or column) begin, and the end of the last: `[rows + 1]`.
    pub offsets: Vec<I>,
    /// The other end of each edge: `[edges]`.
    pub indices: Vec<I>,
    /// The place of each edge in the list that it came from, by which its weight and attributes are
    /// found: `[edges]`.
    pub edges: Vec<I>,
}

impl<I: Index> Compressed<I> {
    /// Edges given by their ends (COO), `row` and `col`, both `[edges]`, by row. Of PyTorch
    /// Geometric's `edge_index`, whose edges go from `edge_index[0]` to `edge_index[1]`, the row
    /// that gathers is `edge_index[1]`.
    ///
    /// A counting sort: its time is that of reading the edges a few times, and the order does not
    /// depend on the number of threads.
    ///
    /// ```
    /// use megabatch_segment::Compressed;
    ///
    /// let by_row = Compressed::from_edges(&[2u32, 0, 0], &[0, 1, 2], 3, 3)?;
    /// assert_eq!(by_row.offsets, [0, 2, 2, 3]);
    /// assert_eq!(by_row.csr(3)?.columns_of(0), [1, 2]);
    /// assert_eq!(by_row.edges, [1, 2, 0]);
    /// # Ok::<(), megabatch_segment::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnequalEnds`]; [`Error::IndexOutOfRange`]; [`Error::TooMany`] where `I` cannot
    /// count the edges.
    pub fn from_edges(row: &[I], col: &[I], rows: usize, columns: usize) -> Result<Self> {
        if row.len() != col.len() {
            return Err(Error::UnequalEnds { rows: row.len(), columns: col.len() });
        }
        check_indices("row", row, rows)?;
        check_indices("col", col, columns)?;
        Compressed::by(row, col, rows)
    }

    /// The CSR that these edges by row are; `columns` is the number that they were made with.
    ///
    /// # Errors
    /// As [`Csr::new`].
    pub fn csr(&self, columns: usize) -> Result<Csr<'_, I>> {
        Csr::new(&self.offsets, &self.indices, columns)
    }

    /// Edges by `key`, all below `count`, with their other ends.
    pub(crate) fn by(key: &[I], other: &[I], count: usize) -> Result<Self> {
        if I::of(key.len()).is_none() {
            let index_bits = 8 * size_of::<I>() as u32;
            return Err(Error::TooMany { rows: key.len() as u64, segments: count, index_bits, remedy: "use u64" });
        }
        let Sorted { offsets, order } = sort::<I, I>(key, count);
        let end = |edge: &I| other[edge.position().expect("the order is of positions in the list")];
        Ok(Compressed { offsets, indices: order.par_iter().map(end).collect(), edges: order })
    }
}
