//! Counter-based random numbers: every draw is a pure function of (seed, name, index).
//!
//! No draw depends on how many came before it, so that a tensor's initial values do not change when
//! another tensor is added, and a resumed run needs no generator state. The generator is Philox4x32
//! with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the key is
//! the seed, the counter is the index in its low half and the FNV-1a hash of the name in its high
//! half.

/// A sequence of random numbers: one seed and one name.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// The key.
    pub seed: u64,
    /// Name of the sequence, which distinguishes the sequences of a seed.
    pub name: &'a str,
}

/// The `index`-th number of the stream, uniform in [0, 1), a multiple of 2⁻⁵³.
pub fn uniform(stream: Stream<'_>, index: u64) -> f64 {
    const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
    (bits(stream, index) >> 11) as f64 * UNIT
}

/// The `index`-th 64 bits of the stream.
pub fn bits(stream: Stream<'_>, index: u64) -> u64 {
    let [i0, i1] = halves(index);
    let [n0, n1] = halves(fnv1a(stream.name));
    let [x0, x1, ..] = philox4x32(halves(stream.seed), [i0, i1, n0, n1]);
    u64::from(x0) | u64::from(x1) << 32
}

/// Rounds of Philox4x32-10.
pub const PHILOX_ROUNDS: usize = 10;
/// Multipliers of the even words of the counter in each round of Philox4x32.
pub const PHILOX_MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Increments of the words of the key in each round of Philox4x32.
pub const PHILOX_KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox4x32: four random words of a key and a counter.
pub fn philox4x32(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..PHILOX_ROUNDS {
        let [low0, high0] = halves(u64::from(counter[0]) * u64::from(PHILOX_MULTIPLIERS[0]));
        let [low1, high1] = halves(u64::from(counter[2]) * u64::from(PHILOX_MULTIPLIERS[1]));
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [0, 1].map(|half| key[half].wrapping_add(PHILOX_KEY_STEPS[half]));
    }
    counter
}

/// The 64-bit FNV-1a hash of a name.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The low and the high 32 bits.
pub fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(philox4x32(key, counter), answer);
        }
    }

    #[test]
    fn draws_are_uniform_and_differ_by_seed_name_and_index() {
        let stream = Stream { seed: 1, name: "a" };
        let mean = (0..10_000).map(|i| uniform(stream, i)).sum::<f64>() / 1e4;
        // Five standard errors of the mean of 10,000 uniform numbers.
        assert!((mean - 0.5).abs() < 5.0 * (1.0 / 12.0f64).sqrt() / 100.0, "{mean}");
        assert_eq!(bits(stream, 3), bits(stream, 3));
        for other in [bits(Stream { seed: 2, ..stream }, 3), bits(Stream { name: "b", ..stream }, 3), bits(stream, 4)] {
            assert_ne!(bits(stream, 3), other);
        }
    }
}
