//! Products of rows in two bytes a number with weights in one.
//!
//! ```text
//! for panel p of c, row r:    high = offsets[p] + Σ_k x[r][high][k] · w[p][k]
//!                             low = Σ_k x[r][low][k] · w[p][k]
//!                             c[p][r] = start + (128 · high + low) · (scale[r] · scales[p])
//!                             sixteen outputs at once
//! ```
//!
//! Departures: four or eight inputs at a time, as the instructions for bytes take them; and a tile
//! of several rows and panels is summed in registers, of one row four panels, so that no sum waits
//! for itself.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use super::{BASE, GROUP, Int8ProductArguments, PANELS};
use crate::kernel::PANEL;
use crate::kernel::lanes::{Lanes, Words};

/// Sums of the high and of the low bytes of a row, for sixteen outputs: [`HighLow`] where an
/// instruction multiplies one byte of a number, else a type of the file that is named for the
/// instruction set.
///
/// # Safety
/// As [`Dots`].
pub(super) trait RowSums: Copy {
    /// The sums as numbers.
    type Numbers: Lanes;
    /// The bytes of [`RowSums::GROUP`] inputs of a row.
    type Bytes: Copy;
    /// The same inputs' weights for each output.
    type Weights: Copy;
    /// Inputs whose products are added at once.
    const GROUP: usize;
    /// Most rows of a tile of [`RowSums::TWO`] panels whose sums fit in the registers beside their
    /// operands.
    const ROWS: usize;
    /// True if such a tile is of two panels, else of one.
    const TWO: bool;
    /// Panels of a tile of one row; they divide [`PANELS`].
    const PANELS_OF_ONE: usize;

    /// Sixteen sums of high bytes to go on from, and zeros for low ones.
    unsafe fn load(from: *const i32) -> Self;
    /// Bytes below 128.
    unsafe fn bytes(high: *const u8, low: *const u8) -> Self::Bytes;
    /// Weights, sixteen times as many.
    unsafe fn weights(from: *const i8) -> Self::Weights;
    /// self + Σ of the products of each output.
    unsafe fn dot(self, x: Self::Bytes, weights: Self::Weights) -> Self;
    /// 128 · high + low, each the nearest number.
    unsafe fn numbers(self) -> Self::Numbers;
}

/// Sixteen sums of products of bytes. Each instruction set implements it in the file named for it.
///
/// # Safety
/// Every function may be called only on a CPU with the instruction set of the implementation,
/// and is meant to be inlined into a function compiled for it. Loads reach what they are of from
/// the pointer on, at any alignment.
pub(super) trait Dots: Copy {
    /// The sums as numbers.
    type Numbers: Lanes;
    /// Four inputs' numbers of a row, for each output.
    type Four: Copy;
    /// Four inputs' weights for each output.
    type Weights: Copy;
    /// As [`RowSums::ROWS`].
    const ROWS: usize;
    /// As [`RowSums::TWO`].
    const TWO: bool;
    /// As [`RowSums::PANELS_OF_ONE`].
    const PANELS_OF_ONE: usize = PANELS;

    /// Sixteen sums to go on from.
    unsafe fn load(from: *const i32) -> Self;
    /// Four bytes below 128.
    unsafe fn four(from: *const u8) -> Self::Four;
    /// Sixty-four weights.
    unsafe fn weights(from: *const i8) -> Self::Weights;
    /// self + Σ of the four products of each output.
    unsafe fn dot(self, x: Self::Four, weights: Self::Weights) -> Self;
    /// The nearest numbers.
    unsafe fn numbers(self) -> Self::Numbers;
}

/// Initial sums of low bytes.
static NOTHING: [i32; PANEL] = [0; PANEL];

/// Sums of high and of low bytes.
#[derive(Clone, Copy)]
pub(super) struct HighLow<D>(D, D);

impl<D: Dots> RowSums for HighLow<D> {
    type Numbers = D::Numbers;
    type Bytes = [D::Four; 2];
    type Weights = D::Weights;
    const GROUP: usize = GROUP;
    const ROWS: usize = D::ROWS;
    const TWO: bool = D::TWO;
    const PANELS_OF_ONE: usize = D::PANELS_OF_ONE;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the contract is the same.
        unsafe { HighLow(D::load(from), D::load(NOTHING.as_ptr())) }
    }

    #[inline(always)]
    unsafe fn bytes(high: *const u8, low: *const u8) -> [D::Four; 2] {
        // SAFETY: the contract is the same.
        unsafe { [D::four(high), D::four(low)] }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> D::Weights {
        // SAFETY: the contract is the same.
        unsafe { D::weights(from) }
    }

    #[inline(always)]
    unsafe fn dot(self, numbers: [D::Four; 2], weights: D::Weights) -> Self {
        let [high, low] = numbers;
        // SAFETY: the contract is the same.
        unsafe { HighLow(self.0.dot(high, weights), self.1.dot(low, weights)) }
    }

    #[inline(always)]
    unsafe fn numbers(self) -> D::Numbers {
        // SAFETY: the contract is the same.
        unsafe { self.0.numbers().mul(D::Numbers::splat(BASE)).add(self.1.numbers()) }
    }
}

