//! Slices of 16-bit floats to and from f32, rounded to nearest even, on the CPU.
//!
//! Each conversion is IEEE 754's: exact where the target can hold the value, else to the nearest,
//! ties to even; too large becomes infinite, too small a subnormal or a zero of the same sign. A
//! NaN stays one: it keeps its sign and the leading bits of its payload, and becomes quiet. All
//! forms give the same bits; the instruction set is chosen when a slice is converted.
//!
//! The portable form is the `half` crate's. Its slice functions are no substitute for the vector
//! forms: they took 1.1 to 4 times as long on a CPU with AVX-512 (`cargo bench --bench convert`),
//! and do not convert between the 16-bit types.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "calls of vector instructions")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "calls of vector instructions")]
mod avx512;

#[cfg(test)]
mod tests;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A pair of element types with a conversion of slices between them.
macro_rules! conversion {
    ($(#[$doc:meta])* $name:ident: $from:ty => $to:ty, $($form:ident [$($feature:tt)+]),+) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// If the lengths differ.
        pub fn $name(from: &[$from], to: &mut [$to]) {
            assert_eq!(from.len(), to.len(), "a conversion is from a slice to one of the same length");
            #[cfg(target_arch = "x86_64")]
            {
                $(if $(is_x86_feature_detected!($feature))&&+ {
                    // SAFETY: the CPU has the instructions; the lengths are equal.
                    #[allow(unsafe_code, reason = "the vector forms ask for their instructions")]
                    return unsafe { $form::$name(from, to) };
                })+
            }
            portable::$name(from, to);
        }
    };
}

conversion!(
    /// Rounds f32 to f16.
    f32_to_f16: f32 => f16, avx512 ["avx512f"], avx2 ["f16c" "avx"]
);
conversion!(
    /// Widens f16 to f32, exactly.
    f16_to_f32: f16 => f32, avx512 ["avx512f"], avx2 ["f16c" "avx"]
);
conversion!(
    /// Rounds f32 to bf16.
    f32_to_bf16: f32 => bf16, avx512 ["avx512f"], avx2 ["avx2"]
);
conversion!(
    /// Widens bf16 to f32, exactly.
    bf16_to_f32: bf16 => f32, avx512 ["avx512f"], avx2 ["avx2"]
);
conversion!(
    /// Rounds f16 to bf16, which has fewer bits and a wider range.
    f16_to_bf16: f16 => bf16, avx512 ["avx512f"], avx2 ["avx2" "f16c"]
);
conversion!(
    /// Rounds bf16 to f16, which has more bits and a narrower range.
    bf16_to_f16: bf16 => f16, avx512 ["avx512f"], avx2 ["avx2" "f16c"]
);

/// Conversions by the `half` crate, on every CPU; the oracle of the vector forms.
mod portable {
    use super::{HalfFloatSliceExt, bf16, f16};

    pub(super) fn f32_to_f16(from: &[f32], to: &mut [f16]) {
        to.convert_from_f32_slice(from);
    }

    pub(super) fn f16_to_f32(from: &[f16], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    pub(super) fn f32_to_bf16(from: &[f32], to: &mut [bf16]) {
        to.convert_from_f32_slice(from);
    }

    pub(super) fn bf16_to_f32(from: &[bf16], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    /// Through f32, which holds every f16: the value is rounded once.
    pub(super) fn f16_to_bf16(from: &[f16], to: &mut [bf16]) {
        from.iter().zip(to).for_each(|(from, to)| *to = bf16::from_f32(from.to_f32()));
    }

    /// Through f32, which holds every bf16: the value is rounded once.
    pub(super) fn bf16_to_f16(from: &[bf16], to: &mut [f16]) {
        from.iter().zip(to).for_each(|(from, to)| *to = f16::from_f32(from.to_f32()));
    }
}
