//! Products by AVX512_BF16 (`vdpbf16ps`): a row of sixteen words is one register. The loop over a
//! block is that of `kernel/product.rs`.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use crate::kernel::ProductArguments;
use crate::kernel::avx512::Avx512;
use crate::kernel::lanes::Words;

#[derive(Clone, Copy)]
struct Dots(Avx512);

impl Words for Dots {
    const ROWS_ONE_PANEL: usize = Avx512::ROWS_ONE_PANEL;
    const ROWS_TWO_PANELS: usize = Avx512::ROWS_TWO_PANELS;
    const PANELS_OF_FEW: [usize; 4] = Avx512::PANELS_OF_FEW;
    const PANELS_OF_MANY: usize = Avx512::PANELS_OF_MANY;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has AVX-512F. As an integer, so that no word is taken for a NaN.
        Dots(Avx512(unsafe { _mm512_castsi512_ps(_mm512_set1_epi32(x.to_bits() as i32)) }))
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the contract is the same.
        Dots(unsafe { Avx512::load(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the contract is the same.
        unsafe { self.0.store(to) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        // SAFETY: the contract is the same.
        unsafe { Avx512::prefetch(from) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the caller has AVX512_BF16; both types are 64 bytes of any content.
        unsafe {
            let [a, b] = [self.0.0, factor.0.0].map(|x| std::mem::transmute::<__m512, __m512bh>(x));
            Dots(Avx512(_mm512_dpbf16_ps(term.0.0, a, b)))
        }
    }
}

/// # Safety
/// As [`product`](crate::kernel::product::product).
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn product(p: &ProductArguments) {
    // SAFETY: the caller keeps this function's contract, which is the kernel's.
    unsafe { crate::kernel::product::product::<Dots>(p) }
}
