#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use bytemuck::Pod;
use megabatch_amp::{Number, Precision, round_to};
use safetensors::Dtype;

use crate::reference::matmul::Product;

/// The number that a model computes in: `f32` for training, `f64` as the reference in tests.
///
/// Sealed: its product of matrices is out of reach for other crates.
pub trait Scalar:
    Product
    + Number
    + Pod
    + Send
    + Sync
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// The type's name in a safetensors file.
    const DTYPE: Dtype;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;

    /// The smallest normal number over the distance from 1 to the next number.
    const NEGLIGIBLE: Self;

    /// e to the power of `self`.
    fn exp(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Appends the little-endian bytes of `values`.
    fn extend_bytes(values: &[Self], bytes: &mut Vec<u8>);

    /// `self`, or zero where its magnitude is below [`NEGLIGIBLE`](Scalar::NEGLIGIBLE).
    ///
    /// A gradient that vanishes over hundreds of steps does not reach zero: multiplied by a gate
    /// above 1/2, the smallest subnormal number rounds to itself for ever, and CPUs take a
    /// hundred times as long for a product with such a number. The limit lies high enough that a
    /// product with a factor above the rounding error is still normal.
    fn flush(self) -> Self {
        if self < Self::NEGLIGIBLE && self > -Self::NEGLIGIBLE { Self::ZERO } else { self }
    }

    /// Rounds `values` to `precision` where they lie; numbers in double precision, which are the
    /// reference, stay what they are.
    fn round_to(precision: Precision, values: &mut [Self]) {
        if Self::DTYPE == Dtype::F32 {
            round_to(precision, bytemuck::cast_slice_mut(values));
        }
    }

    /// The logistic function 1 / (1 + e^-x). It saturates to 0 and 1 and is never NaN for a number.
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }
}

macro_rules! scalar {
    ($type:ty, $dtype:expr) => {
        impl Scalar for $type {
            const DTYPE: Dtype = $dtype;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEGLIGIBLE: Self = <$type>::MIN_POSITIVE / <$type>::EPSILON;

            #[inline]
            fn exp(self) -> Self {
                <$type>::exp(self)
            }

            #[inline]
            fn tanh(self) -> Self {
                <$type>::tanh(self)
            }

            fn extend_bytes(values: &[Self], bytes: &mut Vec<u8>) {
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
    };
}

scalar!(f32, Dtype::F32);
scalar!(f64, Dtype::F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_negligible_becomes_zero_and_nothing_else_changes() {
        for kept in [1.0, -1.0, f32::NEGLIGIBLE, -f32::NEGLIGIBLE, f32::INFINITY, 0.0] {
            assert_eq!(kept.flush(), kept);
        }
        assert!(f32::NAN.flush().is_nan());
        for flushed in [f32::NEGLIGIBLE * 0.99, -f32::MIN_POSITIVE, f32::from_bits(1)] {
            assert_eq!(flushed.flush(), 0.0);
        }
    }

    #[test]
    fn sigmoid_saturates_without_nan() {
        for (x, expected) in [(0.0, 0.5), (-1e4, 0.0), (1e4, 1.0), (f32::NEG_INFINITY, 0.0), (f32::INFINITY, 1.0)] {
            assert_eq!(x.sigmoid(), expected, "sigmoid({x})");
        }
        assert!((2.0f64.sigmoid() - 0.880_797_077_977_882_4).abs() < 1e-15);
    }
}
