use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Sub, SubAssign};

use half::{bf16, f16};
use megabatch_gpu_core::convert;

/// Element type of weights and gradients: `f32` in training, `f64` as the reference in tests.
///
/// Sealed, since the algorithms rely on properties of these two, such as that the square of an f32
/// is exact in f64.
pub trait Number:
    private::Sealed
    + Copy
    + Send
    + Sync
    + Debug
    + Default
    + 'static
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// The largest finite number.
    const GREATEST: Self;

    /// The nearest value to `value`.
    fn from_f64(value: f64) -> Self;
    /// The same value.
    fn to_f64(self) -> f64;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Rounds `values` into a working copy of the same length.
    #[doc(hidden)]
    fn round_into(values: &[Self], copy: WorkingCopy<'_>);
}

/// Weights in 16 bits, rounded to nearest from the master weights, ties to even.
#[derive(Debug)]
pub enum WorkingCopy<'a> {
    /// For runs in bf16.
    Bf16(&'a mut [bf16]),
    /// For runs in fp16. Values that are too large become infinite.
    Fp16(&'a mut [f16]),
}

impl WorkingCopy<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            WorkingCopy::Bf16(copy) => copy.len(),
            WorkingCopy::Fp16(copy) => copy.len(),
        }
    }

    pub(crate) fn split_at(self, len: usize) -> (Self, Self) {
        match self {
            WorkingCopy::Bf16(copy) => {
                let (copy, rest) = copy.split_at_mut(len);
                (WorkingCopy::Bf16(copy), WorkingCopy::Bf16(rest))
            }
            WorkingCopy::Fp16(copy) => {
                let (copy, rest) = copy.split_at_mut(len);
                (WorkingCopy::Fp16(copy), WorkingCopy::Fp16(rest))
            }
        }
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! number {
    ($type:ty, $to_bf16:expr, $to_f16:expr) => {
        impl Number for $type {
            const GREATEST: Self = <$type>::MAX;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                <$type>::sqrt(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }

            fn round_into(values: &[Self], copy: WorkingCopy<'_>) {
                match copy {
                    WorkingCopy::Bf16(copy) => $to_bf16(values, copy),
                    WorkingCopy::Fp16(copy) => $to_f16(values, copy),
                }
            }
        }
    };
}

number!(f32, convert::f32_to_bf16, convert::f32_to_f16);
number!(f64, each(|x| bf16::from_f32(to_odd(x))), each(|x| f16::from_f32(to_odd(x))));

fn each<T>(round: impl Fn(f64) -> T) -> impl Fn(&[f64], &mut [T]) {
    move |values, copy| values.iter().zip(copy).for_each(|(&value, copy)| *copy = round(value))
}

/// Rounds to odd: `x` itself, or else the neighbour whose last bit is 1. Rounding that again to
/// fewer bits gives the same as rounding once (Boldo and Melquiond, "Emulation of FMA and correctly
/// rounded sums", 2008).
fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || x.is_nan() {
        return nearest;
    }
    let magnitude = nearest.abs().to_bits();
    let toward_zero = if f64::from(nearest).abs() > x.abs() { magnitude - 1 } else { magnitude };
    f32::from_bits(toward_zero | 1).copysign(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_roundings_do_what_one_does() {
        // Just off the middle between 1 and 1 + 2⁻⁷, by less than f32 can tell.
        for (x, expected) in [(1.0 + 2f64.powi(-8), 1.0), (1.0 + 2f64.powi(-8) + 2f64.powi(-40), 1.0 + 2f32.powi(-7))] {
            for sign in [1.0, -1.0] {
                let mut copy = [bf16::ZERO];
                f64::round_into(&[sign * x], WorkingCopy::Bf16(&mut copy));
                assert_eq!(copy[0].to_f32(), sign as f32 * expected);
            }
        }
        for (x, expected) in
            [(1e300, f32::MAX), (-1e-300, -f32::from_bits(1)), (0.5, 0.5), (f64::INFINITY, f32::INFINITY)]
        {
            assert_eq!(to_odd(x), expected);
        }
        assert!(to_odd(f64::NAN).is_nan());
    }
}
