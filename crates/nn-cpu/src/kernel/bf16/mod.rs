//! Products of bf16 numbers, summed in single precision.
//!
//! The layout is that of [`kernel`](super): panels of rows of sixteen words of 32 bits. A word of
//! an operand holds two numbers in bf16 that are neighbours along the summed dimension, the first
//! in the lower half; a word of a result holds one number in single precision. Words are moved as
//! they are, in slices of f32 that nobody computes with.
//!
//! ```text
//! operand        word w of row r of panel p                              is made by
//! a, a matrix    a[r][32p + 2w], a[r][32p + 2w + 1]                      rows
//! a, transposed  a[32p + 2w][r], a[32p + 2w + 1][r]                      transposed_pairs
//! b              b[2r][16p + w], b[2r + 1][16p + w]                      pairs
//! b, transposed  b[16p + w][2r], b[16p + w][2r + 1]                      transposed_rows
//! c, sums        c[r][16p + w]                                           product
//!
//! product:  for panel p of c, row r:    c[p][r] = start + Σ_k a[r, k] · b[p][k]
//! ```
//!
//! Departures:
//!
//! 1. A product of depth K has K / 2 words to sum, and is the kernel of single precision
//!    otherwise: same tiles, same addresses.
//! 2. aᵀ · b, for gradients of weights, is the same product with a transposed when it is packed.
//! 3. Past the last number of the summed dimension operands are zero up to whole panels, which AMX
//!    reads; the other kernels stop at the last word.
//!
//! 4. Matrices that one product reads are packed block by block, see [`blocks`].
//!
//! [`Bf16Isa`]s differ in the order in which the numbers of a sum are added, and in how it is
//! rounded: `tests/portable.rs` has a twin of each. Packing rounds to the nearest, ties to even, and subnormal numbers to
//! zero: the same bits everywhere.

#![allow(unsafe_code, reason = "instructions of the CPU")]

mod blocks;
#[cfg(target_arch = "x86_64")]
mod dot;
mod isa;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_pack;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(test)]
#[path = "tests/portable.rs"]
mod portable;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub(crate) use blocks::{Operand, multiply_panels, multiply_rows};
pub(crate) use isa::Bf16Isa;
use isa::InstructionSet;

use super::{PANEL, PanelOrder, PanelProduct, ProductArguments, View, ViewMut};

/// Numbers of a row that one panel of an operand holds.
pub(crate) const PAIRED_PANEL: usize = 2 * PANEL;

/// Words of `numbers` numbers along the summed dimension.
pub(crate) const fn words(numbers: usize) -> usize {
    numbers.div_ceil(2)
}

/// The same up to whole panels: rows of a panel of b.
pub(crate) const fn padded_words(numbers: usize) -> usize {
    words(numbers).next_multiple_of(PANEL)
}

/// Arguments of the packing kernels: `from` [panels of columns][rows][16] and `to` at their
/// strides; a row-major matrix is one with panels 16 numbers apart.
struct Packing {
    rows: usize,
    columns: usize,
    from: *const f32,
    from_stride: usize,
    from_row: usize,
    to: *mut f32,
    to_stride: usize,
}

/// Calls a packing kernel of the instruction set that `$isa` proves.
macro_rules! dispatch_packing {
    ($isa:expr, $kernel:ident, $arguments:expr) => {
        // SAFETY: `Bf16Isa` proves that the CPU has the instruction set; the function around this
        // checked that every pointer reaches what the sizes say, and borrows `to` alone.
        unsafe {
            match $isa.instruction_set() {
                #[cfg(test)]
                InstructionSet::PortableDot | InstructionSet::PortableTiles | InstructionSet::PortableBfdot => {
                    portable::$kernel($arguments)
                }
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Dot | InstructionSet::Tiles => pack::$kernel($arguments),
                #[cfg(target_arch = "aarch64")]
                InstructionSet::Bfdot => neon_pack::$kernel($arguments),
            }
        }
    };
}

