//! Decoding of stored chunks to f32: undoes HDF5's filters, converts byte order and width.
//!
//! Nothing here opens a file or calls HDF5's library. Any bytes may be given; invalid ones are a
//! [`Corrupt`] error.
//!
//! Lower bound of the cost, for a chunk of n bytes decoded: a decompressor reads the stored bytes
//! and writes n. One further pass undoes shuffle, byte order and width while it copies the values:
//! it reads n bytes and writes n (f32), 2n (f16) or n/2 (f64). At 10 GB/s this pass takes 0.2 ns a
//! byte.

mod decoder;
mod filter_buffer;
mod fletcher32;
mod floats;
mod lzf;
mod pipeline;
mod planes;

#[cfg(test)]
#[path = "tests/encode.rs"]
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use decoder::{ChunkDecoder, Decoded};
pub(crate) use floats::{ByteOrder, FloatType, FloatWidth, to_f32};
pub(crate) use pipeline::{ChunkFilter, Pipeline};

/// Fault of a stored chunk. Each reads as the end of a sentence that begins with the dataset and
/// the chunk's coordinates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Corrupt {
    /// libdeflate does not say which it is.
    #[error("its deflate stream of {stored_bytes} bytes is cut off, or broken, or fails its Adler-32 checksum")]
    Deflate { stored_bytes: usize },

    #[error("its LZF stream of {stored_bytes} bytes ends within the run that begins at byte {at}")]
    LzfCutOff { at: usize, stored_bytes: usize },

    #[error("its LZF stream refers {distance} bytes back at byte {at}, where {written} bytes have been decompressed")]
    LzfReference { at: usize, distance: usize, written: usize },

    #[error(
        "expected {expected} bytes decompressed, found a {filter} stream of {stored_bytes} bytes, which holds {found} at most"
    )]
    Implausible { filter: &'static str, stored_bytes: usize, found: usize, expected: usize },

    #[error("expected {expected} bytes decompressed, found more in its {filter} stream")]
    TooLong { filter: &'static str, expected: usize },

    #[error("expected {expected} bytes decompressed, found {found} in its {filter} stream")]
    TooShort { filter: &'static str, found: usize, expected: usize },

    #[error("expected the Fletcher-32 checksum {expected:#010x}, as stored, found {found:#010x}")]
    Checksum { expected: u32, found: u32 },

    #[error("expected a Fletcher-32 checksum of 4 bytes, found {found} bytes in all")]
    ChecksumAbsent { found: usize },

    #[error("expected {expected} bytes, found {found}")]
    Length { expected: usize, found: usize },
}

/// Largest expansion of a filter, in bytes decoded per byte stored.
struct Density {
    filter: &'static str,
    expansion_max: usize,
}

impl Density {
    /// Refuses a stream that is too short to hold `expected` bytes before memory is taken for them.
    fn check(&self, stored_bytes: usize, expected: usize) -> Result<(), Corrupt> {
        let found = stored_bytes.saturating_mul(self.expansion_max);
        if found < expected {
            return Err(Corrupt::Implausible { filter: self.filter, stored_bytes, found, expected });
        }
        Ok(())
    }
}
