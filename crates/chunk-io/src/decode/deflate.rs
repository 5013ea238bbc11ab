#![forbid(unsafe_code)]

use libdeflater::{DecompressionError, Decompressor};

use super::corrupt::{Corrupt, Density};
use super::scratch::Scratch;

const FILTER: &str = "deflate";

/// The densest stream repeats 258 bytes by two bits.
const DENSITY: Density = Density { filter: FILTER, expansion_max: 1032 };

/// Decompresses a stream in zlib's format (RFC 1950), which is to hold `expected` bytes. What
/// follows the stream is passed over, as HDF5 passes over it.
pub(super) fn decompress(
    decompressor: &mut Decompressor,
    stored: &[u8],
    out: &mut Scratch,
    expected: usize,
) -> Result<usize, Corrupt> {
    DENSITY.check(stored.len(), expected)?;
    match decompressor.zlib_decompress(stored, out.provide(expected)) {
        Ok(found) if found == expected => Ok(found),
        Ok(found) => Err(Corrupt::TooShort { filter: FILTER, found, expected }),
        Err(DecompressionError::InsufficientSpace) => Err(Corrupt::TooLong { filter: FILTER, expected }),
        Err(DecompressionError::BadData) => Err(Corrupt::Deflate { stored_bytes: stored.len() }),
    }
}
