//! The conversions in integer arithmetic: what every other form must equal, on every CPU.
#![forbid(unsafe_code)]

use half::{bf16, f16};

const F32_INFINITY: u32 = 0x7f80_0000;

/// The bit that makes a NaN quiet: the first of the fraction.
const F32_QUIET: u32 = 0x0040_0000;
const F16_QUIET: u16 = 0x0200;
const BF16_QUIET: u16 = 0x0040;

pub(super) fn f16_of(value: f32) -> f16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let rounded = match magnitude {
        0..0x3880_0000 => f16_subnormal(magnitude),
        // The exponent's bias is 112 less, the fraction 13 bits shorter. A carry out of the
        // fraction is right: it is the next power of two, and above the largest half infinity.
        0x3880_0000..0x4780_0000 => round_off(magnitude - (112 << 23), 13) as u16,
        0x4780_0000..=F32_INFINITY => 0x7c00,
        _ => 0x7c00 | F16_QUIET | (magnitude >> 13) as u16 & 0x03ff,
    };
    f16::from_bits(sign | rounded)
}

/// A magnitude below 2^-14, in units of 2^-24.
fn f16_subnormal(magnitude: u32) -> u16 {
    let exponent = magnitude >> 23;
    // Below 2^-25 everything rounds to zero, and at it the tie does.
    if exponent < 102 {
        return 0;
    }
    let fraction = magnitude & 0x007f_ffff | 0x0080_0000;
    round_off(fraction, 126 - exponent) as u16
}

/// `bits` without its last `dropped` bits, rounded to nearest, ties to even.
fn round_off(bits: u32, dropped: u32) -> u32 {
    let half_less_one = (1 << (dropped - 1)) - 1;
    (bits + half_less_one + (bits >> dropped & 1)) >> dropped
}

pub(super) fn f32_of_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let (sign, exponent, fraction) = ((bits & 0x8000) << 16, bits >> 10 & 0x1f, bits & 0x03ff);
    let magnitude = match (exponent, fraction) {
        // Exact: at most 10 bits times a power of two.
        (0, _) => (fraction as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
        (0x1f, 0) => F32_INFINITY,
        (0x1f, _) => F32_INFINITY | F32_QUIET | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

pub(super) fn bf16_of(value: f32) -> bf16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return bf16::from_bits((bits >> 16) as u16 | BF16_QUIET);
    }
    bf16::from_bits(round_off(bits, 16) as u16)
}

pub(super) fn f32_of_bf16(value: bf16) -> f32 {
    let bits = value.to_bits();
    let quiet = if bits & 0x7fff > 0x7f80 { BF16_QUIET } else { 0 };
    f32::from_bits(u32::from(bits | quiet) << 16)
}

pub(super) fn f32_to_f16(from: &[f32], to: &mut [f16]) {
    from.iter().zip(to).for_each(|(&from, to)| *to = f16_of(from));
}

pub(super) fn f16_to_f32(from: &[f16], to: &mut [f32]) {
    from.iter().zip(to).for_each(|(&from, to)| *to = f32_of_f16(from));
}

pub(super) fn f32_to_bf16(from: &[f32], to: &mut [bf16]) {
    from.iter().zip(to).for_each(|(&from, to)| *to = bf16_of(from));
}

pub(super) fn bf16_to_f32(from: &[bf16], to: &mut [f32]) {
    from.iter().zip(to).for_each(|(&from, to)| *to = f32_of_bf16(from));
}

/// Through f32, which holds every f16: the value is rounded once.
pub(super) fn f16_to_bf16(from: &[f16], to: &mut [bf16]) {
    from.iter().zip(to).for_each(|(&from, to)| *to = bf16_of(f32_of_f16(from)));
}

/// Through f32, which holds every bf16: the value is rounded once.
pub(super) fn bf16_to_f16(from: &[bf16], to: &mut [f16]) {
    from.iter().zip(to).for_each(|(&from, to)| *to = f16_of(f32_of_bf16(from)));
}
