//! Decompresses liblzf's format, which h5py's filter `lzf` writes.
//!
//! A stream is a sequence of runs, each begun by a byte c:
//!
//! - c < 32: c + 1 literal bytes follow.
//! - otherwise a back reference: n = c >> 5 is its length less 2; where n is 7 the next byte is added to it. The last byte is the lower
//!   part of the distance less 1, the lower five bits of c the upper part. A reference may overlap what it writes.
//!
//! The fast form differs from one that copies byte by byte in three things. (1) It copies whole vectors, also past the end of a run: what is
//! wrong there is overwritten by the next one, and the memory is longer than the chunk. (2) It takes literals and the reference that
//! mostly follows them together, with no literals as a case of some, as a branch on which it is would be guessed wrong half of the time.
//! (3) Where a reference overlaps itself by less than a vector, a vector is filled with its bytes again and again, and then stored.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use super::corrupt::{Corrupt, Density};
use super::scratch::Scratch;

const FILTER: &str = "LZF";

const LITERALS_MAX: usize = 32;
const REFERENCE_MAX: usize = 264;

/// The longest reference takes three bytes.
const DENSITY: Density = Density { filter: FILTER, expansion_max: REFERENCE_MAX / 3 };

/// Bytes that the fast form copies of a reference at a time.
const VECTOR: usize = 16;

/// What a step of the fast form reads and writes at most, a run of literals and a reference.
const STEP_READ_MAX: usize = 1 + LITERALS_MAX + 3;
const STEP_WRITTEN_MAX: usize = LITERALS_MAX + REFERENCE_MAX + VECTOR;

/// Decompresses a stream that is to hold `expected` bytes; returns how many it held, which is `expected`.
pub(super) fn decompress(stored: &[u8], (out, expected): (&mut Scratch, usize)) -> Result<usize, Corrupt> {
    DENSITY.check(stored.len(), expected)?;
    let mut stream = Stream { stored, read: 0, out: out.provide(expected + STEP_WRITTEN_MAX), written: 0, expected };
    stream.wide_runs()?;
    while stream.read < stored.len() && stream.written <= expected {
        stream.run()?;
    }
    match stream.written {
        found if found < expected => Err(Corrupt::TooShort { filter: FILTER, found, expected }),
        found if found > expected => Err(Corrupt::TooLong { filter: FILTER, expected }),
        found => Ok(found),
    }
}

/// A stream half decompressed. `out` has [`STEP_WRITTEN_MAX`] bytes more than are expected.
struct Stream<'a> {
    stored: &'a [u8],
    read: usize,
    out: &'a mut [u8],
    written: usize,
    expected: usize,
}

impl Stream<'_> {
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
        let (length, distance, bytes) = reference(from).ok_or_else(cut_off)?;
        if distance > self.written {
            return Err(Corrupt::LzfReference { at, distance, written: self.written });
        }
        for to in self.written..self.written + length {
            self.out[to] = self.out[to - distance];
        }
        self.read += bytes;
        self.written += length;
        Ok(())
    }

    /// Runs until either side has no room for another step.
    fn wide_runs(&mut self) -> Result<(), Corrupt> {
        let (stored, out) = (self.stored, &mut *self.out);
        let (mut read, mut written) = (self.read, self.written);
        while written < self.expected
            && let Some(from) = stored[read..].first_chunk::<STEP_READ_MAX>()
        {
            let literals = match usize::from(from[0]) {
                control if control < LITERALS_MAX => control + 1,
                _ => 0,
            };
            put(out, written, from[1..].first_chunk::<LITERALS_MAX>().expect("a step has the longest run"));
            written += literals;
            let at = if literals == 0 { 0 } else { literals + 1 };
            read += at;
            let from = from[at..].first_chunk::<3>().expect("a step has literals and a reference");
            if usize::from(from[0]) < LITERALS_MAX {
                continue;
            }
            let (length, distance, bytes) = reference(from).expect("three bytes are the longest reference");
            if distance > written {
                return Err(Corrupt::LzfReference { at: read, distance, written });
            }
            repeat(out, written, (distance, length));
            read += bytes;
            written += length;
        }
        (self.read, self.written) = (read, written);
        Ok(())
    }
}

/// Length, distance and bytes of the reference that `from` begins with.
#[inline(always)]
fn reference(from: &[u8]) -> Option<(usize, usize, usize)> {
    let control = usize::from(from[0]);
    let (longer, bytes) = if control >> 5 == 7 { (usize::from(*from.get(1)?), 3) } else { (0, 2) };
    let distance = (control & 31) << 8 | usize::from(*from.get(bytes - 1)?);
    Some(((control >> 5) + 2 + longer, distance + 1, bytes))
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, vector: &[u8; N]) {
    *out[at..].first_chunk_mut().expect("there is room beyond the chunk") = *vector;
}

#[inline(always)]
fn take<const N: usize>(out: &[u8], at: usize) -> [u8; N] {
    *out[at..].first_chunk().expect("there is room beyond the chunk")
}

/// Writes `length` bytes from `at` on, and up to a vector more: the `distance` bytes before, again and again.
#[inline(always)]
fn repeat(out: &mut [u8], at: usize, (distance, length): (usize, usize)) {
    if distance < VECTOR {
        return fill(out, at, (distance, length));
    }
    let mut to = at;
    while to < at + length {
        let vector: [u8; VECTOR] = take(out, to - distance);
        put(out, to, &vector);
        to += VECTOR;
    }
}

/// [`repeat`] for a distance below a vector's length.
#[inline(never)]
fn fill(out: &mut [u8], at: usize, (distance, length): (usize, usize)) {
    let bits = 8 * distance as u32;
    let mut vector = u128::from_le_bytes(take(out, at - distance)) & (u128::MAX >> (u128::BITS - bits));
    // The pattern doubles until the vector is full.
    let mut filled = bits;
    while filled < u128::BITS {
        vector |= vector << filled;
        filled *= 2;
    }
    // The next vector begins where the pattern does.
    let step = VECTOR - VECTOR % distance;
    let mut to = at;
    while to < at + length {
        put(out, to, &vector.to_le_bytes());
        to += step;
    }
}
