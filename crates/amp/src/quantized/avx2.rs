//! Sums of products of bytes in AVX2: both sides are widened to 16 bits, of which pairs of products
//! are added exactly.

use std::arch::x86_64::*;

use super::Scaled;
use super::kernel::{GROUP, PANEL, PackedWeights};

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::quantized) struct Avx2(());

/// Registers for the sums of a row: each holds two halves of the sums of four outputs.
const QUARTERS: usize = 4;

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Avx2(()))
    }

    pub(super) fn multiply(self, packed: &PackedWeights, activations: &[u8], out: &mut Scaled<'_>) {
        // SAFETY: the CPU has AVX2.
        unsafe { multiply(packed, activations, out) }
    }
}

#[target_feature(enable = "avx2")]
fn multiply(packed: &PackedWeights, activations: &[u8], out: &mut Scaled<'_>) {
    let padded = packed.padded_inputs();
    for panel in 0..packed.bias_sums.len() {
        let mut rows = activations.chunks_exact(2 * padded);
        for (pair, x) in rows.by_ref().enumerate() {
            let (first, second) = x.split_at(padded);
            let sums = tile(packed, panel, [first, second]);
            out.take(2 * pair, panel, &sums[0]);
            out.take(2 * pair + 1, panel, &sums[1]);
        }
        if !rows.remainder().is_empty() {
            let [sums] = tile(packed, panel, [rows.remainder()]);
            out.take(activations.len() / padded - 1, panel, &sums);
        }
    }
}

/// The sums of `R` rows with a panel of outputs.
#[target_feature(enable = "avx2")]
fn tile<const R: usize>(packed: &PackedWeights, panel: usize, rows: [&[u8]; R]) -> [[i32; PANEL]; R] {
    let rows = rows.map(|row| row.as_chunks::<GROUP>().0);
    let mut sums = [[_mm256_setzero_si256(); QUARTERS]; R];
    for (group, weights) in packed.panel(panel).iter().enumerate() {
        let x = rows.map(|row| {
            let four = _mm_cvtsi32_si128(i32::from_le_bytes(row[group]));
            _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(four))
        });
        for quarter in 0..QUARTERS {
            let weights = &weights[16 * quarter..][..16];
            // SAFETY: the slice has the sixteen bytes that are loaded, of any alignment.
            let weights = _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(weights.as_ptr().cast()) });
            for (sums, &x) in sums.iter_mut().zip(&x) {
                sums[quarter] = _mm256_add_epi32(sums[quarter], _mm256_madd_epi16(x, weights));
            }
        }
    }
    sums.map(|sums| halves_added(sums, &packed.bias_sums[panel]))
}

/// An output's two halves of its sum lie side by side.
#[target_feature(enable = "avx2")]
fn halves_added(sums: [__m256i; QUARTERS], bias_sums: &[i32; PANEL]) -> [i32; PANEL] {
    let mut halves = [[0; 2]; PANEL];
    for (halves, sums) in halves.as_chunks_mut::<QUARTERS>().0.iter_mut().zip(sums) {
        // SAFETY: four pairs of 32 bits are what is stored, at any alignment.
        unsafe { _mm256_storeu_si256(halves.as_mut_ptr().cast(), sums) }
    }
    std::array::from_fn(|n| halves[n][0] + halves[n][1] - bias_sums[n])
}