/// # Safety
/// The pointers of `p` reach all that its sizes say, see [`Int8ProductArguments`]; the CPU has the
/// instruction set of S.
#[inline(always)]
pub(super) unsafe fn product<S: RowSums>(p: &Int8ProductArguments) {
    if p.rows == 1 {
        for group in p.order.over(p.panels / S::PANELS_OF_ONE) {
            let panel = group * S::PANELS_OF_ONE;
            // SAFETY: panels are a multiple of four, and the row exists.
            unsafe {
                match S::PANELS_OF_ONE {
                    2 => tile::<S, 1, 2>(p, 0, panel),
                    _ => tile::<S, 1, PANELS>(p, 0, panel),
                }
            }
        }
        return;
    }
    let width = if S::TWO { 2 } else { 1 };
    for group in p.order.over(p.panels / width) {
        let panel = group * width;
        let mut row = 0;
        while row < p.rows {
            let rows = S::ROWS.min(p.rows - row);
            // SAFETY: `panel` (and the one after it, for two) and rows row..row + rows lie inside
            // the product.
            unsafe {
                match (S::TWO, rows) {
                    (true, 1) => tile::<S, 1, 2>(p, row, panel),
                    (true, 2) => tile::<S, 2, 2>(p, row, panel),
                    (true, 3) => tile::<S, 3, 2>(p, row, panel),
                    (true, 4) => tile::<S, 4, 2>(p, row, panel),
                    (true, 5) => tile::<S, 5, 2>(p, row, panel),
                    (true, _) => tile::<S, 6, 2>(p, row, panel),
                    (false, 1) => tile::<S, 1, 1>(p, row, panel),
                    (false, 2) => tile::<S, 2, 1>(p, row, panel),
                    (false, _) => tile::<S, 3, 1>(p, row, panel),
                }
            }
            row += rows;
        }
    }
}

/// R rows of P panels from `row` and `panel` on.
#[inline(always)]
unsafe fn tile<S: RowSums, const R: usize, const P: usize>(p: &Int8ProductArguments, row: usize, panel: usize) {
    // SAFETY: the rows and panels lie inside the product, whose pointers reach them by its
    // contract: the bytes of a row are 2 · padded, the weights of a panel 16 · padded, and `padded`
    // is a multiple of the inputs of a group.
    unsafe {
        let mut sums = [[S::load(p.offsets.wrapping_add(panel * PANEL)); P]; R];
        for q in 1..P {
            let offset = S::load(p.offsets.wrapping_add((panel + q) * PANEL));
            for r in 0..R {
                sums[r][q] = offset;
            }
        }
        let x = p.x.wrapping_add(row * 2 * p.padded);
        let weights = p.weights.wrapping_add(panel * p.padded * PANEL);
        for k in (0..p.padded).step_by(S::GROUP) {
            let mut own = [S::weights(weights.wrapping_add(k * PANEL)); P];
            for q in 1..P {
                own[q] = S::weights(weights.wrapping_add(q * p.padded * PANEL + k * PANEL));
            }
            for r in 0..R {
                let x = x.wrapping_add(r * 2 * p.padded + k);
                let x = S::bytes(x, x.wrapping_add(p.padded));
                for q in 0..P {
                    sums[r][q] = sums[r][q].dot(x, own[q]);
                }
            }
        }
        for r in 0..R {
            let row_scale = S::Numbers::splat(*p.x_scales.wrapping_add(row + r));
            for q in 0..P {
                let c = p.c.wrapping_add((panel + q) * p.c_stride + (row + r) * PANEL);
                let start = match p.start.is_null() {
                    true => c.cast_const(),
                    false => p.start.wrapping_add((panel + q) * p.start_stride + (row + r) * p.start_row),
                };
                let scale = row_scale.mul(S::Numbers::load(p.scales.wrapping_add((panel + q) * PANEL)));
                sums[r][q].numbers().mul(scale).add(S::Numbers::load(start)).store(c);
            }
        }
    }
}
