//! Kernels for any CPU: arrays of sixteen, which compilers turn into whatever vectors there
//! are.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::lanes::{Lanes, Words};

#[derive(Clone, Copy)]
pub(super) struct Portable(pub(super) [f32; 16]);

impl Portable {
    #[inline(always)]
    fn with(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Words for Portable {
    const ROWS_ONE_PANEL: usize = 3;
    const ROWS_TWO_PANELS: usize = 1;
    const PANELS_OF_FEW: [usize; 4] = [2, 1, 1, 1];
    const PANELS_OF_MANY: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Portable([x; 16])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's pointer reaches sixteen numbers, and an array is read at any
        // alignment.
        Portable(unsafe { from.cast::<[f32; 16]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[f32; 16]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}

    // Two roundings: a fused product is a library call on CPUs that lack the instruction.
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        self.with(factor, |a, b| a * b).with(term, |a, b| a + b)
    }
}

impl Lanes for Portable {
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.with(other, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self {
        self.with(factor, |a, b| a * b).with(term, |a, b| b - a)
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.with(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.with(other, |a, b| if a > b { a } else { b })
    }

    // Adding and taking away 1.5 · 2^23 leaves no bits behind the point, for numbers far smaller
    // than that.
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Portable(self.0.map(|x| (x + 12_582_912.0) - 12_582_912.0))
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        Portable(self.0.map(|n| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23)))
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Portable(self.0.map(f32::abs))
    }

    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        self.with(sign, f32::copysign)
    }

    #[inline(always)]
    unsafe fn zero_where_less(self, tested: Self, limit: Self) -> Self {
        Portable(std::array::from_fn(|i| if tested.0[i] < limit.0[i] { 0.0 } else { self.0[i] }))
    }

    #[inline(always)]
    unsafe fn where_positive(self, tested: Self, other: Self) -> Self {
        Portable(std::array::from_fn(|i| if tested.0[i] > 0.0 { self.0[i] } else { other.0[i] }))
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let eight: [f32; 8] = std::array::from_fn(|i| self.0[i] + self.0[i + 8]);
        let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
}

super::entry_points!(Portable);
