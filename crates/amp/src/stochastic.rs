//! bf16 by chance, so that the mean of what a number is rounded to is the number.
//!
//! ```text
//! upper half of (bits of x + 16 random bits)
//! ```
//!
//! The lower half of x, over 2¹⁶, is the probability of a carry, and the distance to the upper
//! neighbour is the unit of the upper half: in the mean nothing is lost (Gupta et al., "Deep
//! learning with limited numerical precision", 2015, section 3.1).
//!
//! The bits are those of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
//! 3", 2011), a function of a key and a counter: the key is the seed, the upper half of the counter
//! the step, its lower half ⌊i / 128⌋ · 16 + i mod 16 for element i, which takes the ⌊i / 16⌋ mod
//! 8-th of the eight times 16 bits. So sixteen counters at a time give 128 elements their bits
//! without a transposition.

#![forbid(unsafe_code)]

use half::bf16;

use megabatch_gpu_core::isa::{Isa, Loops};

/// Counters that are worked on side by side.
pub(crate) const LANES: usize = 16;

/// Pieces of 16 bits that a counter gives.
const PIECES: usize = 8;

/// Elements that share a row of counters.
pub(crate) const BLOCK: usize = LANES * PIECES;

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Where random bits come from: for each element a function of these three and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Seed of the run.
    pub seed: u64,
    /// Step of the run.
    pub step: u64,
    /// Index of the first element among all of the step.
    pub first_index: u64,
}

/// Rounds `from` to one of the two neighbours in bf16, to each with the probability that makes
/// `from` the mean. A bf16 stays what it is; beyond the largest one the upper neighbour is
/// infinity; a NaN stays one.
///
/// # Panics
/// If the lengths differ.
pub fn round_stochastic(from: &[f32], to: &mut [bf16], noise: Noise) {
    assert_eq!(from.len(), to.len(), "numbers are rounded to as many");
    Isa::best().run(Rounding { from, to, noise });
}

struct Rounding<'a> {
    from: &'a [f32],
    to: &'a mut [bf16],
    noise: Noise,
}

impl Loops for Rounding<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Noise { seed, step, mut first_index } = self.noise;
        let (mut from, mut to) = (self.from, self.to);
        while !from.is_empty() {
            // The first block may have begun before, and the last one may go on.
            let skipped = (first_index % BLOCK as u64) as usize;
            let pieces = pieces(seed, step, first_index / BLOCK as u64);
            let len = from.len().min(BLOCK - skipped);
            let (from_rest, to_rest) = (&from[len..], to.split_off_mut(len..).unwrap_or_default());
            for ((to, &from), &piece) in to.iter_mut().zip(&from[..len]).zip(&pieces[skipped..]) {
                *to = round(from, piece);
            }
            (from, to, first_index) = (from_rest, to_rest, first_index + len as u64);
        }
    }
}

#[inline(always)]
fn round(x: f32, piece: u16) -> bf16 {
    const QUIET: u16 = 0x0040;
    let bits = x.to_bits();
    let carried = (bits.wrapping_add(u32::from(piece)) >> 16) as u16;
    bf16::from_bits(if x.is_nan() { (bits >> 16) as u16 | QUIET } else { carried })
}

/// The random bits of the elements `block` · 128 and after.
#[inline(always)]
fn pieces(seed: u64, step: u64, block: u64) -> [u16; BLOCK] {
    let counter = |lane: usize| block.wrapping_mul(LANES as u64).wrapping_add(lane as u64);
    let words = philox(
        [seed as u32, (seed >> 32) as u32],
        [
            std::array::from_fn(|lane| counter(lane) as u32),
            std::array::from_fn(|lane| (counter(lane) >> 32) as u32),
            [step as u32; LANES],
            [(step >> 32) as u32; LANES],
        ],
    );
    let mut pieces = [0; BLOCK];
    for (word, pieces) in words.iter().zip(pieces.chunks_exact_mut(2 * LANES)) {
        let (low, high) = pieces.split_at_mut(LANES);
        for ((low, high), &word) in low.iter_mut().zip(high).zip(word) {
            (*low, *high) = (word as u16, (word >> 16) as u16);
        }
    }
    pieces
}

