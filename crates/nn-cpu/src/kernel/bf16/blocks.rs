//! Products of matrices in single precision that are rounded to pairs on the way, block by block.
//!
//! ```text
//! for each block of the depth:
//!     for each block of rows, a packed:
//!         for each block of columns, b packed:  c += a · b
//! ```
//!
//! 1. The packed blocks lie on the stack, 64 KiB: these products are those of layers whose operands
//!    no other product reads.
//! 2. A block of c that is row-major is copied to panels and back.
//!
//! The order of every sum is that of one [`product`](super::product) of the whole: blocks of the
//! depth are whole tiles.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::mem::MaybeUninit;
use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use super::neon_pack;
#[cfg(target_arch = "x86_64")]
use super::pack;
#[cfg(test)]
use super::portable;
use super::{Bf16Isa, InstructionSet, PAIRED_PANEL, Packing, dispatch_packing, execute, padded_words, words};
use crate::kernel::{PANEL, PanelOrder, PrefetchRows, ProductArguments, Start, View, ViewMut};

/// Rows, columns and depth of a block.
const ROWS: usize = 64;
const COLUMNS: usize = 64;
const DEPTH: usize = 256;

/// Distances of panels in the packed blocks and in the copy of c.
const A_STRIDE: usize = ROWS * PANEL;
const B_STRIDE: usize = padded_words(DEPTH) * PANEL;
const C_STRIDE: usize = ROWS * PANEL;

const _: () = assert!(DEPTH.is_multiple_of(PAIRED_PANEL), "blocks of the depth are whole tiles");

/// A matrix in single precision: number `c` of row `r` lies at `start` + `c` / 16 · `panel` + `r` ·
/// `row` + `c` % 16.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    values: &'a [f32],
    start: usize,
    panel: usize,
    row: usize,
    rows: usize,
    columns: usize,
    /// True if the product reads its transpose.
    is_transposed: bool,
}

impl<'a> Operand<'a> {
    /// The first `columns` columns of `rows` rows in panels.
    ///
    /// # Panics
    /// If the view is shorter.
    pub(crate) fn panels(rows: usize, columns: usize, from: View<'a>) -> Self {
        let View(values, place) = from;
        place.check(values.len(), columns.div_ceil(PANEL), rows);
        let (start, panel) = (place.start, place.stride);
        Operand { values, start, panel, row: PANEL, rows, columns, is_transposed: false }
    }

    /// Rows of `columns` numbers that begin `apart` numbers one after the other.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn rows(rows: usize, columns: usize, apart: usize, values: &'a [f32]) -> Self {
        let len = if rows == 0 { 0 } else { (rows - 1) * apart + columns };
        assert!(len <= values.len(), "{rows} rows of {columns}, {apart} apart, in {} numbers", values.len());
        Operand { values, start: 0, panel: PANEL, row: apart, rows, columns, is_transposed: false }
    }

    /// The transposed matrix.
    pub(crate) fn transposed(self) -> Self {
        Operand { is_transposed: !self.is_transposed, ..self }
    }

    /// Rows and columns that the product reads.
    fn shape(&self) -> [usize; 2] {
        if self.is_transposed { [self.columns, self.rows] } else { [self.rows, self.columns] }
    }

    /// How a block of what the product reads is packed; it begins with a panel.
    fn packing(&self, rows: &Range<usize>, columns: &Range<usize>, to: *mut f32, to_stride: usize) -> Packing {
        let (rows, columns) = if self.is_transposed { (columns, rows) } else { (rows, columns) };
        let first = self.start + columns.start / PANEL * self.panel + rows.start * self.row;
        Packing {
            rows: rows.len(),
            columns: columns.len(),
            from: self.values.as_ptr().wrapping_add(first),
            from_stride: self.panel,
            from_row: self.row,
            to,
            to_stride,
        }
    }
}

/// A block of c, and that of the depth.
struct Block {
    rows: Range<usize>,
    columns: Range<usize>,
    is_first_of_depth: bool,
}

impl Block {
    fn panels(&self) -> Range<usize> {
        self.columns.start / PANEL..self.columns.end.div_ceil(PANEL)
    }
}

