//! Sixteen numbers at once, and the functions of cells and of graph attention on them.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use super::PANEL;

/// A panel's row as products read it: sixteen words of 32 bits, each a single-precision number or,
/// see [`bf16`](super::bf16), two numbers in bf16. Sums are sixteen single-precision numbers.
///
/// # Safety
/// Every function may be called only on a CPU with the instruction set of the implementation,
/// and is meant to be inlined into a function compiled for it. Loads and stores reach sixteen
/// words from the pointer on, of any alignment.
pub(super) trait Words: Copy {
    /// Most rows of a tile of one panel whose sums fit in the registers beside their operands.
    const ROWS_ONE_PANEL: usize;
    /// The same for a tile of two panels.
    const ROWS_TWO_PANELS: usize;
    /// Panels of a tile of one row, two, three and four: few sums in flight hide no latency.
    const PANELS_OF_FEW: [usize; 4];
    /// Panels of a tile of more rows: one or two.
    const PANELS_OF_MANY: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Has the CPU bring what lies at `from` to its second-level cache, if it can. Any
    /// address will do.
    unsafe fn prefetch(from: *const f32);
    /// self · factor + term
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self;

    /// sums[r][q] += a[r · A] · b[q]: a column of a tile's rows, A numbers apart, times a row of
    /// its panels, `b_stride` apart.
    #[inline(always)]
    unsafe fn add_column<const R: usize, const P: usize, const A: usize>(
        sums: &mut [[Self; P]; R],
        a: *const f32,
        b: *const f32,
        b_stride: usize,
    ) {
        // SAFETY: the caller's tile has these rows and panels.
        unsafe {
            let mut row = [Self::splat(0.0); P];
            for q in 0..P {
                row[q] = Self::load(b.wrapping_add(q * b_stride));
            }
            for r in 0..R {
                let factor = Self::splat(*a.wrapping_add(r * A));
                for q in 0..P {
                    sums[r][q] = factor.mul_add(row[q], sums[r][q]);
                }
            }
        }
    }

    /// Four columns in turn of rows that lie in a panel of a, times four rows of b's panels.
    #[inline(always)]
    unsafe fn add_columns<const R: usize, const P: usize>(
        sums: &mut [[Self; P]; R],
        a: *const f32,
        b: *const f32,
        b_stride: usize,
    ) {
        // SAFETY: the contract is the same, for four columns.
        unsafe {
            Self::add_column::<R, P, PANEL>(sums, a, b, b_stride);
            Self::add_column::<R, P, PANEL>(sums, a.wrapping_add(1), b.wrapping_add(PANEL), b_stride);
            Self::add_column::<R, P, PANEL>(sums, a.wrapping_add(2), b.wrapping_add(2 * PANEL), b_stride);
            Self::add_column::<R, P, PANEL>(sums, a.wrapping_add(3), b.wrapping_add(3 * PANEL), b_stride);
        }
    }

    /// A column of which the numbers follow one another: J of a row of a, times a row of d's
    /// panels.
    #[inline(always)]
    unsafe fn add_row<const J: usize, const P: usize>(
        sums: &mut [[Self; P]; J],
        a: *const f32,
        d: *const f32,
        d_stride: usize,
    ) {
        // SAFETY: the contract is the same.
        unsafe { Self::add_column::<J, P, 1>(sums, a, d, d_stride) }
    }
}

