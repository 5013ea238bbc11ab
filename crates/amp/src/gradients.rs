//! The first pass: norm and finiteness of all gradients, which are read once and not changed.
//!
//! ```text
//! norm = √(Σ g²) · 1/scale        non-finite: the first g · 1/scale that is infinite or NaN
//! ```
//!
//! Departures:
//!
//! 1. Squares are formed and added in double precision. The square of an f32 is exact there,
//!    neither overflows nor vanishes, and a finite number of them has a finite sum. So the sum is
//!    finite exactly if all gradients are, and there is no second test.
//! 2. The norm is unscaled here; the gradients are unscaled by the second pass, where it reads
//!    them.
//! 3. Blocks of fixed size are added in 32 lanes, and their sums in order, so that threads and
//!    vectors change no bit.

use crate::threads::{BLOCK, Threads};
use megabatch_gpu_core::isa::{Isa, Loops};

const LANES: usize = 32;

/// Index of an element in a list of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementIndex {
    /// Position of the tensor in the list.
    pub tensor: usize,
    /// Index of the element in the tensor.
    pub index: usize,
}

/// Results of the first pass over the gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckedGradients {
    /// The root of the sum of the squares of all unscaled gradients. Infinite or NaN where there is
    /// a gradient that is not finite.
    ///
    /// Its relative error is at most (n / 2¹⁴ + t + 550) · 2⁻⁵⁴ for n elements in t tensors: a lane
    /// adds 512 squares, 32 lanes are added to one, and blocks one after the other; the root halves
    /// that.
    pub norm: f64,
    /// The first gradient that is infinite or NaN once it is unscaled.
    pub non_finite: Option<ElementIndex>,
    inverse_scale: f32,
}

/// Factors of the gradients in the second pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientFactors {
    /// 1 / loss scale.
    pub inverse_scale: f32,
    /// The clip coefficient, at most 1.
    pub clip: f32,
}

impl GradientFactors {
    /// Factors of 1.
    pub fn none() -> Self {
        GradientFactors { inverse_scale: 1.0, clip: 1.0 }
    }
}

impl CheckedGradients {
    /// Factor that unscales the gradients and clips them to `clip_norm`: min(1, clip_norm / (norm +
    /// 1e-6)), as in `torch.nn.utils.clip_grad_norm_`. None where a gradient is not finite: such a
    /// step is to be skipped.
    pub fn factors(&self, clip_norm: Option<f64>) -> Option<GradientFactors> {
        let coefficient = clip_norm.map_or(1.0, |clip_norm| clip_norm / (self.norm + 1e-6));
        let clip = if coefficient < 1.0 { coefficient as f32 } else { 1.0 };
        self.non_finite.is_none().then_some(GradientFactors { inverse_scale: self.inverse_scale, clip })
    }
}

/// The first pass over `gradients`, a slice a tensor, of a loss that was multiplied by 1 /
/// `inverse_scale`. Many tensors that lie in one piece may be one slice.
///
/// # Panics
/// If `inverse_scale` is not a positive finite number.
pub fn unscale_and_check(gradients: &[&[f32]], inverse_scale: f32, threads: Threads) -> CheckedGradients {
    assert!(inverse_scale > 0.0 && inverse_scale.is_finite(), "the inverse of a loss scale is a positive number");
    let isa = Isa::best();
    let blocks = gradients.iter().flat_map(|gradient| gradient.chunks(BLOCK));
    let sum = threads.sum(blocks, |block| isa.run(SumOfSquares(block)));
    let norm = sum.sqrt() * f64::from(inverse_scale);
    // No element is larger than the norm. NaN compares as false.
    let all_finite = norm <= f64::from(f32::MAX);
    let non_finite = if all_finite { None } else { first_non_finite(gradients, inverse_scale) };
    CheckedGradients { norm, non_finite, inverse_scale }
}

fn first_non_finite(gradients: &[&[f32]], inverse_scale: f32) -> Option<ElementIndex> {
    gradients.iter().enumerate().find_map(|(tensor, gradient)| {
        let index = gradient.iter().position(|&g| !(g * inverse_scale).is_finite())?;
        Some(ElementIndex { tensor, index })
    })
}

struct SumOfSquares<'a>(&'a [f32]);

