//! Slices of 16-bit floats to and from f32, rounded to nearest even, on the CPU.
//!
//! Each conversion is IEEE 754's: exact where the target can hold the value, else to the nearest,
//! ties to even; too large becomes infinite, too small a subnormal or a zero of the same sign. A
//! NaN stays one: it keeps its sign and the leading bits of its payload, and becomes quiet. All
//! forms give the same bits; the instruction set is chosen when a slice is converted.
//!
//! The portable form is the `half` crate's. Its slice functions are no substitute for the vector
//! forms: they took 1.1 to 4 times as long on a CPU with AVX-512 (`cargo bench --bench convert`).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(test)]
mod tests;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A pair of element types with a conversion of slices between them.
macro_rules! conversion {
    ($(#[$doc:meta])* $name:ident: $src:ty => $dst:ty, $($form:ident [$($feature:tt)+]),+) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// If the lengths differ.
        pub fn $name(src: &[$src], dst: &mut [$dst]) {
            assert_eq!(src.len(), dst.len(), "a conversion is from a slice to one of the same length");
            #[cfg(target_arch = "x86_64")]
            {
                $(if $(is_x86_feature_detected!($feature))&&+ {
                    // SAFETY: the CPU has the instructions; the lengths are equal.
                    #[allow(unsafe_code, reason = "the vector forms ask for their instructions")]
                    return unsafe { $form::$name(src, dst) };
                })+
            }
            portable::$name(src, dst);
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

/// Conversions by the `half` crate, on every CPU; the oracle of the vector forms.
mod portable {
    use super::{HalfFloatSliceExt, bf16, f16};

    pub(super) fn f32_to_f16(src: &[f32], dst: &mut [f16]) {
        dst.convert_from_f32_slice(src);
    }

    pub(super) fn f16_to_f32(src: &[f16], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }

    pub(super) fn f32_to_bf16(src: &[f32], dst: &mut [bf16]) {
        dst.convert_from_f32_slice(src);
    }

    pub(super) fn bf16_to_f32(src: &[bf16], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }
}
