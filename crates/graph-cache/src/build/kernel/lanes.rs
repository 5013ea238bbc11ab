//! Sixteen numbers at once, or eight in double precision.

#![allow(unsafe_code, reason = "instructions of the CPU")]

/// Sixteen single-precision numbers. Each instruction set implements it in the file named for it.
///
/// # Safety
/// Every function may be called only on a CPU with the instruction set of the implementation,
/// and is meant to be inlined into a function compiled for it. Loads and stores reach sixteen
/// numbers from the pointer on, of any alignment.
pub(super) trait Lanes: Copy {
    /// Rows of a tile whose sums stay in registers; divides sixteen.
    const ROWS: usize;
    /// Panels of such a tile: one or two.
    const PANELS: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// self · factor + term, rounded once or twice.
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self;
    /// The larger of each two numbers; either, where one is NaN.
    unsafe fn larger(self, other: Self) -> Self;
    /// A bit for each number that is `limit` or more; none for NaN.
    unsafe fn at_least(self, limit: Self) -> u16;
    /// self + 1 where `x` is `limit` or more, self where it is less or NaN.
    unsafe fn counting(self, x: Self, limit: Self) -> Self;
    /// self where `counts` is `least` or more, elsewhere -∞.
    unsafe fn where_at_least(self, counts: Self, least: Self) -> Self;
    /// The largest of the sixteen. None may be NaN.
    unsafe fn largest(self) -> f32;

    /// Writes `first` + the places of the bits of `mask`, ascending, from `to` on. Numbers after
    /// these are undefined.
    ///
    /// # Safety
    /// There is room for sixteen numbers.
    #[inline(always)]
    unsafe fn write_places(mut mask: u16, first: u32, mut to: *mut u32) {
        while mask != 0 {
            // SAFETY: one number for each of at most sixteen bits, for which the caller has room.
            unsafe {
                to.write(first + mask.trailing_zeros());
                to = to.add(1);
            }
            mask &= mask - 1;
        }
    }
}

/// Eight double-precision numbers, whose operations round like those of `f64`: no multiplication is
/// fused with an addition.
///
/// # Safety
/// As for [`Lanes`]; loads reach eight numbers.
pub(super) trait ExactLanes: Copy {
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const f64) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn minus(self, other: Self) -> Self;
    unsafe fn times(self, other: Self) -> Self;
    /// ((x0 + x4) + (x2 + x6)) + ((x1 + x5) + (x3 + x7))
    unsafe fn sum(self) -> f64;
}
