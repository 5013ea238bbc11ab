//! Sums of products of bytes by the instruction made for them, AVX-512 VNNI's `vpdpbusd`: 64
//! products are added to sixteen sums.

use std::arch::x86_64::*;

use super::Scaled;
use super::kernel::{GROUP, PANEL, PackedWeights};

/// Proof that the CPU has AVX-512F and AVX-512 VNNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::quantized) struct Vnni(());

impl Vnni {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")).then_some(Vnni(()))
    }

    pub(super) fn multiply(self, packed: &PackedWeights, activations: &[u8], out: &mut Scaled<'_>) {
        // SAFETY: the CPU has what the function is compiled for.
        unsafe { multiply(packed, activations, out) }
    }
}

/// Sums in flight: an instruction takes five cycles, and two begin in each.
const SUMS: usize = 16;

/// Eight rows with two panels where there are as many rows, else one row with up to eight panels: a
/// sum alone would wait for itself.
#[target_feature(enable = "avx512f,avx512vnni")]
fn multiply(packed: &PackedWeights, activations: &[u8], out: &mut Scaled<'_>) {
    const ROWS: usize = 8;
    let padded = packed.padded_inputs();
    let panels = packed.bias_sums.len();
    let tiles = activations.chunks_exact(ROWS * padded);
    let first_rest = activations.len() / padded / ROWS * ROWS;
    let rest = tiles.remainder();
    for (tile, x) in tiles.enumerate() {
        let rows: [&[u8]; ROWS] = std::array::from_fn(|row| &x[row * padded..][..padded]);
        let mut panel = 0;
        while panel < panels {
            panel += match panels - panel {
                1 => self::tile::<ROWS, 1>(packed, rows, tile * ROWS, panel, out),
                _ => self::tile::<ROWS, { SUMS / ROWS }>(packed, rows, tile * ROWS, panel, out),
            };
        }
    }
    for (row, x) in rest.chunks_exact(padded).enumerate() {
        let mut panel = 0;
        while panel < panels {
            let place = (first_rest + row, panel);
            panel += match panels - panel {
                8.. => tile::<1, 8>(packed, [x], place.0, place.1, out),
                4.. => tile::<1, 4>(packed, [x], place.0, place.1, out),
                _ => tile::<1, 1>(packed, [x], place.0, place.1, out),
            };
        }
    }
}

/// The sums of `R` rows with `P` panels of outputs, from the row and the panel of `place` on. Gives
/// `P`.
#[target_feature(enable = "avx512f,avx512vnni")]
fn tile<const R: usize, const P: usize>(
    packed: &PackedWeights,
    rows: [&[u8]; R],
    row: usize,
    panel: usize,
    out: &mut Scaled<'_>,
) -> usize {
    let rows = rows.map(|row| row.as_chunks::<GROUP>().0);
    let panels: [_; P] = std::array::from_fn(|p| packed.panel(panel + p));
    let mut sums = [[_mm512_setzero_si512(); P]; R];
    for group in 0..packed.groups() {
        // SAFETY: a group of a panel has the 64 bytes that are loaded, of any alignment.
        let weights = panels.map(|panel| unsafe { _mm512_loadu_si512(panel[group].as_ptr().cast()) });
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = _mm512_set1_epi32(i32::from_le_bytes(row[group]));
            for (sum, &weights) in sums.iter_mut().zip(&weights) {
                *sum = _mm512_dpbusd_epi32(*sum, x, weights);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        for (p, sum) in sums.into_iter().enumerate() {
            let mut numbers = [0; PANEL];
            // SAFETY: sixteen numbers of 32 bits are what is stored, at any alignment.
            unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().cast(), sum) };
            let bias_sums = &packed.bias_sums[panel + p];
            numbers.iter_mut().zip(bias_sums).for_each(|(number, bias)| *number -= bias);
            out.take(row + r, panel + p, &numbers);
        }
    }
    P
}