/// Sixteen single-precision numbers: a panel's row. Each instruction set implements it in the file
/// named for it.
///
/// # Safety
/// As [`Words`].
pub(super) trait Lanes: Words {
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// term - self · factor
    unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self;
    /// The smaller one; `other` where either is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// The larger one; `other` where either is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// The nearest integer.
    unsafe fn round(self) -> Self;
    /// 2 to the power of an integer in -126..=127. Anything for other numbers.
    unsafe fn power_of_two(self) -> Self;
    unsafe fn abs(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    unsafe fn copysign(self, sign: Self) -> Self;
    /// `self`, or zero where `tested` < `limit`.
    unsafe fn zero_where_less(self, tested: Self, limit: Self) -> Self;
    /// `self` where `tested` > 0, `other` elsewhere, also where `tested` is NaN.
    unsafe fn where_positive(self, tested: Self, other: Self) -> Self;
    /// The sum of the sixteen: of halves, quarters and so on, added number by number.
    unsafe fn sum(self) -> f32;
}

/// Below it the exponential function, and with it the sigmoid, is smaller than the smallest normal
/// number.
const EXP_VANISHES: f32 = -87.336_54;

/// (e^r - 1, 2^n) with x = n · ln 2 + r and |r| ≤ ln 2 / 2, so that e^x = 2^n · (1 + (e^r - 1)),
/// for x in -87..=88.
///
/// The constants are those of Cephes' expf (Moshier, 1989): ln 2 in two parts, of which the first
/// has few enough bits that its product with n is exact, and a polynomial for (e^r - 1 - r) / r².
#[inline(always)]
unsafe fn exp_parts<V: Lanes>(x: V) -> (V, V) {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe {
        let n = x.mul(V::splat(std::f32::consts::LOG2_E)).round();
        let r = n.mul_sub_from(V::splat(355.0 / 512.0), x);
        let r = n.mul_sub_from(V::splat(-2.121_944_4e-4), r);
        let mut series = V::splat(1.987_569_1e-4);
        series = series.mul_add(r, V::splat(1.398_199_9e-3));
        series = series.mul_add(r, V::splat(0.008_333_452));
        series = series.mul_add(r, V::splat(4.166_579_6e-2));
        series = series.mul_add(r, V::splat(1.666_666_5e-1));
        series = series.mul_add(r, V::splat(0.5));
        (series.mul_add(r.mul(r), r), n.power_of_two())
    }
}

/// 1 / (1 + e^-x), within 4 units in the last place also where it is small; zero where it would be
/// subnormal.
#[inline(always)]
pub(super) unsafe fn sigmoid<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe {
        let one = V::splat(1.0);
        let minus_x = V::splat(88.0).min(V::splat(-87.0).max(V::splat(0.0).sub(x)));
        let (e_minus_1, power) = exp_parts(minus_x);
        let e = power.mul_add(e_minus_1, power);
        one.div(one.add(e)).zero_where_less(x, V::splat(EXP_VANISHES))
    }
}

/// tanh x = (e^2x - 1) / (e^2x + 1), within 4 units in the last place also where it is small.
///
/// e^2|x| - 1 is formed as 2^n · (e^r - 1) + (2^n - 1), which cancels nothing. Above 2|x| = 20,
/// tanh rounds to 1.
#[inline(always)]
pub(super) unsafe fn tanh<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe {
        let twice = V::splat(20.0).min(x.abs().mul(V::splat(2.0)));
        let (e_minus_1, power) = exp_parts(twice);
        let t = power.mul_add(e_minus_1, power.sub(V::splat(1.0)));
        t.div(t.add(V::splat(2.0))).copysign(x)
    }
}

/// e^x for x ≤ 0, within 2 units in the last place; zero where it would be subnormal, NaN for NaN.
#[inline(always)]
pub(super) unsafe fn exp<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe {
        let (e_minus_1, power) = exp_parts(V::splat(-87.5).max(x));
        power.mul_add(e_minus_1, power).zero_where_less(x, V::splat(EXP_VANISHES))
    }
}

/// x, or e^x - 1 where x is negative, within 4 units in the last place also where it is small.
///
/// e^x - 1 is formed as 2^n · (e^r - 1) + (2^n - 1), which cancels nothing. Below -20 it rounds to
/// -1.
#[inline(always)]
pub(super) unsafe fn elu<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe {
        let (e_minus_1, power) = exp_parts(V::splat(0.0).min(V::splat(-20.0).max(x)));
        x.where_positive(x, power.mul_add(e_minus_1, power.sub(V::splat(1.0))))
    }
}

/// LeakyReLU: x, or `slope` · x where x is not positive.
#[inline(always)]
pub(super) unsafe fn leaky<V: Lanes>(x: V, slope: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe { x.where_positive(x, x.mul(slope)) }
}
