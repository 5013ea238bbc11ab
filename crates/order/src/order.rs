//! The order in which an epoch visits its samples: a pure function of (seed, epoch, position) and
//! of the run length.
//!
//! Samples are visited in *runs* of consecutive ones, and the runs in random order. Any position is
//! found in constant time and without a table: the runs' permutation is a Feistel network over the
//! next power of four, walked until it lands inside (Black and Rogaway, "Ciphers with arbitrary
//! finite domains", 2002).

use crate::error::{Error, Result};
use crate::random::{Stream, bits};

/// Number of samples, and their shuffling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Number of samples N.
    samples: usize,
    /// Samples in a run.
    run_length: usize,
    seed: u64,
}

impl Order {
    /// The order of `samples` samples in runs of `run_length`; 1 shuffles them fully.
    ///
    /// # Errors
    /// [`Error::Zero`] when the run length is 0.
    pub fn new(samples: usize, run_length: usize, seed: u64) -> Result<Self> {
        if run_length == 0 {
            return Err(Error::Zero { size: "run length" });
        }
        Ok(Order { samples, run_length, seed })
    }

    /// The samples one after the other: one run of all of them, in every epoch.
    pub fn sequential(samples: usize) -> Self {
        Order { samples, run_length: usize::MAX, seed: 0 }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The order of one epoch, counted from 0.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        let key = bits(Stream { seed: self.seed, name: "order" }, epoch);
        let runs = self.samples / self.run_length;
        let short = self.samples % self.run_length;
        let short_at = (u128::from(bits(Stream { seed: key, name: "short run" }, 0)) * (runs as u128 + 1)) >> 64;
        EpochOrder {
            samples: self.samples,
            run_length: self.run_length,
            short,
            short_at: short_at as usize,
            runs: Permutation::new(runs as u64, key),
        }
    }
}

/// The order of one epoch.
///
/// When the run length does not divide N, one run is shorter. Its place among the samples is drawn
/// anew in every epoch and it comes last, so that the runs before it stay aligned with batches of
/// their length.
#[derive(Clone, Copy, Debug)]
pub struct EpochOrder {
    samples: usize,
    run_length: usize,
    /// Length of the short run; 0 if there is none.
    short: usize,
    /// Number of full runs that lie before the short one among the samples.
    short_at: usize,
    runs: Permutation,
}

impl EpochOrder {
    /// The sample at `position`.
    ///
    /// # Panics
    /// If the position is not below the number of samples.
    pub fn sample(&self, position: usize) -> usize {
        assert!(position < self.samples, "position {position} of {}", self.samples);
        let (run, within) = (position / self.run_length, position % self.run_length);
        if run as u64 == self.runs.len {
            return self.short_at * self.run_length + within;
        }
        let run = self.runs.image(run as u64) as usize;
        let shift = if run >= self.short_at { self.short } else { 0 };
        run * self.run_length + shift + within
    }
}

/// A random permutation of 0..len that is computed and not stored.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    len: u64,
    key: u64,
    /// Bits of each half of the network's domain, which is 4 to the power of this.
    half_bits: u32,
}

impl Permutation {
    fn new(len: u64, key: u64) -> Self {
        let domain_bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Permutation { len, key, half_bits: domain_bits.div_ceil(2) }
    }

    /// The image of `x`. The domain is less than four times `len` (or has four elements), so that
    /// few walks are long.
    fn image(&self, x: u64) -> u64 {
        let mut y = self.feistel(x);
        while y >= self.len {
            y = self.feistel(y);
        }
        y
    }

    /// Eight rounds of a balanced Feistel network, a bijection whatever its round function is.
    fn feistel(&self, x: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..8 {
            (left, right) = (right, left ^ (mix(right ^ mix(self.key.wrapping_add(round))) & mask));
        }
        left << self.half_bits | right
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the result depends on
/// every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn visited(samples: usize, run_length: usize, seed: u64, epoch: u64) -> Vec<usize> {
        let order = Order::new(samples, run_length, seed).unwrap().epoch(epoch);
        (0..samples).map(|position| order.sample(position)).collect()
    }

