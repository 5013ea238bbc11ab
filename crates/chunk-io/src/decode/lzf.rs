//! Decompresses liblzf's format, which h5py's filter `lzf` writes.
//!
//! A stream is a sequence of runs, each begun by a byte c:
//!
//! - c < 32: c + 1 literal bytes follow.
//! - otherwise a back reference: n = c >> 5 is its length less 2; where n is 7 the next byte is
//!   added to it. The last byte is the lower part of the distance less 1, the lower five bits of c
//!   the upper part. A reference may overlap what it writes.
//!
//! The fast form differs from one that copies byte by byte in these things. (1) It copies a vector
//! for any short run, also past its end: the next run overwrites the excess, and the memory is
//! longer than the chunk. (2) It does not branch on the kind of a run, literals or a reference,
//! which is as good as random and would be mispredicted half of the time. Instead, the stream is
//! staged behind its output, a piece at a time, so that a run of either kind is a copy within one
//! slice. (3) Branches are left for rare cases: references that are long, overlap themselves or are
//! wrong.
use std::hint::select_unpredictable;

use super::filter_buffer::FilterBuffer;
use super::{Corrupt, Density};

const FILTER: &str = "LZF";

const LITERALS_MAX: usize = 32;
const REFERENCE_MAX: usize = 264;

/// Control bytes from this one on are followed by a byte of length.
const LENGTH_FOLLOWS: usize = 7 << 5;

/// The longest reference takes three bytes.
const DENSITY: Density = Density { filter: FILTER, expansion_max: REFERENCE_MAX / 3 };

/// Bytes that are copied at a time: the longest run of literals.
const VECTOR: usize = LITERALS_MAX;

/// Bytes that are copied at a time of a reference that is not short.
const WORD: usize = size_of::<u128>();

/// Bytes that a run reads and writes at most, in whole vectors.
const RUN_READ_MAX: usize = 1 + VECTOR;
const RUN_WRITTEN_MAX: usize = REFERENCE_MAX + VECTOR;

/// Bytes of the stream that are staged at a time. They stay in the first-level cache.
const STAGED: usize = 4096;

/// Decompresses a stream of `expected` bytes; returns their number.
pub(super) fn decompress(stored: &[u8], out: &mut FilterBuffer, expected: usize) -> Result<usize, Corrupt> {
    DENSITY.check(stored.len(), expected)?;
    let out = out.provide(expected + RUN_WRITTEN_MAX + STAGED + RUN_READ_MAX);
    let mut stream = LzfStream { stored, read: 0, out, written: 0, expected };
    while stream.written < expected && stream.read + RUN_READ_MAX < stored.len() {
        stream.staged_runs()?;
    }
    while stream.written <= expected && stream.read < stored.len() {
        stream.run()?;
    }
    match stream.written {
        found if found < expected => Err(Corrupt::TooShort { filter: FILTER, found, expected }),
        found if found > expected => Err(Corrupt::TooLong { filter: FILTER, expected }),
        found => Ok(found),
    }
}

/// A stream half decompressed. `out` has room for `expected` bytes, for a run more, and for what is
/// staged.
struct LzfStream<'a> {
    stored: &'a [u8],
    read: usize,
    out: &'a mut [u8],
    written: usize,
    expected: usize,
}

