//! The types of numbers in tensors, and the types that they are reduced in.

use bytemuck::Pod;
use half::{bf16, f16};

use super::exp::exp;

/// Type of the numbers of a tensor, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// IEEE 754's 16 bits.
    F16,
    /// The upper 16 bits of an f32.
    Bf16,
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
    /// 32 bits with a sign.
    I32,
    /// 64 bits with a sign.
    I64,
}

impl ElementType {
    /// All types.
    pub const ALL: [ElementType; 6] =
        [ElementType::F16, ElementType::Bf16, ElementType::F32, ElementType::F64, ElementType::I32, ElementType::I64];

    /// Bytes of a number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::F32 | ElementType::I32 => 4,
            ElementType::F64 | ElementType::I64 => 8,
        }
    }

    /// Bytes of a number of the type that sums are formed in.
    pub(crate) fn wide_bytes(self) -> usize {
        self.bytes().max(4)
    }

    /// The end of the names of this type's kernels.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::I32 => "i32",
            ElementType::I64 => "i64",
        }
    }
}

/// Type of the numbers of a tensor.
pub trait Element: Pod + Send + Sync {
    /// Type that sums and products are formed in.
    type Wide: Number;

    /// The number, exactly.
    fn widen(self) -> Self::Wide;

    /// The nearest number of this type.
    fn narrow(wide: Self::Wide) -> Self;
}

/// Type that sums and products are formed in. Integers wrap around.
pub trait Number: Element<Wide = Self> + PartialOrd {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;

    /// Sum.
    fn plus(self, other: Self) -> Self;

    /// Product.
    fn times(self, other: Self) -> Self;

    /// Quotient by `count`, which is not 0; that of integers is rounded down.
    fn over_count(self, count: u32) -> Self;

    /// True for a number that is none.
    fn is_none(self) -> bool;
}

/// Floating-point type that softmax is formed in.
pub trait Float: Number {
    /// −∞.
    const LEAST: Self;

    /// Difference.
    fn minus(self, other: Self) -> Self;

    /// Quotient.
    fn over(self, other: Self) -> Self;

    /// eˣ for x ≤ 0, and NaN for NaN.
    fn exponential(self) -> Self;

    /// Natural logarithm.
    fn logarithm(self) -> Self;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
}

macro_rules! reduced_as_they_are {
    ($($number:ident),*) => {
        $(impl Element for $number {
            type Wide = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }
        })*
    };
}

reduced_as_they_are!(f32, f64, i32, i64);

macro_rules! floats {
    ($($float:ident by $exponential:expr),*) => {
        $(impl Number for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn over_count(self, count: u32) -> Self {
                self / count as $float
            }

            #[inline(always)]
            fn is_none(self) -> bool {
                self.is_nan()
            }
        }

        impl Float for $float {
            const LEAST: Self = $float::NEG_INFINITY;

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }

            #[inline(always)]
            fn exponential(self) -> Self {
                $exponential(self)
            }

            #[inline(always)]
            fn logarithm(self) -> Self {
                self.ln()
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $float
            }
        })*
    };
}

floats!(f32 by exp, f64 by f64::exp);

macro_rules! integers {
    ($($integer:ident),*) => {
        $(impl Number for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn over_count(self, count: u32) -> Self {
                i64::from(self).div_euclid(i64::from(count)) as $integer
            }

            #[inline(always)]
            fn is_none(self) -> bool {
                false
            }
        })*
    };
}

integers!(i32, i64);

/// Widening multiplies by a power of two, which is exact, and selects infinities and NaN: no
/// branch, so that compilers take many numbers at a time.
impl Element for f16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        let magnitude = u32::from(self.to_bits() & 0x7fff) << 13;
        let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
        let scaled = if magnitude >= 0x7c00 << 13 { magnitude | 0x7f80_0000 } else { scaled };
        f32::from_bits(scaled | u32::from(self.to_bits() & 0x8000) << 16)
    }

    /// To nearest, ties to even. Numbers below the least normal one are rounded by an addition that
    /// leaves them in the lowest bits.
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        /// The least that becomes infinite by its exponent: 2¹⁶.
        const INFINITE: u32 = (127 + 16) << 23;
        /// The least normal number: 2⁻¹⁴.
        const NORMAL: u32 = (127 - 14) << 23;
        /// A unit in its last place is the least subnormal number's: 2⁻²⁴.
        const SUBNORMALS: u32 = (127 - 1) << 23;
        let magnitude = wide.to_bits() & 0x7fff_ffff;
        let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let subnormal = (f32::from_bits(magnitude) + f32::from_bits(SUBNORMALS)).to_bits().wrapping_sub(SUBNORMALS);
        let odd = magnitude >> 13 & 1;
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        let finite = if magnitude < NORMAL { subnormal } else { normal };
        let bits = if magnitude >= INFINITE { special } else { finite };
        f16::from_bits((bits | (wide.to_bits() & 0x8000_0000) >> 16) as u16)
    }
}

impl Element for bf16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// To nearest, ties to even.
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        let bits = wide.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        bf16::from_bits(if wide.is_nan() { quiet } else { rounded } as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_widen_exactly() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let is_same = |found: f32, expected: f32| found == expected || (found.is_nan() && expected.is_nan());
            assert!(is_same(half.widen(), half.to_f32()) && half.widen().is_sign_negative() == (bits >> 15 == 1));
            assert!(is_same(brain.widen(), brain.to_f32()), "{bits:#x}");
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        // Every exponent with the bits about each tie.
        for high in 0..=u16::MAX {
            for low in [0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let wide = f32::from_bits(u32::from(high) << 16 | low);
                let (half, brain) = (<f16 as Element>::narrow(wide), <bf16 as Element>::narrow(wide));
                if wide.is_nan() {
                    assert!(half.is_nan() && brain.is_nan(), "{wide}");
                } else {
                    assert_eq!(half.to_bits(), f16::from_f32(wide).to_bits(), "{wide:e}");
                    assert_eq!(brain.to_bits(), bf16::from_f32(wide).to_bits(), "{wide:e}");
                }
            }
        }
    }

    #[test]
    fn means_of_integers_are_rounded_down() {
        assert_eq!((-7i32).over_count(2), -4);
        assert_eq!(7i64.over_count(2), 3);
    }
}
