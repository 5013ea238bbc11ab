//! The exponential function of numbers that are not positive, from additions and multiplications
//! alone: the same bits on every device, and as many numbers at a time as the CPU takes.

use std::f32::consts::LOG2_E;

/// 1.5 · 2²³: added to a number below 2²², it leaves the nearest integer in the lowest bits.
const ROUNDING: f32 = 12_582_912.0;

/// ln 2 in two parts: products of the first with numbers of 8 bits are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Argument below which the result is 0: less than half the least subnormal number.
const LEAST: f32 = -105.0;

/// eˣ for x ≤ 0, and NaN for NaN; to 2 units in the last place where the result is a normal number.
///
/// x = n ln 2 + r with |r| ≤ ln 2 / 2, and a polynomial of r with Cephes' coefficients (S. L.
/// Moshier, `expf`), times 2ⁿ. The power is applied in two halves, which are normal numbers where
/// the result is not.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = if x < LEAST { LEAST } else { x };
    let rounded = x * LOG2_E + ROUNDING;
    let n = rounded - ROUNDING;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    let polynomial = 1.987_569_1e-4;
    let polynomial = polynomial * r + 1.398_199_9e-3;
    let polynomial = polynomial * r + 8.333_452e-3;
    let polynomial = polynomial * r + 4.166_579_6e-2;
    let polynomial = polynomial * r + 1.666_666_5e-1;
    let polynomial = polynomial * r + 0.5;
    let polynomial = (polynomial * (r * r) + r) + 1.0;
    let power = rounded.to_bits().wrapping_sub(ROUNDING.to_bits()) as i32;
    let half = power >> 1;
    (polynomial * power_of_two(half)) * power_of_two(power.wrapping_sub(half))
}

/// 2ⁿ for n of a normal number; anything for others, which only a NaN leads to.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::isa::{Isa, Loops};

    use super::*;

    /// Additions, products, comparisons and the exponential function.
    struct Mixed<'a>(&'a [f32]);

    impl Loops for Mixed<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run(self) -> Vec<u32> {
            self.0.iter().map(|&x| if x > -3.0 { x * x + 0.1 } else { exp(x) }.to_bits()).collect()
        }
    }

    #[test]
    fn the_width_of_vectors_changes_no_bit() {
        let x: Vec<f32> = (0..1000).map(|k| k as f32 * -0.0917).collect();
        let expected = Mixed(&x).run();
        assert!(Isa::all().into_iter().all(|isa| isa.run(Mixed(&x)) == expected));
    }

    /// Distance in units in the last place of a normal `expected`.
    fn ulps(found: f32, expected: f64) -> f64 {
        let unit = 2f64.powi(expected.log2().floor() as i32 - 23);
        (f64::from(found) - expected).abs() / unit
    }

    #[test]
    fn it_is_within_two_units_in_the_last_place() {
        let worst = (0..2_000_000).map(|k| -(k as f32) * 87.3 / 2e6).map(|x| ulps(exp(x), f64::from(x).exp()));
        let worst = worst.fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst}");
    }

    #[test]
    fn subnormal_results_are_within_one_unit() {
        for k in 0..20_000 {
            let x = -87.3 - k as f32 * 1e-3;
            let error = (f64::from(exp(x)) - f64::from(x).exp()).abs();
            assert!(error <= f64::from(f32::from_bits(1)) + 2f64.powi(-24) * f64::from(x).exp() * 4.0, "{x}: {error}");
        }
    }

    #[test]
    fn values_that_are_not_ordinary() {
        assert_eq!(exp(0.0).to_bits(), 1f32.to_bits());
        assert_eq!(exp(-0.0).to_bits(), 1f32.to_bits());
        for x in [-105.0, -1e9, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp(x).to_bits(), 0, "{x}");
        }
        assert_eq!(exp(-f32::from_bits(1)), 1.0);
        assert!(exp(f32::NAN).is_nan() && exp(-f32::NAN).is_nan());
    }
}
