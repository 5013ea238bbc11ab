//! The portable form against values that IEEE 754 singles out, and every other form against it: all
//! 16-bit values, all exponents of f32 with the fractions at which rounding turns, and many at
//! random.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use half::{bf16, f16};

use super::portable;

/// For each 16-bit pattern as the upper half of an f32: lower halves around every rounding boundary
/// of bf16, and in the fractions that f16 drops.
fn telling_f32s() -> Vec<f32> {
    let tails = [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff];
    let dense = (0..=u16::MAX).flat_map(|upper| tails.map(|tail| u32::from(upper) << 16 | tail));
    // The ties of subnormal halves lie at other bits: odd multiples of 2^-25, and their neighbours.
    let subnormal = (0..2048u32).flat_map(|k| {
        let tie = ((2 * k + 1) as f32 * f32::from_bits((127 - 25) << 23)).to_bits();
        [tie - 1, tie, tie + 1, (tie - 1) | 1 << 31, tie | 1 << 31, (tie + 1) | 1 << 31]
    });
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let random = (0..1_000_000).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    });
    dense.chain(subnormal).chain(random).map(f32::from_bits).collect()
}

fn all_f16() -> Vec<f16> {
    (0..=u16::MAX).map(f16::from_bits).collect()
}

fn all_bf16() -> Vec<bf16> {
    (0..=u16::MAX).map(bf16::from_bits).collect()
}

#[test]
fn rounding_is_to_nearest_with_ties_to_even() {
    // f32, f16, bf16: the values that IEEE 754 singles out.
    let cases = [
        (0.0, 0x0000, 0x0000),
        (-0.0, 0x8000, 0x8000),
        (1.0, 0x3c00, 0x3f80),
        (65_504.0, 0x7bff, 0x4780),
        (65_519.996, 0x7bff, 0x4780),
        (65_520.0, 0x7c00, 0x4780),
        (f32::MAX, 0x7c00, 0x7f80),
        (f32::NEG_INFINITY, 0xfc00, 0xff80),
        (1.0 + 1.0 / 2048.0, 0x3c00, 0x3f80),
        (1.0 + 3.0 / 2048.0, 0x3c02, 0x3f80),
        (1.0 + 1.0 / 256.0, 0x3c04, 0x3f80),
        (1.0 + 3.0 / 256.0, 0x3c0c, 0x3f82),
        (2.0f32.powi(-24), 0x0001, 0x3380),
        (2.0f32.powi(-25), 0x0000, 0x3300),
        (3.0 * 2.0f32.powi(-25), 0x0002, 0x33c0),
        (f32::from_bits(1), 0x0000, 0x0000),
        (f32::from_bits(0x8000), 0x0000, 0x0000),
        (f32::from_bits(0x8001), 0x0000, 0x0001),
        (f32::from_bits(0x7f80_0001), 0x7e00, 0x7fc0),
        (f32::from_bits(0xffff_ffff), 0xffff, 0xffff),
    ];
    for (value, half, bfloat) in cases {
        let (mut halves, mut bfloats) = ([f16::ZERO; 1], [bf16::ZERO; 1]);
        portable::f32_to_f16(&[value], &mut halves);
        portable::f32_to_bf16(&[value], &mut bfloats);
        assert_eq!((halves[0].to_bits(), bfloats[0].to_bits()), (half, bfloat), "{value:e}");
    }
}

/// Checks one form of a conversion on every length near a vector's, at every offset, and on all of
/// `src`.
macro_rules! check {
    ($src:expr, $form:expr, $portable:expr, $dst:ty) => {{
        let src = $src;
        let (mut expected, mut found) = (vec![<$dst>::default(); src.len()], vec![<$dst>::default(); src.len()]);
        let same = |a: &[$dst], b: &[$dst]| a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
        $portable(&src, &mut expected);
        $form(&src, &mut found);
        if let Some(k) = same(&expected, &found) {
            panic!(
                "{} of {:#x}: {:#x} where {:#x} is right",
                stringify!($form),
                src[k].to_bits(),
                found[k].to_bits(),
                expected[k].to_bits()
            );
        }
        for len in (0..70).chain([255, 256, 257]) {
            for start in [0, 1, 3] {
                found.fill(<$dst>::default());
                $form(&src[start..start + len], &mut found[1..1 + len]);
                assert_eq!(same(&expected[start..start + len], &found[1..1 + len]), None, "{len} from {start}");
                assert!(found[0].to_bits() == 0 && found[1 + len].to_bits() == 0, "{len} from {start} wrote outside");
            }
        }
    }};
}

macro_rules! check_form {
    (f16: $f32_to_f16:expr, $f16_to_f32:expr) => {
        check!(telling_f32s(), $f32_to_f16, portable::f32_to_f16, f16);
        check!(all_f16(), $f16_to_f32, portable::f16_to_f32, f32);
    };
    (bf16: $f32_to_bf16:expr, $bf16_to_f32:expr) => {
        check!(telling_f32s(), $f32_to_bf16, portable::f32_to_bf16, bf16);
        check!(all_bf16(), $bf16_to_f32, portable::bf16_to_f32, f32);
    };
}

#[test]
fn what_is_chosen_here_equals_the_portable_form() {
    check_form!(f16: super::f32_to_f16, super::f16_to_f32);
    check_form!(bf16: super::f32_to_bf16, super::bf16_to_f32);
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use megabatch_test_support::{Requirement, skip};

    use super::super::{avx2, avx512};
    use super::*;

    /// A vector form as a plain function.
    macro_rules! form {
        ($module:ident::$name:ident) => {
            |src: &[_], dst: &mut [_]| {
                // SAFETY: the test has seen that the CPU has the instructions, and gives slices of
                // one length.
                unsafe { $module::$name(src, dst) }
            }
        };
    }

    fn lacks(feature: &str, present: bool) -> bool {
        if !present {
            skip(Requirement::Instructions, feature);
        }
        !present
    }

    #[test]
    fn f16c_equals_the_portable_form() {
        if lacks("F16C", is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avx")) {
            return;
        }
        check_form!(f16: form!(avx2::f32_to_f16), form!(avx2::f16_to_f32));
    }

    #[test]
    fn avx2_equals_the_portable_form() {
        if lacks("AVX2", is_x86_feature_detected!("avx2")) {
            return;
        }
        check_form!(bf16: form!(avx2::f32_to_bf16), form!(avx2::bf16_to_f32));
    }

    #[test]
    fn avx512_equals_the_portable_form() {
        if lacks("AVX-512", is_x86_feature_detected!("avx512f")) {
            return;
        }
        check_form!(f16: form!(avx512::f32_to_f16), form!(avx512::f16_to_f32));
        check_form!(bf16: form!(avx512::f32_to_bf16), form!(avx512::bf16_to_f32));
    }
}
