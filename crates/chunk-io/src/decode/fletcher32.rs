//! HDF5's Fletcher-32 (`H5_checksum_fletcher32`): over 16-bit words, the first byte the more
//! significant, an odd last byte followed by zero.
use super::Corrupt;
use super::pipeline::CHECKSUM_BYTES;

/// Words that are summed side by side.
const LANES: usize = 32;

/// Words of a lane until its sum of sums, at most 65535 · n(n+1)/2, could leave 32 bits.
const STEPS_MAX: usize = 360;

/// Checks the checksum in the last four bytes, little-endian; returns how many bytes precede it.
pub(super) fn verify(bytes: &[u8]) -> Result<usize, Corrupt> {
    let (data, stored) =
        bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(Corrupt::ChecksumAbsent { found: bytes.len() })?;
    let (expected, found) = (u32::from_le_bytes(*stored), checksum(data));
    // Releases before 1.6.3 swapped the bytes of each half on little-endian machines, and HDF5
    // takes either.
    let swapped = (found & 0x00ff_00ff) << 8 | found >> 8 & 0x00ff_00ff;
    if expected != found && expected != swapped {
        return Err(Corrupt::Checksum { expected, found });
    }
    Ok(data.len())
}

/// The sum of the words and the sum of its values after each word, both modulo 65535 (with 65535
/// for 0 unless every word is 0).
///
/// Here words are read with the first byte the less significant: swapping the bytes of a word
/// multiplies it by 256 modulo 65535, and so the sums.
fn checksum(data: &[u8]) -> u32 {
    let mut sums = FletcherSums::default();
    let mut blocks = data.chunks_exact(2 * LANES * STEPS_MAX);
    blocks.by_ref().for_each(|block| sums.add_block(block));
    let rest = blocks.remainder();
    let (block, tail) = rest.split_at(rest.len() / (2 * LANES) * (2 * LANES));
    sums.add_block(block);
    let (words, odd) = tail.as_chunks::<2>();
    words.iter().for_each(|&word| sums.add_word(u16::from_le_bytes(word)));
    odd.iter().for_each(|&byte| sums.add_word(u16::from(byte)));
    reduced(sums.sum2 << 8) << 16 | reduced(sums.sum1 << 8)
}

/// Both below 2^48.
#[derive(Default)]
struct FletcherSums {
    sum1: u64,
    sum2: u64,
}

impl FletcherSums {
    fn add_word(&mut self, word: u16) {
        self.sum1 += u64::from(word);
        self.sum2 = u64::from(reduced(self.sum2 + self.sum1));
    }

    /// Adds at most [`STEPS_MAX`] words a lane.
    ///
    /// Word l of step j counts once in the lane's sum, and once for each step from j on, J − j
    /// times, in its sum of sums. Of all L·J words it is followed by L·(J − j) − l, itself
    /// included, which is how often it counts in the block's sum of sums.
    fn add_block(&mut self, block: &[u8]) {
        let (words, mut sum1, mut sum2) = (block.len() / 2, [0u32; LANES], [0u32; LANES]);
        for step in block.as_chunks::<{ 2 * LANES }>().0 {
            for (lane, &word) in step.as_chunks::<2>().0.iter().enumerate() {
                sum1[lane] += u32::from(u16::from_le_bytes(word));
                sum2[lane] += sum1[lane];
            }
        }
        let lanes = || sum1.iter().zip(&sum2).map(|(&sum, &sums)| (u64::from(sum), u64::from(sums)));
        let block_sum2: u64 = (0..).zip(lanes()).map(|(lane, (sum, sums))| LANES as u64 * sums - lane * sum).sum();
        self.sum2 = u64::from(reduced(self.sum2 + self.sum1 * words as u64 + block_sum2));
        self.sum1 = u64::from(reduced(self.sum1 + lanes().map(|(sum, _)| sum).sum::<u64>()));
    }
}

/// `sum` modulo 65535, with 65535 for 0 unless it is 0: what adding the carries back leaves.
fn reduced(sum: u64) -> u32 {
    if sum == 0 { 0 } else { ((sum - 1) % 0xffff + 1) as u32 }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition.
    pub(in super::super) fn plain_checksum(data: &[u8]) -> u32 {
        let (mut sum1, mut sum2) = (0u32, 0u32);
        let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
        for word in data.chunks(2) {
            sum1 = fold(sum1 + (u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))));
            sum2 = fold(sum2 + sum1);
        }
        fold(sum2) << 16 | fold(sum1)
    }

    fn with_checksum(data: &[u8], checksum: u32) -> Vec<u8> {
        [data, &checksum.to_le_bytes()].concat()
    }

    #[test]
    fn checksums_are_those_of_the_library() {
        // What h5py stores behind these bytes.
        let cases: [(&[u8], u32); 4] =
            [(b"", 0), (&[0, 0, 1, 0, 2, 0, 3, 0], 0x0a00_0600), (&[0xff; 6], 0xffff_ffff), (b"abcde", 0x4ff0_29c7)];
        for (data, expected) in cases {
            assert_eq!(plain_checksum(data), expected, "{data:?}");
            assert_eq!(checksum(data), expected, "{data:?}");
        }
    }

    #[test]
    fn every_length_around_a_lane_and_a_block_is_summed() {
        let block = 2 * LANES * STEPS_MAX;
        let data: Vec<u8> = (0..2 * block as u32 + 100).map(|k| (k.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let ones = vec![0xff; data.len()];
        let lengths = (0..300).chain(block - 3..block + 70).chain(2 * block - 1..2 * block + 100);
        for len in lengths {
            assert_eq!(checksum(&data[..len]), plain_checksum(&data[..len]), "{len} bytes");
            assert_eq!(checksum(&ones[..len]), plain_checksum(&ones[..len]), "{len} bytes of ones");
        }
    }

    #[test]
    fn a_checksum_is_taken_in_either_byte_order_of_its_halves() {
        let data = b"some bytes of a chunk";
        let right = plain_checksum(data);
        assert_eq!(verify(&with_checksum(data, right)), Ok(data.len()));
        assert_eq!(verify(&with_checksum(data, right.swap_bytes().rotate_left(16))), Ok(data.len()));
        let wrong = Corrupt::Checksum { expected: right ^ 1, found: right };
        assert_eq!(verify(&with_checksum(data, right ^ 1)), Err(wrong));
    }

    #[test]
    fn too_few_bytes_for_a_checksum_are_refused() {
        for len in 0..CHECKSUM_BYTES {
            assert_eq!(verify(&vec![0; len]), Err(Corrupt::ChecksumAbsent { found: len }));
        }
        assert_eq!(verify(&[0; CHECKSUM_BYTES]), Ok(0));
    }

    proptest! {
        #[test]
        fn any_bytes_have_the_plain_checksum(data in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(checksum(&data), plain_checksum(&data));
        }
    }
}