impl LzfStream<'_> {
    /// One run, byte by byte.
    fn run(&mut self) -> Result<(), Corrupt> {
        let (at, from) = (self.read, &self.stored[self.read..]);
        let cut_off = || Corrupt::LzfCutOff { at, stored_bytes: self.stored.len() };
        let control = usize::from(from[0]);
        if control < LITERALS_MAX {
            let literals = from.get(1..control + 2).ok_or_else(cut_off)?;
            self.out[self.written..][..literals.len()].copy_from_slice(literals);
            self.read += 1 + literals.len();
            self.written += literals.len();
            return Ok(());
        }
        let reference = Reference::read(from).ok_or_else(cut_off)?;
        self.read += reference.bytes;
        self.written = reference.repeat(self.out, self.written).ok_or(reference.beyond(at, self.written))?;
        Ok(())
    }

    /// The runs that begin in the next [`STAGED`] bytes of the stream, but those that its end may
    /// cut off.
    fn staged_runs(&mut self) -> Result<(), Corrupt> {
        let begin = self.out.len() - STAGED - RUN_READ_MAX;
        let from = &self.stored[self.read..];
        let staged = &from[..from.len().min(STAGED + RUN_READ_MAX)];
        self.out[begin..][..staged.len()].copy_from_slice(staged);
        let end = begin + staged.len() - RUN_READ_MAX;
        let mut at = Position { read: begin, written: self.written };
        loop {
            at = short_runs(self.out, at, Position { read: end, written: self.expected });
            if at.read >= end || at.written >= self.expected {
                break;
            }
            let reference = Reference::read(&self.out[at.read..]).expect("a run is staged whole");
            let stored_at = self.read + at.read - begin;
            let written = reference.repeat(self.out, at.written);
            at.written = written.ok_or_else(|| reference.beyond(stored_at, at.written))?;
            at.read += reference.bytes;
        }
        (self.read, self.written) = (self.read + at.read - begin, at.written);
        Ok(())
    }
}

/// Source and destination of the next run, both in one slice.
#[derive(Clone, Copy)]
struct Position {
    read: usize,
    written: usize,
}

/// Copies runs that are literals or short references until either end, or until a run that is
/// neither.
#[inline(never)]
fn short_runs(out: &mut [u8], Position { mut read, mut written }: Position, end: Position) -> Position {
    while read < end.read && written < end.written {
        let &[control, low] = out[read..].first_chunk().expect("a run is staged whole");
        let (control, literals) = (usize::from(control), usize::from(control) < LITERALS_MAX);
        let distance = ((control & 31) << 8 | usize::from(low)) + 1;
        let length = select_unpredictable(literals, control + 1, (control >> 5) + 2);
        let source = select_unpredictable(literals, read + 1, written.wrapping_sub(distance));
        // Literals lie behind what is written, so that their distance wraps around.
        let overlaps = written.wrapping_sub(source) < length;
        if overlaps | (control >= LENGTH_FOLLOWS) | (source > out.len() - VECTOR) {
            break;
        }
        out.copy_within(source..source + VECTOR, written);
        written += length;
        read += select_unpredictable(literals, control + 2, 2);
    }
    Position { read, written }
}

/// A back reference, and how many bytes of the stream it takes.
struct Reference {
    distance: usize,
    length: usize,
    bytes: usize,
}

impl Reference {
    fn read(from: &[u8]) -> Option<Self> {
        let control = usize::from(from[0]);
        let (longer, bytes) = if control >= LENGTH_FOLLOWS { (usize::from(*from.get(1)?), 3) } else { (0, 2) };
        let distance = ((control & 31) << 8 | usize::from(*from.get(bytes - 1)?)) + 1;
        Some(Reference { distance, length: (control >> 5) + 2 + longer, bytes })
    }

    /// Writes from `at` on what lies `distance` before, and up to a vector more; returns where it
    /// ends. `None` if that begins before the first byte.
    fn repeat(&self, out: &mut [u8], at: usize) -> Option<usize> {
        let end = at + self.length;
        let source = at.checked_sub(self.distance)?;
        if self.distance < WORD {
            fill(&mut out[source..end + WORD], self.distance);
            return Some(end);
        }
        let mut to = at;
        while to < end {
            out.copy_within(to - self.distance..to - self.distance + WORD, to);
            to += WORD;
        }
        Some(end)
    }

    fn beyond(&self, at: usize, written: usize) -> Corrupt {
        Corrupt::LzfReference { at, distance: self.distance, written }
    }
}

