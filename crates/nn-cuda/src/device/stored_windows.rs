//! Stored windows as a device has them: bytes of numbers of the type of a run's operands. Batches
//! round the rows that they take to this type anyway, so that rounding windows before changes no
//! bit.

use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_nn::model::SampleShape;
use rayon::prelude::*;

use crate::ops::Operand;

/// Numbers that one thread rounds at a time.
const ROUNDED_AT_ONCE: usize = 1 << 16;

/// Bytes on a GPU of a stored window of timeframe `k`, in a run with operands of `precision`.
pub fn window_bytes(shape: &SampleShape, k: usize, precision: Precision) -> usize {
    shape.window_len(k) * precision.bytes()
}

/// Rounds the numbers of `windows` in their own place to operands of `precision`, and returns the
/// bytes of these, as a GPU has them. `windows` has no meaning afterwards.
pub fn round_windows(precision: Precision, windows: &mut [f32]) -> &[u8] {
    match precision {
        Precision::Fp32 => bytemuck::cast_slice(windows),
        Precision::Bf16 => round_in_place::<bf16>(windows),
        Precision::Fp16 => round_in_place::<f16>(windows),
    }
}

/// Rounds `values` to a type of 16 bits, and returns the bytes of the rounded numbers, which are
/// the first half of those of `values`.
///
/// ```text
/// values     0   1   2       4               8
/// rounded    0 1     2 3     4 … 7           8 … 15
/// ```
///
/// Rounded, the numbers n to 2n lie where numbers n/2 to n were, which are done: each step reads
/// what lies behind all that it writes, and threads share it.
pub(super) fn round_in_place<T: Operand>(values: &mut [f32]) -> &[u8] {
    assert_eq!(2 * size_of::<T>(), size_of::<f32>(), "numbers of 16 bits");
    let len = values.len();
    if let Some(first) = values.first_mut() {
        let rounded = T::narrow(*first);
        bytemuck::cast_slice_mut::<f32, T>(std::slice::from_mut(first))[0] = rounded;
    }
    let mut done = 1;
    while done < len {
        let next = (2 * done).min(len);
        let (before, behind) = values.split_at_mut(done);
        round_all(&behind[..next - done], &mut bytemuck::cast_slice_mut::<f32, T>(before)[done..next]);
        done = next;
    }
    &bytemuck::cast_slice(values)[..len * size_of::<T>()]
}

fn round_all<T: Operand>(values: &[f32], rounded: &mut [T]) {
    if values.len() <= ROUNDED_AT_ONCE {
        return T::narrow_all(values, rounded);
    }
    let pieces = values.par_chunks(ROUNDED_AT_ONCE).zip_eq(rounded.par_chunks_mut(ROUNDED_AT_ONCE));
    pieces.for_each(|(values, rounded)| T::narrow_all(values, rounded));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Operand>(precision: Precision) {
        for len in [0, 1, 2, 3, 4, 7, 1000, 5 * ROUNDED_AT_ONCE + 3] {
            let mut values: Vec<f32> = (0..len).map(|n| (n as f32).sin() * 3.0).collect();
            let expected: Vec<T> = values.iter().map(|&value| T::narrow(value)).collect();
            assert_eq!(round_windows(precision, &mut values), bytemuck::cast_slice::<T, u8>(&expected), "{len} values");
        }
    }

    #[test]
    fn windows_are_rounded_in_their_own_place() {
        check::<f32>(Precision::Fp32);
        check::<bf16>(Precision::Bf16);
        check::<f16>(Precision::Fp16);
    }
}
