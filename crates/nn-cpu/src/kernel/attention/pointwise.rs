//! Functions of one number.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use crate::kernel::PANEL;
use crate::kernel::lanes::{self, Lanes};

/// # Safety
/// The CPU has the instruction set of V.
#[inline(always)]
pub(super) unsafe fn exp<V: Lanes>(values: &mut [f32]) {
    for row in values.chunks_exact_mut(PANEL) {
        // SAFETY: a row has sixteen numbers.
        unsafe { lanes::exp(V::load(row.as_ptr())).store(row.as_mut_ptr()) }
    }
}

/// # Safety
/// The CPU has the instruction set of V.
#[inline(always)]
pub(super) unsafe fn elu<V: Lanes>(values: &mut [f32]) {
    for row in values.chunks_exact_mut(PANEL) {
        // SAFETY: a row has sixteen numbers.
        unsafe { lanes::elu(V::load(row.as_ptr())).store(row.as_mut_ptr()) }
    }
}
