#![forbid(unsafe_code)]

//! Products with weights in eight bits on the CPU.

use super::{DeviceInt8Matrix, DeviceInt8Rows, padded};
use crate::ops::operand::{Operand, TensorSlice};

/// Magnitude of the largest quantised number of a row: 64 · 128 - 1.
const GREATEST: f32 = 8191.0;

impl DeviceInt8Matrix {
    /// Row `n` and its scale.
    pub(in crate::ops) fn row(&self, n: usize) -> (&[i8], f32) {
        let padded = padded(self.depth);
        (&self.bytes.as_slice()[n * padded..][..padded], self.scales.as_slice()[n])
    }
}

/// Takes the rows of `x`, for which there is room.
pub(super) fn quantize<T: Operand>(to: &mut DeviceInt8Rows, x: TensorSlice<'_, T>) {
    let DeviceInt8Rows { rows, depth, bytes, scales } = to;
    let (rows, depth) = (*rows, *depth);
    let to = bytes.as_mut_slice().chunks_exact_mut(2 * padded(depth)).zip(scales.as_mut_slice());
    for (row, (bytes, scale)) in (0..rows).zip(to) {
        let row_values: Vec<f32> = x.elements()[row * depth..][..depth].iter().map(|x| x.widen()).collect();
        *scale = quantize_row(&row_values, bytes);
    }
}

pub(super) fn multiply(
    x: &DeviceInt8Rows,
    weights: &DeviceInt8Matrix,
    start: Option<TensorSlice<'_, f32>>,
    out: &mut [f32],
) {
    let [outputs, depth] = weights.shape();
    for (r, out) in out.chunks_exact_mut(outputs).take(x.rows).enumerate() {
        let padded = padded(depth);
        let (row, row_scale) = (&x.bytes.as_slice()[r * 2 * padded..][..2 * padded], x.scales.as_slice()[r]);
        for (n, out) in out.iter_mut().enumerate() {
            let (bytes, scale) = weights.row(n);
            *out = product_of(row, row_scale, bytes, scale) + start.map_or(0.0, |start| start.elements()[n]);
        }
    }
}

/// Quantises a row to `[2, padded]`; its scale.
pub(in crate::ops) fn quantize_row(x: &[f32], to: &mut [i8]) -> f32 {
    /// Added to a number below 2²² and taken away, it leaves the nearest integer.
    const ROUNDING: f32 = 12_582_912.0;
    // As integers, magnitudes have the order of the numbers, and NaN stands above infinity.
    let greatest = f32::from_bits(x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0));
    let inverse = GREATEST / greatest;
    let (factor, scale) = match (greatest.is_finite(), inverse.is_finite()) {
        (true, true) => (inverse, greatest / GREATEST),
        (true, false) => (0.0, 0.0),
        (false, _) => (0.0, f32::NAN),
    };
    to.fill(0);
    let (high, low) = to.split_at_mut(to.len() / 2);
    for ((x, high), low) in x.iter().zip(high).zip(low) {
        let number = (x * factor + ROUNDING) - ROUNDING;
        (*high, *low) = ((number as i32 >> 7) as i8, (number as i32 & 127) as i8);
    }
    scale
}

/// The product of a quantised row and a row of weights, each with its scale.
pub(in crate::ops) fn product_of(row: &[i8], row_scale: f32, weights: &[i8], scale: f32) -> f32 {
    let (high, low) = row.split_at(row.len() / 2);
    let sum = |half: &[i8]| half.iter().zip(weights).map(|(&x, &w)| i32::from(x) * i32::from(w)).sum::<i32>() as f32;
    (sum(high) * 128.0 + sum(low)) * (row_scale * scale)
}
