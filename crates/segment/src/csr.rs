//! Graphs and sparse matrices by rows.

#![deny(unsafe_code)]

use std::ops::Range;

use crate::edges::Compressed;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::offsets::{check_indices, check_offsets};

/// A sparse matrix compressed by rows (CSR): the edges of row `r` are those from `row_ptr[r]` to
/// before `row_ptr[r + 1]`, and `col` has the column of each. A view: the arrays stay where they
/// are, in a mapped file for instance.
///
/// Of a graph, an edge goes from its column to its row in the sense that messages do: a row gathers
/// from its columns. Columns of one row may come in any order, and more than once.
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
            let index = I::of(row).ok_or(Error::TooMany {
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
    pub fn new((offsets, rows, edges): (&'a [I], &'a [I], &'a [I]), row_count: usize) -> Result<Self> {
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
        let of_column = |column: usize| {
            let places = position(self.offsets[column])..position(self.offsets[column + 1]);
            self.edges[places.clone()].is_sorted_by(|one, next| one < next)
                && places.into_iter().all(|place| in_place(column, place))
        };
        (self.columns(), self.edges.len()) == (csr.columns, csr.edges()) && (0..self.columns()).all(of_column)
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
