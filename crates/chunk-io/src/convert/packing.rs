//! Chunks as HDF5 stores them: shuffled and compressed here, on all cores, because the library has
//! one lock.

#![allow(unsafe_code, reason = "the compressor is a library of C")]

use libdeflater::{CompressionLvl, Compressor};

use crate::storage::Compression;

/// Compression of a raw chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    pub(super) element_bytes: usize,
    pub(super) compression: Compression,
}

/// A chunk as it is stored, with HDF5's filter mask: bit i says that filter i was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedChunk {
    pub(super) mask: u32,
    pub(super) bytes: Vec<u8>,
}

/// The shuffle is filter 0 of the pipeline and the compression filter 1.
const COMPRESSION_SKIPPED: u32 = 1 << 1;

impl Packing {
    /// Shuffles and compresses `raw`; a chunk that would not become smaller is stored shuffled
    /// only, as HDF5 does.
    pub(super) fn pack(self, raw: &[u8]) -> PackedChunk {
        if self.compression == Compression::None {
            return PackedChunk { mask: 0, bytes: raw.to_vec() };
        }
        let shuffled = shuffle(raw, self.element_bytes);
        let compressed = match self.compression {
            Compression::Gzip { level } => deflate(level, &shuffled),
            _ => lzf(&shuffled),
        };
        match compressed {
            Some(bytes) => PackedChunk { mask: 0, bytes },
            None => PackedChunk { mask: COMPRESSION_SKIPPED, bytes: shuffled },
        }
    }
}

/// The bytes of all elements by significance; bytes behind the last whole element stay last. One
/// byte an element stays as it is.
fn shuffle(raw: &[u8], element_bytes: usize) -> Vec<u8> {
    let elements = raw.len() / element_bytes;
    let mut shuffled = vec![0; raw.len()];
    for (byte, plane) in shuffled.chunks_exact_mut(elements.max(1)).take(element_bytes).enumerate() {
        for (out, element) in plane.iter_mut().zip(raw.chunks_exact(element_bytes)) {
            *out = element[byte];
        }
    }
    let whole = elements * element_bytes;
    shuffled[whole..].copy_from_slice(&raw[whole..]);
    shuffled
}

/// A zlib stream shorter than `bytes`, if there is one.
fn deflate(level: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    let level = CompressionLvl::new(level.min(9).into()).expect("libdeflate has levels 0 to 12");
    let mut packed = vec![0; bytes.len().checked_sub(1)?];
    let length = Compressor::new(level).zlib_compress(bytes, &mut packed).ok()?;
    packed.truncate(length);
    Some(packed)
}

/// An LZF stream shorter than `bytes`, if there is one.
fn lzf(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut packed = vec![0; bytes.len().checked_sub(1)?];
    let length = raw_lzf(bytes, &mut packed)?;
    packed.truncate(length);
    Some(packed)
}

/// The length of the stream in `out`; `None` where it would be longer, or where a length passes
/// what LZF counts to.
fn raw_lzf(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let lengths = (u32::try_from(bytes.len()).ok()?, u32::try_from(out.len()).ok()?);
    // SAFETY: the compressor reads `bytes.len()` bytes of `bytes`, writes at most `out.len()` bytes
    // of `out`, keeps its table on its own stack and no pointer after it returns.
    let length = unsafe { lzf_sys::lzf_compress(bytes.as_ptr().cast(), lengths.0, out.as_mut_ptr().cast(), lengths.1) };
    (length > 0).then_some(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shuffled_by_significance() {
        assert_eq!(shuffle(b"abcdABCD12345", 4), b"aA1bB2cC3dD45");
        assert_eq!(shuffle(b"abc", 1), b"abc");
        assert_eq!(shuffle(b"abc", 4), b"abc");
        assert_eq!(shuffle(b"", 4), b"");
    }

    #[test]
    fn what_does_not_become_smaller_is_only_shuffled() {
        let noise: Vec<u8> = (0..999_u64).map(|i| (xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()) >> 32) as u8).collect();
        for compression in [Compression::Gzip { level: 9 }, Compression::Gzip { level: 0 }, Compression::Lzf] {
            let packing = Packing { element_bytes: 4, compression };
            for raw in [&noise[..], b"", b"x"] {
                let packed = packing.pack(raw);
                assert_eq!((packed.mask, packed.bytes), (COMPRESSION_SKIPPED, shuffle(raw, 4)), "{compression:?}");
            }
        }
        let packed = Packing { element_bytes: 4, compression: Compression::Lzf }.pack(&[7; 999]);
        assert!(packed.mask == 0 && packed.bytes.len() < 100);
        let plain = Packing { element_bytes: 4, compression: Compression::None }.pack(b"abcdefgh");
        assert_eq!(plain, PackedChunk { mask: 0, bytes: b"abcdefgh".to_vec() });
    }
}