use dispatch_packing;

/// `to` [rows, panels · 16] = `start` + a [rows, depth] · b [panels][padded words of depth][16],
/// going over the panels as `order` says; the depth counts numbers.
///
/// # Panics
/// If a slice is shorter than these sizes, or the depth is 0.
pub(crate) fn product(isa: Bf16Isa, product: PanelProduct<'_>, to: &mut ViewMut<'_>, order: PanelOrder) {
    let (summed, b_rows) = (words(product.depth), padded_words(product.depth));
    let arguments = ProductArguments { order, ..product.arguments(summed, b_rows, to) };
    // SAFETY: every pointer reaches what the sizes say, up to whole panels of the depth, and `to`
    // is borrowed alone.
    unsafe { execute(isa, &arguments) }
}

/// Calls the kernel of an instruction set.
///
/// # Safety
/// As [`product`](super::product::product), with whole panels of the depth in a and b.
unsafe fn execute(isa: Bf16Isa, arguments: &ProductArguments) {
    // SAFETY: `Bf16Isa` proves that the CPU has the instruction set; the caller keeps the rest.
    unsafe {
        match isa.instruction_set() {
            #[cfg(test)]
            InstructionSet::PortableDot => portable::product_by_dots(arguments),
            #[cfg(test)]
            InstructionSet::PortableTiles => portable::product_by_tiles(arguments),
            #[cfg(test)]
            InstructionSet::PortableBfdot => portable::product_by_bfdot(arguments),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Dot => dot::product(arguments),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Tiles => tiles::product(arguments),
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Bfdot => neon::product(arguments),
        }
    }
}

/// `to` [panels of 32 columns][rows][16 words] = `from` [panels of 16 columns][rows][16], rounded;
/// past `columns` columns zero.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn rows(isa: Bf16Isa, rows: usize, columns: usize, from: View<'_>, to: &mut ViewMut<'_>) {
    from.1.check(from.0.len(), columns.div_ceil(PANEL), rows);
    to.1.check(to.0.len(), columns.div_ceil(PAIRED_PANEL), rows);
    dispatch_packing!(isa, rows, &packing(rows, columns, from, to));
}

/// `to` [panels][words][16] = `from` [panels][rows][16], rounded: a word is a column of two rows.
/// There are the padded words of `rows` rows, zero past them.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn pairs(isa: Bf16Isa, rows: usize, panels: usize, from: View<'_>, to: &mut ViewMut<'_>) {
    from.1.check(from.0.len(), panels, rows);
    to.1.check(to.0.len(), panels, padded_words(rows));
    dispatch_packing!(isa, pairs, &packing(rows, panels * PANEL, from, to));
}

/// `to` [panels of 32 rows][columns][16 words] = the transpose of `from` [panels of 16
/// columns][rows][16], rounded: a word is a column of two rows. There are whole panels of columns
/// and of rows, zero past `rows` rows.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn transposed_pairs(isa: Bf16Isa, rows: usize, columns: usize, from: View<'_>, to: &mut ViewMut<'_>) {
    from.1.check(from.0.len(), columns.div_ceil(PANEL), rows);
    to.1.check(to.0.len(), rows.div_ceil(PAIRED_PANEL), columns.next_multiple_of(PANEL));
    dispatch_packing!(isa, transposed_pairs, &packing(rows, columns, from, to));
}

fn packing(rows: usize, columns: usize, from: View<'_>, to: &mut ViewMut<'_>) -> Packing {
    let (from_start, to_start) = (from.1.start.min(from.0.len()), to.1.start.min(to.0.len()));
    Packing {
        rows,
        columns,
        from: from.0[from_start..].as_ptr(),
        from_stride: from.1.stride,
        from_row: PANEL,
        to: to.0[to_start..].as_mut_ptr(),
        to_stride: to.1.stride,
    }
}

#[cfg(test)]
mod tests;
