//! Kernels for any CPU: arrays of sixteen, which compilers turn into whatever vectors there
//! are.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::lanes::{ExactLanes, Lanes};

#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 16]);

impl Lanes for Portable {
    const ROWS: usize = 2;
    const PANELS: usize = 1;

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
        // SAFETY: the caller's pointer has room for sixteen numbers, and an array is written at any
        // alignment.
        unsafe { to.cast::<[f32; 16]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        // Not `f32::mul_add`, which is a call of a function where the CPU cannot fuse.
        Portable(std::array::from_fn(|i| self.0[i] * factor.0[i] + term.0[i]))
    }

    #[inline(always)]
    unsafe fn larger(self, other: Self) -> Self {
        Portable(std::array::from_fn(|i| if self.0[i] > other.0[i] { self.0[i] } else { other.0[i] }))
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> u16 {
        (0..16).fold(0, |mask, i| mask | u16::from(self.0[i] >= limit.0[i]) << i)
    }

    #[inline(always)]
    unsafe fn counting(self, x: Self, limit: Self) -> Self {
        Portable(std::array::from_fn(|i| self.0[i] + if x.0[i] >= limit.0[i] { 1.0 } else { 0.0 }))
    }

    #[inline(always)]
    unsafe fn where_at_least(self, counts: Self, least: Self) -> Self {
        Portable(std::array::from_fn(|i| if counts.0[i] >= least.0[i] { self.0[i] } else { f32::NEG_INFINITY }))
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        self.0.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

#[derive(Clone, Copy)]
pub(super) struct ExactPortable([f64; 8]);

impl ExactLanes for ExactPortable {
    #[inline(always)]
    unsafe fn zero() -> Self {
        ExactPortable([0.0; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller's pointer reaches eight numbers, and an array is read at any
        // alignment.
        ExactPortable(unsafe { from.cast::<[f64; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        ExactPortable(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        ExactPortable(std::array::from_fn(|i| self.0[i] - other.0[i]))
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        ExactPortable(std::array::from_fn(|i| self.0[i] * other.0[i]))
    }

    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        let [x0, x1, x2, x3, x4, x5, x6, x7] = self.0;
        ((x0 + x4) + (x2 + x6)) + ((x1 + x5) + (x3 + x7))
    }
}

super::entry_points!(Portable, ExactPortable);
