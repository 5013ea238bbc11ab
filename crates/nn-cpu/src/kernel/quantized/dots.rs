//! Products of rows in two bytes a number with weights in one.
//!
//! ```text
//! for panel p of c, row r:    high = offsets[p] + Σ_k x[r][high][k] · w[p][k]
//!                             low = Σ_k x[r][low][k] · w[p][k]
//!                             c[p][r] = start + (128 · high + low) · (scale[r] · scales[p])
//!                             sixteen outputs at once
//! ```
//!
//! Departures: four inputs at a time, as the instructions for bytes take them; and a tile of
//! several rows and panels is summed in registers, of one row four panels, so that no sum waits for
//! itself.

#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use super::{BASE, GROUP, Int8ProductArguments, PANELS};
use crate::kernel::PANEL;
use crate::kernel::lanes::{Lanes, Words};

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
    /// Most rows of a tile of [`Dots::TWO`] panels whose sums fit in the registers beside their
    /// operands.
    const ROWS: usize;
    /// True if such a tile is of two panels, else of one.
    const TWO: bool;
    /// Panels of a tile of one row; they divide [`PANELS`].
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

/// # Safety
/// The pointers of `p` reach all that its sizes say, see [`Int8ProductArguments`]; the CPU has the
/// instruction set of D.
#[inline(always)]
pub(super) unsafe fn product<D: Dots>(p: &Int8ProductArguments) {
    if p.rows == 1 {
        for group in p.order.over(p.panels / D::PANELS_OF_ONE) {
            let panel = group * D::PANELS_OF_ONE;
            // SAFETY: panels are a multiple of four, and the row exists.
            unsafe {
                match D::PANELS_OF_ONE {
                    2 => tile::<D, 1, 2>(p, 0, panel),
                    _ => tile::<D, 1, PANELS>(p, 0, panel),
                }
            }
        }
        return;
    }
    let width = if D::TWO { 2 } else { 1 };
    for group in p.order.over(p.panels / width) {
        let panel = group * width;
        let mut row = 0;
        while row < p.rows {
            let rows = D::ROWS.min(p.rows - row);
            // SAFETY: `panel` (and the one after it, for two) and rows row..row + rows lie inside
            // the product.
            unsafe {
                match (D::TWO, rows) {
                    (true, 1) => tile::<D, 1, 2>(p, row, panel),
                    (true, 2) => tile::<D, 2, 2>(p, row, panel),
                    (true, 3) => tile::<D, 3, 2>(p, row, panel),
                    (true, 4) => tile::<D, 4, 2>(p, row, panel),
                    (true, 5) => tile::<D, 5, 2>(p, row, panel),
                    (true, _) => tile::<D, 6, 2>(p, row, panel),
                    (false, 1) => tile::<D, 1, 1>(p, row, panel),
                    (false, 2) => tile::<D, 2, 1>(p, row, panel),
                    (false, _) => tile::<D, 3, 1>(p, row, panel),
                }
            }
            row += rows;
        }
    }
}

/// R rows of P panels from `row` and `panel` on.
#[inline(always)]
unsafe fn tile<D: Dots, const R: usize, const P: usize>(p: &Int8ProductArguments, row: usize, panel: usize) {
    // SAFETY: the rows and panels lie inside the product, whose pointers reach them by its
    // contract: the bytes of a row are 2 · padded, the weights of a panel 16 · padded, and `padded`
    // is a multiple of four.
    unsafe {
        let nothing = D::load(NOTHING.as_ptr());
        let (mut high, mut low) = ([[nothing; P]; R], [[nothing; P]; R]);
        for q in 0..P {
            let offset = D::load(p.offsets.wrapping_add((panel + q) * PANEL));
            for r in 0..R {
                high[r][q] = offset;
            }
        }
        let x = p.x.wrapping_add(row * 2 * p.padded);
        let weights = p.weights.wrapping_add(panel * p.padded * PANEL);
        for k in (0..p.padded).step_by(GROUP) {
            let mut own = [D::weights(weights.wrapping_add(k * PANEL)); P];
            for q in 1..P {
                own[q] = D::weights(weights.wrapping_add(q * p.padded * PANEL + k * PANEL));
            }
            for r in 0..R {
                let x = x.wrapping_add(r * 2 * p.padded + k);
                let (high_x, low_x) = (D::four(x), D::four(x.wrapping_add(p.padded)));
                for q in 0..P {
                    high[r][q] = high[r][q].dot(high_x, own[q]);
                    low[r][q] = low[r][q].dot(low_x, own[q]);
                }
            }
        }
        for r in 0..R {
            let row_scale = D::Numbers::splat(*p.x_scales.wrapping_add(row + r));
            for q in 0..P {
                let c = p.c.wrapping_add((panel + q) * p.c_stride + (row + r) * PANEL);
                let start = match p.start.is_null() {
                    true => c.cast_const(),
                    false => p.start.wrapping_add((panel + q) * p.start_stride + (row + r) * p.start_row),
                };
                let scale = row_scale.mul(D::Numbers::load(p.scales.wrapping_add((panel + q) * PANEL)));
                let sum = high[r][q].numbers().mul(D::Numbers::splat(BASE)).add(low[r][q].numbers());
                sum.mul(scale).add(D::Numbers::load(start)).store(c);
            }
        }
    }
}