impl Loops for SumOfSquares<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut lanes = [0.0; LANES];
        let (rows, rest) = self.0.as_chunks::<LANES>();
        for row in rows {
            for (lane, g) in lanes.iter_mut().zip(row) {
                *lane += f64::from(*g) * f64::from(*g);
            }
        }
        for (lane, g) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(*g) * f64::from(*g);
        }
        lanes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bound of [`CheckedGradients::norm`] for up to 50 blocks.
    fn close(norm: f64, expected: f64) -> bool {
        norm == expected || (norm - expected).abs() <= 600.0 * f64::EPSILON / 4.0 * expected
    }

    /// The root of the sum of squares of gradients that are unscaled first, added with what each
    /// addition loses (Kahan, 1965).
    fn plain(gradients: &[&[f32]], inverse_scale: f32) -> f64 {
        let (mut sum, mut lost) = (0.0, 0.0);
        for &g in gradients.iter().copied().flatten() {
            let g = f64::from(g * inverse_scale);
            let term = g * g - lost;
            let next = sum + term;
            lost = (next - sum) - term;
            sum = next;
        }
        sum.sqrt()
    }

    fn check(gradients: &[&[f32]], inverse_scale: f32) {
        let examined = unscale_and_check(gradients, inverse_scale, Threads::Caller);
        assert_eq!(examined.norm.to_bits(), unscale_and_check(gradients, inverse_scale, Threads::Pool).norm.to_bits());
        assert!(close(examined.norm, plain(gradients, inverse_scale)), "{examined:?}");
        assert_eq!(examined.non_finite, None);
    }

    fn noise(len: usize) -> Vec<f32> {
        (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 20) as f32 - 7.0).collect()
    }

    #[test]
    fn tensors_of_every_length_near_a_lane_and_a_block() {
        for len in [0, 1, 31, 32, 33, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7] {
            let long = noise(len);
            for inverse in [1.0, 2.0 / 65_536.0] {
                check(&[&long], inverse);
                check(&[&long, &[], &long[..len / 2]], inverse);
            }
        }
        check(&[], 1.0);
    }

    #[test]
    fn instruction_sets_add_alike() {
        for len in [0, 1, 31, 33, 5000] {
            let g = noise(len);
            let sums: Vec<u64> = Isa::all().into_iter().map(|isa| isa.run(SumOfSquares(&g)).to_bits()).collect();
            assert!(sums.iter().all(|&sum| sum == sums[0]), "{len}: {sums:?}");
        }
    }

    #[test]
    fn the_first_gradient_that_is_not_finite_is_found() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (tensor, index) in [(0, 0), (0, 99), (2, 0), (2, BLOCK + 3)] {
                let mut tensors = [noise(100), noise(40), noise(2 * BLOCK)];
                tensors[tensor][index] = bad;
                // A later one, which is not the first.
                tensors[2][2 * BLOCK - 1] = f32::NAN;
                let slices: Vec<&[f32]> = tensors.iter().map(Vec::as_slice).collect();
                for threads in [Threads::Caller, Threads::Pool] {
                    let examined = unscale_and_check(&slices, 1.0 / 1024.0, threads);
                    assert_eq!(examined.non_finite, Some(ElementIndex { tensor, index }));
                    assert_eq!(examined.factors(Some(1.0)), None);
                }
            }
        }
    }

    #[test]
    fn the_range_of_single_precision_does_not_bound_the_norm() {
        let (large, small) = ([f32::MAX; 4], [f32::from_bits(1); 4]);
        assert_eq!(unscale_and_check(&[&large], 1.0, Threads::Caller).norm, 2.0 * f64::from(f32::MAX));
        assert_eq!(unscale_and_check(&[&large], 1.0, Threads::Caller).non_finite, None);
        assert_eq!(unscale_and_check(&[&small], 1.0, Threads::Caller).norm, 2.0 * f64::from(f32::from_bits(1)));
        // Below a scale of 1, unscaling itself can overflow.
        let place = unscale_and_check(&[&[1.0, f32::MAX]], 2.0, Threads::Caller).non_finite;
        assert_eq!(place, Some(ElementIndex { tensor: 0, index: 1 }));
    }

    #[test]
    fn the_norm_is_clipped_as_in_pytorch() {
        for (clip, expected) in
            [(None, 1.0_f64), (Some(100.0), 1.0), (Some(5.0), 5.0 / 5.000_001), (Some(0.5), 0.5 / 5.000_001)]
        {
            let factors = unscale_and_check(&[&[3.0 * 8.0], &[4.0 * 8.0]], 0.125, Threads::Caller).factors(clip);
            assert_eq!(factors, Some(GradientFactors { inverse_scale: 0.125, clip: expected as f32 }));
        }
    }

    proptest! {
        #[test]
        fn any_gradients(bits in prop::collection::vec(any::<u32>(), 0..400), cut in 0usize..400, exponent in -20i32..=0) {
            let g: Vec<f32> = bits.into_iter().map(f32::from_bits).filter(|g| g.is_finite()).collect();
            let inverse = 2f32.powi(exponent);
            // What unscaling would leave of subnormal numbers, the pass still counts.
            let normal: Vec<f32> = g.iter().map(|&g| if (g * inverse).is_normal() { g } else { 0.0 }).collect();
            let (left, right) = normal.split_at(cut.min(normal.len()));
            check(&[left, right], inverse);
        }
    }
}
