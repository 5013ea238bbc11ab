//! Sums of products of bytes on any CPU: arrays of sixteen, which compilers turn into
//! whatever vectors there are.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::GROUP;
use super::dots::{Dots, HighLow};
use crate::kernel::PANEL;
use crate::kernel::portable::Portable;

#[derive(Clone, Copy)]
pub(super) struct PortableSums([i32; PANEL]);

impl Dots for PortableSums {
    type Numbers = Portable;
    type Four = [u8; GROUP];
    type Weights = [[i8; GROUP]; PANEL];
    const ROWS: usize = 3;
    const TWO: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller's pointer reaches sixteen numbers, and an array is read at any
        // alignment.
        PortableSums(unsafe { from.cast::<[i32; PANEL]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn four(from: *const u8) -> [u8; GROUP] {
        // SAFETY: the caller's pointer reaches four bytes.
        unsafe { from.cast::<[u8; GROUP]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [[i8; GROUP]; PANEL] {
        // SAFETY: the caller's pointer reaches sixty-four bytes.
        unsafe { from.cast::<[[i8; GROUP]; PANEL]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn dot(self, x: [u8; GROUP], weights: [[i8; GROUP]; PANEL]) -> Self {
        let product = |n: usize, k: usize| i32::from(x[k]) * i32::from(weights[n][k]);
        PortableSums(std::array::from_fn(|n| self.0[n] + (0..GROUP).map(|k| product(n, k)).sum::<i32>()))
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Portable {
        Portable(self.0.map(|sum| sum as f32))
    }
}

super::byte_entry_points!(HighLow<PortableSums>);
