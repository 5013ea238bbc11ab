use std::fmt;

use half::{bf16, f16};
use megabatch_gpu_core::convert;
use serde::{Deserialize, Serialize};

/// The precision that a model is trained in.
///
/// Inputs and results of matrix products and of the recurrence are in it, and their sums in fp32.
/// Products take the time and tolerate rounding. Everything else is in fp32: the cell state,
/// softmax, norms, the loss, sums and means, gradients, moments and master weights. There small
/// numbers are added, exponentials taken, or weights changed by less than a 16-bit number can
/// represent (Micikevicius et al., "Mixed precision training", 2018, sections 3.1 and 3.3; the
/// lists of `torch.autocast` agree).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE 754 binary32: 24 significant bits.
    #[default]
    Fp32,
    /// bfloat16: 8 significant bits and the range of fp32. It needs no loss scale.
    Bf16,
    /// IEEE 754 binary16: 11 significant bits, normal numbers from 6.1e-5 to 65,504. Gradients need
    /// a loss scale.
    Fp16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 3] = [Precision::Fp32, Precision::Bf16, Precision::Fp16];

    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Fp32 => "fp32",
            Precision::Bf16 => "bf16",
            Precision::Fp16 => "fp16",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Precision::Fp32 => 4,
            Precision::Bf16 | Precision::Fp16 => 2,
        }
    }

    /// True if gradients would vanish without a [`LossScaler`](crate::LossScaler).
    pub fn needs_loss_scale(self) -> bool {
        self == Precision::Fp16
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Numbers rounded at a time, so that their 16-bit forms stay in the first-level cache.
const BLOCK: usize = 1024;

/// Rounds `values` to `precision` in place, to nearest with ties to even; fp32 changes nothing.
/// Values that are too large become infinite; NaN stays NaN.
///
/// Products of such numbers, added in f32, equal those of a CPU with 16-bit arithmetic and f32
/// accumulation, up to the order of additions.
pub fn round_to(precision: Precision, values: &mut [f32]) {
    match precision {
        Precision::Fp32 => {}
        Precision::Bf16 => through([bf16::ZERO; BLOCK], values, convert::f32_to_bf16, convert::bf16_to_f32),
        Precision::Fp16 => through([f16::ZERO; BLOCK], values, convert::f32_to_f16, convert::f16_to_f32),
    }
}

fn through<T>(
    mut short: [T; BLOCK],
    values: &mut [f32],
    narrow: impl Fn(&[f32], &mut [T]),
    widen: impl Fn(&[T], &mut [f32]),
) {
    for values in values.chunks_mut(BLOCK) {
        let short = &mut short[..values.len()];
        narrow(values, short);
        widen(short, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_are_written_in_lower_case() {
        for precision in Precision::ALL {
            assert_eq!(serde_json::to_value(precision).unwrap(), precision.name());
            assert_eq!(serde_json::from_value::<Precision>(precision.to_string().into()).unwrap(), precision);
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_that_a_precision_has() {
        let start: Vec<f32> =
            (0..2 * BLOCK as u32 + 5).map(|k| f32::from_bits(k.wrapping_mul(2_654_435_761))).collect();
        let nearest: [fn(f32) -> f32; 3] = [|x| x, |x| bf16::from_f32(x).to_f32(), |x| f16::from_f32(x).to_f32()];
        for (precision, nearest) in Precision::ALL.into_iter().zip(nearest) {
            for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, start.len()] {
                let mut rounded = start[..len].to_vec();
                round_to(precision, &mut rounded);
                for (&found, &x) in rounded.iter().zip(&start) {
                    let expected = nearest(x);
                    assert!(
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                        "{precision}: {x:e}"
                    );
                }
            }
        }
    }
}