/// `c` [rows, columns] += `a` · `b`, of operands that are rounded.
///
/// # Panics
/// If the shapes do not fit together.
pub(crate) fn multiply_rows(isa: Bf16Isa, a: Operand<'_>, b: Operand<'_>, c: &mut [f32]) {
    let width = b.shape()[1];
    assert_eq!(c.len(), a.shape()[0] * width, "output of a product of {width} columns");
    let mut sums = [0.0; ROWS * COLUMNS];
    each_block(isa, a, b, |block, arguments| {
        let places = || {
            let rows = block.rows.clone().enumerate();
            rows.flat_map(|(at, row)| block.panels().enumerate().map(move |(n, panel)| (at, row, n, panel)))
        };
        for (at, row, n, panel) in places() {
            let from = &c[row * width..][..width][panel * PANEL..];
            let to = &mut sums[n * C_STRIDE + at * PANEL..][..PANEL];
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
        }
        let arguments = ProductArguments { c: sums.as_mut_ptr(), c_stride: C_STRIDE, ..arguments };
        // SAFETY: `each_block` has packed the operands; the sums have room for a block.
        unsafe { execute(isa, &arguments) };
        for (at, row, n, panel) in places() {
            let to = &mut c[row * width..][..width][panel * PANEL..];
            to.iter_mut().zip(&sums[n * C_STRIDE + at * PANEL..][..PANEL]).for_each(|(to, &from)| *to = from);
        }
    });
}

/// `to` [rows, panels · 16] = `start` + `a` · `b`, of operands that are rounded.
///
/// # Panics
/// If the shapes do not fit together.
pub(crate) fn multiply_panels(isa: Bf16Isa, a: Operand<'_>, b: Operand<'_>, start: Start<'_>, to: &mut ViewMut<'_>) {
    let (rows, panels) = (a.shape()[0], b.shape()[1].div_ceil(PANEL));
    let ViewMut(to, at) = to;
    at.check(to.len(), panels, rows);
    assert!(a.shape()[1] > 0, "a product over nothing");
    let (start, start_stride, start_row) = start.steps(panels, rows);
    each_block(isa, a, b, |block, arguments| {
        let (row, panel) = (block.rows.start, block.panels().start);
        let begins = block.is_first_of_depth && !start.is_null();
        let start = start.wrapping_add(panel * start_stride + row * start_row);
        let arguments = ProductArguments {
            start: if begins { start } else { std::ptr::null() },
            start_stride,
            start_row,
            c: to[at.panel(panel).row(row).start..].as_mut_ptr(),
            c_stride: at.stride,
            ..arguments
        };
        // SAFETY: `each_block` has packed the operands; the block's rows and panels lie in `to` and
        // among those that it starts from, as was checked.
        unsafe { execute(isa, &arguments) };
    });
}

/// Packs the operands of one block after another, and has it multiplied by `multiply`, which adds
/// where the product is written to the arguments.
fn each_block(isa: Bf16Isa, a: Operand<'_>, b: Operand<'_>, mut multiply: impl FnMut(Block, ProductArguments)) {
    let ([rows, depth], [depth_of_b, columns]) = (a.shape(), b.shape());
    assert_eq!(depth, depth_of_b, "inner dimensions of a product [{rows}, {depth}]·[{depth_of_b}, {columns}]");
    let (mut packed_a, mut packed_b) =
        (MaybeUninit::<[f32; ROWS * DEPTH / 2]>::uninit(), MaybeUninit::<[f32; COLUMNS / PANEL * B_STRIDE]>::uninit());
    let (packed_a, packed_b) = (packed_a.as_mut_ptr().cast::<f32>(), packed_b.as_mut_ptr().cast::<f32>());
    for depth in parts(depth, DEPTH) {
        for rows in parts(rows, ROWS) {
            let packing = a.packing(&rows, &depth, packed_a, A_STRIDE);
            match a.is_transposed {
                false => dispatch_packing!(isa, rows, &packing),
                true => dispatch_packing!(isa, transposed_pairs, &packing),
            }
            for columns in parts(columns, COLUMNS) {
                let packing = b.packing(&depth, &columns, packed_b, B_STRIDE);
                match b.is_transposed {
                    false => dispatch_packing!(isa, pairs, &packing),
                    true => dispatch_packing!(isa, transposed_rows, &packing),
                }
                let block = Block { rows: rows.clone(), columns, is_first_of_depth: depth.start == 0 };
                let arguments = ProductArguments {
                    rows: rows.len(),
                    depth: words(depth.len()),
                    panels: block.panels().len(),
                    start: std::ptr::null(),
                    start_stride: 0,
                    start_row: 0,
                    a: packed_a,
                    a_stride: A_STRIDE,
                    b: packed_b,
                    b_stride: B_STRIDE,
                    c: std::ptr::null_mut(),
                    c_stride: 0,
                    order: PanelOrder::Ascending,
                    prefetch: PrefetchRows::default(),
                };
                multiply(block, arguments);
            }
        }
    }
}

/// 0..`total` in parts of up to `len`.
fn parts(total: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total).step_by(len).map(move |first| first..total.min(first + len))
}
