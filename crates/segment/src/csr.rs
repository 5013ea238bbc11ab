//! Edges of a graph: compressed by rows (CSR), by columns (CSC), and from lists of their ends.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::{Index, check_indices, check_offsets};
use crate::sort::{Sorted, sort};

/// A sparse matrix compressed by rows (CSR): the edges of row `r` are those from `row_ptr[r]` to
/// before `row_ptr[r + 1]`, and `col` has the column of each. A view: the arrays stay where they
/// are, in a mapped file for instance.
///
/// In a graph, messages go from column to row: a row gathers from its columns. Columns of one row
/// may come in any order, and more than once.
///
/// ```
/// use megabatch_segment::Csr;
///
/// // 0 ← 1, 0 ← 2, 2 ← 0
/// let graph = Csr::new(&[0u32, 2, 2, 3], &[1, 2, 0], 3)?;
/// assert_eq!(graph.columns_of(0), [1, 2]);
/// let csc = graph.transposed()?;
/// assert_eq!(csc.offsets, [0, 1, 2, 3]); // one edge from each node …
/// assert_eq!(csc.indices, [2, 0, 0]); // … to these,
/// assert_eq!(csc.edges, [2, 0, 1]); // which the graph lists third, first and second
/// # Ok::<(), megabatch_segment::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Csr<'a, I> {
    row_ptr: &'a [I],
    col: &'a [I],
    columns: usize,
}

impl<'a, I: Index> Csr<'a, I> {
    /// The matrix of `row_ptr`, `[rows + 1]`, and `col`, `[edges]`, with `columns` columns. Both
    /// arrays are looked through once.
    ///
    /// # Errors
    /// [`Error::NoOffsets`], [`Error::FirstOffset`], [`Error::DecreasingOffset`] or
    /// [`Error::LastOffset`] for offsets that do not divide the edges among the rows;
    /// [`Error::IndexOutOfRange`] for a column that there is not.
    pub fn new(row_ptr: &'a [I], col: &'a [I], columns: usize) -> Result<Self> {
        check_offsets("row_ptr", row_ptr)?;
        let last = row_ptr[row_ptr.len() - 1].wide();
        if last != col.len() as u64 {
            return Err(Error::LastOffset { array: "row_ptr", found: last, rows: col.len() });
        }
        check_indices("col", col, columns)?;
        Ok(Csr { row_ptr, col, columns })
    }

    /// The matrix of arrays that were looked through before, in no time.
    ///
    /// # Safety
    /// [`Csr::new`] accepts the arrays: kernels and vector code read rows without looking at their
    /// indices again.
    #[allow(unsafe_code, reason = "what others rely on is the caller's word here")]
    pub unsafe fn new_unchecked(row_ptr: &'a [I], col: &'a [I], columns: usize) -> Self {
        Csr { row_ptr, col, columns }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of edges, the entries of the matrix.
    pub fn edges(&self) -> usize {
        self.col.len()
    }

    /// Offsets of the rows, `[rows + 1]`.
    pub fn row_ptr(&self) -> &'a [I] {
        self.row_ptr
    }

    /// Columns of the edges, `[edges]`.
    pub fn col(&self) -> &'a [I] {
        self.col
    }

    /// The edges of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn edges_of(&self, row: usize) -> Range<usize> {
        let offset = |row: usize| self.row_ptr[row].position().expect("offsets are at most the number of edges");
        offset(row)..offset(row + 1)
    }

    /// The columns of a row's edges.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn columns_of(&self, row: usize) -> &'a [I] {
        &self.col[self.edges_of(row)]
    }

    /// The same matrix by columns (CSC), which the backward pass of a gathering from columns sums
    /// over: the offsets of the columns, the row of each edge, and its place among the edges here.
    /// Edges of a column are in the order in which they are here.
    ///
    /// # Errors
    /// [`Error::TooMany`] where `I` cannot count the rows.
    pub fn transposed(&self) -> Result<Compressed<I>> {
        let mut rows = Vec::with_capacity(self.edges());
        for row in 0..self.rows() {
            let index = I::from_position(row).ok_or(Error::TooMany {
                rows: self.edges() as u64,
                segments: self.rows(),
                index_bits: 8 * size_of::<I>() as u32,
                remedy: "use u64",
            })?;
            rows.extend(std::iter::repeat_n(index, self.edges_of(row).len()));
        }
        Compressed::by(self.col, &rows, self.columns)
    }
}