/// Repeats the first `distance` bytes of `out`, less than a word, until a word before its end.
fn fill(out: &mut [u8], distance: usize) {
    let bits = 8 * distance as u32;
    let first = u128::from_le_bytes(*out.first_chunk().expect("a reference and a word"));
    let mut word = first & (u128::MAX >> (u128::BITS - bits));
    // The bytes are doubled until the word is full.
    let mut filled = bits;
    while filled < u128::BITS {
        word |= word << filled;
        filled *= 2;
    }
    // The next word begins where the bytes do.
    let step = WORD - WORD % distance;
    let mut to = distance;
    while to < out.len() - WORD {
        *out[to..].first_chunk_mut().expect("a word before the end") = word.to_le_bytes();
        to += step;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::encode::{LzfRun, lzf};
    use super::*;

    /// The format byte by byte, on streams that are right.
    fn plain(runs: &[LzfRun]) -> Vec<u8> {
        let mut out = Vec::new();
        for run in runs {
            match run {
                LzfRun::Literals(bytes) => out.extend(bytes),
                &LzfRun::Reference { distance, length } => {
                    (0..length).for_each(|_| out.push(out[out.len() - distance]));
                }
            }
        }
        out
    }

    fn stream(runs: &[LzfRun]) -> Vec<u8> {
        let mut stream = Vec::new();
        runs.iter().for_each(|run| run.write(&mut stream));
        stream
    }

    fn decompressed(stored: &[u8], expected: usize) -> Result<Vec<u8>, Corrupt> {
        let mut scratch = FilterBuffer::default();
        // What an earlier chunk leaves in the memory is not to show.
        scratch.provide(expected + RUN_WRITTEN_MAX + STAGED + RUN_READ_MAX).fill(0xa5);
        decompress(stored, &mut scratch, expected).map(|found| scratch.filled(found).to_vec())
    }

    fn check(runs: &[LzfRun]) {
        let expected = plain(runs);
        assert_eq!(decompressed(&stream(runs), expected.len()), Ok(expected), "{runs:?}");
    }

    fn literals(length: usize) -> LzfRun {
        LzfRun::Literals((0..length as u8).map(|byte| byte.wrapping_mul(37) ^ 0x55).collect())
    }

    #[test]
    fn nothing_decompresses_to_nothing() {
        assert_eq!(decompressed(&[], 0), Ok(vec![]));
    }

    #[test]
    fn literals_of_every_length_are_copied() {
        for length in 1..=32 {
            for runs in 1..5 {
                check(&vec![literals(length); runs]);
            }
        }
    }

    #[test]
    fn references_of_every_length_overlap_at_every_small_distance() {
        // Sixty-four bytes before, and enough literals behind that the fast form sees the
        // reference.
        let before = [literals(32), literals(31), literals(1)];
        let behind = vec![literals(32); 3];
        for distance in 1..=64 {
            for length in 3..=REFERENCE_MAX {
                let reference = [LzfRun::Reference { distance, length }, LzfRun::Reference { distance: 1, length: 3 }];
                check(&[&before[..], &reference].concat());
                check(&[&before[..], &reference, &behind].concat());
            }
        }
    }

    #[test]
    fn references_reach_as_far_as_the_format_does() {
        let before = vec![literals(32); 8192 / 32];
        for distance in [255, 256, 257, 512, 8191, 8192] {
            for length in [3, 8, 9, 10, 263, 264] {
                check(&[&before[..], &[LzfRun::Reference { distance, length }, literals(32), literals(32)]].concat());
            }
        }
    }

    /// Streams that are wrong in one place, that place among the last runs and far from them.
    #[test]
    fn what_is_wrong_is_named() {
        for behind in [vec![], vec![literals(32); 4]] {
            let cut_off = |stored: &[u8], at| Err(Corrupt::LzfCutOff { at, stored_bytes: stored.len() });
            let long = |runs: &[LzfRun]| [stream(runs), stream(&behind)].concat();

            let before_the_first = long(&[literals(5), LzfRun::Reference { distance: 6, length: 3 }]);
            let expected = Corrupt::LzfReference { at: 6, distance: 6, written: 5 };
            assert_eq!(decompressed(&before_the_first, 8 + 32 * behind.len()), Err(expected));

            let whole = long(&[literals(5), LzfRun::Reference { distance: 5, length: 20 }]);
            let bytes = 25 + 32 * behind.len();
            assert!(decompressed(&whole, bytes).is_ok());
            assert_eq!(decompressed(&whole, bytes - 1), Err(Corrupt::TooLong { filter: FILTER, expected: bytes - 1 }));
            assert_eq!(decompressed(&whole, 24), Err(Corrupt::TooLong { filter: FILTER, expected: 24 }));
            let short = Corrupt::TooShort { filter: FILTER, found: bytes, expected: bytes + 1 };
            assert_eq!(decompressed(&whole, bytes + 1), Err(short));

            let mut cut = whole.clone();
            cut.push(31);
            assert_eq!(decompressed(&cut, bytes), cut_off(&cut, whole.len()));
            cut.extend([0; 31]);
            assert_eq!(decompressed(&cut, bytes), cut_off(&cut, whole.len()));
            for head in [&[0x20][..], &[0xe0], &[0xe0, 9]] {
                let cut = [&whole, head].concat();
                assert_eq!(decompressed(&cut, bytes), cut_off(&cut, whole.len()));
            }
        }
    }

    #[test]
    fn memory_is_not_taken_for_what_a_stream_cannot_hold() {
        let expected = 88 * 3 + 1;
        let found = Corrupt::Implausible { filter: FILTER, stored_bytes: 3, found: 264, expected };
        let mut scratch = FilterBuffer::default();
        assert_eq!(decompress(&[0; 3], &mut scratch, expected), Err(found));
        assert_eq!(scratch.bytes(), 0);
    }

    fn runs() -> impl Strategy<Value = Vec<LzfRun>> {
        let literals = prop::collection::vec(any::<u8>(), 1..=32).prop_map(LzfRun::Literals);
        let length = prop_oneof![3usize..12, 3usize..=REFERENCE_MAX];
        let reference = (prop_oneof![1usize..40, 1usize..=8192], length)
            .prop_map(|(distance, length)| LzfRun::Reference { distance, length });
        prop::collection::vec(prop_oneof![literals, reference], 0..200).prop_map(within_what_precedes)
    }

    /// Brings the distances to within what was written.
    fn within_what_precedes(mut runs: Vec<LzfRun>) -> Vec<LzfRun> {
        let mut written = 0;
        runs.retain_mut(|run| {
            if let LzfRun::Reference { distance, .. } = run {
                *distance = (*distance).min(written);
            }
            written += match run {
                LzfRun::Literals(bytes) => bytes.len(),
                LzfRun::Reference { distance: 0, .. } => return false,
                LzfRun::Reference { length, .. } => *length,
            };
            true
        });
        runs
    }

    proptest! {
        #[test]
        fn any_runs_are_what_they_say(runs in runs()) {
            let expected = plain(&runs);
            prop_assert_eq!(decompressed(&stream(&runs), expected.len()), Ok(expected));
        }

        #[test]
        fn what_was_compressed_comes_back(bytes in prop::collection::vec(0u8..4, 0..3000)) {
            prop_assert_eq!(decompressed(&lzf(&bytes), bytes.len()), Ok(bytes));
        }

        #[test]
        fn any_bytes_end_in_an_answer(stored in prop::collection::vec(any::<u8>(), 0..600), expected in 0usize..4000) {
            if let Ok(bytes) = decompressed(&stored, expected) {
                prop_assert_eq!(bytes.len(), expected);
            }
        }

        #[test]
        fn a_changed_byte_or_a_cut_ends_in_an_answer(runs in runs(), at: prop::sample::Index, byte: u8) {
            let (expected, mut stored) = (plain(&runs).len(), stream(&runs));
            if stored.is_empty() {
                return Ok(());
            }
            let at = at.index(stored.len());
            prop_assert!(decompressed(&stored[..at], expected).is_err() || expected == 0);
            stored[at] = byte;
            let _ = decompressed(&stored, expected);
        }
    }
}