/// Ten rounds of Philox4x32 for sixteen counters.
#[inline(always)]
fn philox(mut key: [u32; 2], mut counter: [[u32; LANES]; 4]) -> [[u32; LANES]; 4] {
    for _ in 0..ROUNDS {
        let [even, odd] = [0, 1].map(|half| {
            let products = counter[2 * half].map(|word| u64::from(word) * u64::from(MULTIPLIERS[half]));
            (products.map(|product| product as u32), products.map(|product| (product >> 32) as u32))
        });
        let mixed = |high: [u32; LANES], word: [u32; LANES], key: u32| {
            std::array::from_fn(|lane| high[lane] ^ word[lane] ^ key)
        };
        counter = [mixed(odd.1, counter[1], key[0]), odd.0, mixed(even.1, counter[3], key[1]), even.0];
        key = [0, 1].map(|half| key[half].wrapping_add(KEY_STEPS[half]));
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Noise = Noise { seed: 0x0123_4567_89ab_cdef, step: 11, first_index: 0 };

    /// The known answers that the authors publish with Random123.
    #[test]
    fn philox_gives_the_published_answers() {
        let cases = [
            ([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 2], [u32::MAX; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (key, counter, answer) in cases {
            assert_eq!(philox(key, counter.map(|word: u32| [word; LANES])), answer.map(|word: u32| [word; LANES]));
        }
    }

    #[test]
    fn bits_are_a_function_of_seed_step_and_index() {
        let from = vec![1.0 + f32::EPSILON * 9000.0; 5 * BLOCK + 3];
        let rounded = |noise: Noise, from: &[f32]| {
            let mut to = vec![bf16::NAN; from.len()];
            round_stochastic(from, &mut to, noise);
            to
        };
        let whole = rounded(NOISE, &from);
        for (start, len) in [(0, 0), (0, 1), (1, 1), (127, 2), (128, 128), (130, 300), (5 * BLOCK, 3)] {
            let noise = Noise { first_index: start as u64, ..NOISE };
            assert_eq!(rounded(noise, &from[start..start + len]), whole[start..start + len], "{start}, {len}");
        }
        for other in [Noise { seed: 1, ..NOISE }, Noise { step: 12, ..NOISE }, Noise { first_index: 1 << 40, ..NOISE }]
        {
            assert_ne!(rounded(other, &from), whole);
        }
    }

    #[test]
    fn instruction_sets_round_alike() {
        let from: Vec<f32> = (0..1000u32).map(|k| f32::from_bits(k.wrapping_mul(2_654_435_761))).collect();
        let rounded = Isa::all().into_iter().map(|isa| {
            let mut to = vec![bf16::ZERO; from.len()];
            isa.run(Rounding { from: &from, to: &mut to, noise: Noise { first_index: 5, ..NOISE } });
            to.into_iter().map(bf16::to_bits).collect::<Vec<u16>>()
        });
        let rounded: Vec<_> = rounded.collect();
        assert!(rounded.iter().all(|bits| *bits == rounded[0]));
    }

    /// Over all 2¹⁶ draws, the mean of what a number is rounded to is the number, exactly.
    #[test]
    fn rounding_is_unbiased_over_all_draws() {
        for x in [1.0f32, 1.000_1, -0.3, 3.3, -1e-30, 7.7e20, f32::from_bits(0x0001_2345), f32::MIN_POSITIVE] {
            let sum: f64 = (0..=u16::MAX).map(|piece| round(x, piece).to_f64()).sum();
            assert_eq!(sum / 65_536.0, f64::from(x), "{x:e}");
        }
    }

    #[test]
    fn rounding_is_unbiased_over_the_elements_of_steps() {
        const STEPS: u64 = 40;
        let from: Vec<f32> = (0..4096).map(|k| 1.0 + (k as f32 + 0.5) / 4096.0).collect();
        let (mut error, mut variance) = (0.0, 0.0);
        let mut to = vec![bf16::ZERO; from.len()];
        for step in 0..STEPS {
            round_stochastic(&from, &mut to, Noise { step, ..NOISE });
            for (&from, &to) in from.iter().zip(&to) {
                let unit = 2f64.powi(-7);
                let share = f64::from(from) / unit % 1.0;
                error += to.to_f64() - f64::from(from);
                variance += share * (1.0 - share) * unit * unit;
            }
        }
        // Five standard deviations, about 6. Always up would be off by 640; to nearest by nothing,
        // which the second assertion tells apart.
        assert!(error.abs() < 5.0 * variance.sqrt(), "{error} of {}", variance.sqrt());
        assert!(to.iter().zip(&from).any(|(to, &from)| (to.to_f32() - from).abs() > 2f32.powi(-8)), "not to nearest");
    }

    /// Small updates that rounding to nearest would lose add up.
    #[test]
    fn what_is_smaller_than_a_unit_is_not_lost() {
        let mut sums = vec![bf16::ONE; 1000];
        let mut to = sums.clone();
        for step in 0..256 {
            let next: Vec<f32> = sums.iter().map(|sum| sum.to_f32() + 1.0 / 1024.0).collect();
            round_stochastic(&next, &mut to, Noise { step, ..NOISE });
            sums.copy_from_slice(&to);
        }
        let mean = sums.iter().map(|sum| sum.to_f64()).sum::<f64>() / 1000.0;
        // 256 roundings, each of variance 2⁻¹⁴ · 7/64, in 1,000 sums: five standard errors of the
        // mean.
        assert!((mean - 1.25).abs() < 5.0 * (256.0 * 2f64.powi(-14) * 7.0 / 64.0 / 1000.0).sqrt(), "{mean}");
    }

    #[test]
    fn values_that_are_not_ordinary() {
        for piece in [0, 1, 0x7fff, 0xffff] {
            for x in [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1.5, -2.0] {
                assert_eq!(round(x, piece).to_f32().to_bits(), x.to_bits());
            }
            assert!(round(f32::NAN, piece).is_nan() && round(f32::from_bits(u32::MAX), piece).is_nan());
            assert!(round(f32::from_bits(0x7f80_0001), piece).is_nan());
        }
        assert_eq!((round(f32::MAX, 0), round(f32::MAX, 0xffff)), (bf16::MAX, bf16::INFINITY));
    }
}