    proptest! {
        #[test]
        fn every_sample_comes_once_and_in_runs(
            samples in 0usize..700, run_length in 1usize..40, seed in any::<u64>(), epoch in 0u64..5,
        ) {
            let order = visited(samples, run_length, seed, epoch);
            for run in order.chunks(run_length) {
                prop_assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 1), "{run:?}");
            }
            let mut sorted = order;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..samples).collect::<Vec<_>>());
        }

        #[test]
        fn large_permutations_stay_inside(len in 1u64.., key in any::<u64>(), at in any::<u64>()) {
            let permutation = Permutation::new(len % (1 << 50) + 1, key);
            prop_assert!(permutation.image(at % permutation.len) < permutation.len);
        }
    }

    #[test]
    fn seed_and_epoch_change_the_order() {
        let order = visited(100, 1, 7, 0);
        assert_eq!(order, visited(100, 1, 7, 0));
        assert_ne!(order, visited(100, 1, 7, 1));
        assert_ne!(order, visited(100, 1, 8, 0));
        assert_ne!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn one_run_of_everything_is_the_order_of_time() {
        for run_length in [5, 6, usize::MAX] {
            assert_eq!(visited(5, run_length, 1, 2), [0, 1, 2, 3, 4]);
        }
        let sequential = Order::sequential(5).epoch(3);
        assert_eq!((0..5).map(|position| sequential.sample(position)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(Order::sequential(0).is_empty());
        assert_eq!(Order::new(5, 0, 1), Err(Error::Zero { size: "run length" }));
    }

    /// Existing training runs resume in this order, so it must not change. The numbers were
    /// computed by another program from the definition: Philox4x32-10, FNV-1a, SplitMix64 and eight
    /// Feistel rounds.
    #[test]
    fn the_order_of_existing_runs_does_not_change() {
        assert_eq!(visited(10, 1, 0, 0), [6, 7, 9, 0, 4, 1, 2, 3, 5, 8]);
        assert_eq!(visited(11, 4, 3, 1), [3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2]);
        let million = Order::new(1_000_003, 64, 42).unwrap().epoch(7);
        for (position, sample) in
            [(0, 336_000), (1, 336_001), (63, 336_063), (64, 299_648), (12_345, 123_065), (1_000_002, 758_210)]
        {
            assert_eq!(million.sample(position), sample);
        }
        let huge = Order::new(1 << 40, 1, u64::MAX).unwrap().epoch(1 << 63);
        for (position, sample) in [(0, 80_490_755_745), (12_345, 715_157_082_397), ((1 << 40) - 1, 1_008_519_319_163)] {
            assert_eq!(huge.sample(position), sample);
        }
    }

    #[test]
    fn the_short_run_comes_last_and_from_everywhere() {
        let starts: Vec<usize> = (0..200).map(|epoch| visited(11, 4, 3, epoch)[8]).collect();
        for start in [0, 4, 8] {
            assert!(starts.contains(&start), "the short run never starts at {start}");
        }
    }

    /// A sample's mean position over many epochs is the middle, within five standard errors.
    #[test]
    fn no_sample_prefers_a_place() {
        const EPOCHS: u64 = 2_000;
        for samples in [2usize, 3, 5, 17] {
            let mut sums = vec![0.0; samples];
            for epoch in 0..EPOCHS {
                let order = visited(samples, 1, 42, epoch);
                order.iter().enumerate().for_each(|(position, &sample)| sums[sample] += position as f64);
            }
            let middle = (samples - 1) as f64 / 2.0;
            let error = ((samples * samples - 1) as f64 / 12.0 / EPOCHS as f64).sqrt();
            for sum in sums {
                let mean = sum / EPOCHS as f64;
                assert!((mean - middle).abs() < 5.0 * error, "{samples} samples: {mean} for {middle}");
            }
        }
    }
}