/// A graph's edges by the nodes that they come from (CSC): the view of what [`Csr::transposed`]
/// gives, and as lasting.
#[derive(Clone, Copy, Debug)]
pub struct Csc<'a, I> {
    offsets: &'a [I],
    rows: &'a [I],
    edges: &'a [I],
}

impl<'a, I: Index> Csc<'a, I> {
    /// The view of `offsets` `[columns + 1]`, `rows` `[edges]` and `edges` `[edges]`. The arrays
    /// are looked through once, as far as they can be without the CSR: `edges` may be any numbers
    /// below its length.
    ///
    /// # Errors
    /// As [`Csr::new`], with `rows` rows.
    pub fn new(offsets: &'a [I], rows: &'a [I], edges: &'a [I], row_count: usize) -> Result<Self> {
        Csr::new(offsets, rows, row_count)?;
        if rows.len() != edges.len() {
            return Err(Error::UnequalEnds { rows: rows.len(), columns: edges.len() });
        }
        check_indices("edges", edges, rows.len())?;
        Ok(Csc { offsets, rows, edges })
    }

    /// The view of arrays that were looked through before, in no time.
    ///
    /// # Safety
    /// [`Csc::new`] accepts the arrays.
    #[allow(unsafe_code, reason = "what others rely on is the caller's word here")]
    pub unsafe fn new_unchecked(offsets: &'a [I], rows: &'a [I], edges: &'a [I]) -> Self {
        Csc { offsets, rows, edges }
    }

    /// True if these are the edges of `csr`, each once, those of a column in the order in which
    /// they are there: what [`Csr::transposed`] gives. The arrays are looked through once.
    pub fn is_of(&self, csr: &Csr<'_, I>) -> bool {
        let position = |index: I| index.position().expect("indices were checked to be below a length");
        // As many edges as there are, strictly ascending within a column and each in its own
        // column, are every edge once.
        let in_place = |column: usize, place: usize| {
            let (row, edge) = (position(self.rows[place]), position(self.edges[place]));
            position(csr.col[edge]) == column && row < csr.rows() && csr.edges_of(row).contains(&edge)
        };
        let is_column = |column: usize| {
            let places = position(self.offsets[column])..position(self.offsets[column + 1]);
            self.edges[places.clone()].is_sorted_by(|one, next| one < next)
                && places.into_iter().all(|place| in_place(column, place))
        };
        (self.columns(), self.edges.len()) == (csr.columns, csr.edges()) && (0..self.columns()).all(is_column)
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Offsets of the columns, `[columns + 1]`.
    pub fn offsets(&self) -> &'a [I] {
        self.offsets
    }

    /// The row that each edge goes to, `[edges]`.
    pub fn rows(&self) -> &'a [I] {
        self.rows
    }

    /// The place of each edge in the CSR, `[edges]`.
    pub fn edges(&self) -> &'a [I] {
        self.edges
    }
}

/// Edges in the order of one of their ends, stably: by row it is a CSR, by column a CSC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressed<I> {
    /// Starts of the edges of each row (or column), and the end of the last: `[rows + 1]`.
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
        if I::from_position(key.len()).is_none() {
            let index_bits = 8 * size_of::<I>() as u32;
            return Err(Error::TooMany { rows: key.len() as u64, segments: count, index_bits, remedy: "use u64" });
        }
        let Sorted { offsets, order } = sort::<I, I>(key, count);
        let end = |edge: &I| other[edge.position().expect("the order is of positions in the list")];
        Ok(Compressed { offsets, indices: order.par_iter().map(end).collect(), edges: order })
    }
}
