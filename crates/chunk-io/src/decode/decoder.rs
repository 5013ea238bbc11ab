use std::mem;
use std::ops::Range;

use libdeflater::{DecompressionError, Decompressor};

use super::filter_buffer::FilterBuffer;
use super::floats::{FloatType, to_f32};
use super::pipeline::{ChunkFilter, Pipeline};
use super::{Corrupt, Density};
use super::{fletcher32, lzf, planes};

/// Undoes filters. One a thread: it owns a decompressor and the memory that it decompresses to,
/// which grows to the largest chunk that it met, and to two where a shuffle does not come first.
pub(crate) struct ChunkDecoder {
    decompressor: Decompressor,
    front: FilterBuffer,
    back: FilterBuffer,
}

impl ChunkDecoder {
    pub(crate) fn new() -> Self {
        ChunkDecoder {
            decompressor: Decompressor::new(),
            front: FilterBuffer::default(),
            back: FilterBuffer::default(),
        }
    }

    /// Undoes the filters that `stored` went through, from the last to the first: those of
    /// `pipeline` but the ones that `mask` skips (bit i for filter i, as `H5Dget_chunk_info` gives
    /// it). A shuffle that came first is left to [`Decoded::copy`].
    ///
    /// # Errors
    /// [`Corrupt`] if `stored` is invalid.
    pub(crate) fn decode<'a>(
        &'a mut self,
        pipeline: &Pipeline,
        mask: u32,
        stored: &'a [u8],
    ) -> Result<Decoded<'a>, Corrupt> {
        let mut held = CurrentBytes { stored, len: stored.len(), in_front: false };
        let mut shuffled = false;
        for (place, filter) in pipeline.active(mask).rev() {
            let expected = pipeline.bytes_before(place, mask);
            match filter {
                ChunkFilter::Shuffle { .. } if pipeline.is_first_shuffle(place, mask) => shuffled = true,
                ChunkFilter::Shuffle { element_bytes } => {
                    self.rewrite(&mut held, |_, from, to| Ok(unshuffle(element_bytes, from, to)))?;
                }
                ChunkFilter::Deflate => {
                    self.rewrite(&mut held, |decompressor, from, to| {
                        decompress_zlib(decompressor, from, to, expected)
                    })?;
                }
                ChunkFilter::Lzf => self.rewrite(&mut held, |_, from, to| lzf::decompress(from, to, expected))?,
                ChunkFilter::Fletcher32 => held.len = fletcher32::verify(held.bytes(&self.front))?,
            }
        }
        Decoded::new(pipeline, held.bytes(&self.front), shuffled)
    }

    /// Undoes a filter out of place: `undo` reads the current bytes, writes to the other buffer,
    /// and returns the number of bytes written.
    fn rewrite(
        &mut self,
        held: &mut CurrentBytes<'_>,
        undo: impl FnOnce(&mut Decompressor, &[u8], &mut FilterBuffer) -> Result<usize, Corrupt>,
    ) -> Result<(), Corrupt> {
        if held.in_front {
            mem::swap(&mut self.front, &mut self.back);
        }
        held.len = undo(&mut self.decompressor, held.bytes(&self.back), &mut self.front)?;
        held.in_front = true;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn scratch_bytes(&self) -> usize {
        self.front.bytes() + self.back.bytes()
    }
}

/// Bytes of the chunk between two filters.
struct CurrentBytes<'a> {
    stored: &'a [u8],
    len: usize,
    in_front: bool,
}

impl<'a> CurrentBytes<'a> {
    fn bytes<'b>(&self, front: &'b FilterBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.in_front { front.filled(self.len) } else { &self.stored[..self.len] }
    }
}

/// A chunk with its filters undone, except a shuffle that was applied first.
#[derive(Debug)]
pub(crate) struct Decoded<'a> {
    bytes: &'a [u8],
    float: FloatType,
    shuffled: bool,
}

impl<'a> Decoded<'a> {
    pub(super) fn new(pipeline: &Pipeline, bytes: &'a [u8], shuffled: bool) -> Result<Self, Corrupt> {
        if bytes.len() != pipeline.chunk_bytes {
            return Err(Corrupt::Length { expected: pipeline.chunk_bytes, found: bytes.len() });
        }
        Ok(Decoded { bytes, float: pipeline.float, shuffled })
    }

    /// Elements `elements` of the chunk in its row-major order, as f32: byte planes, byte order and
    /// width are undone in one pass.
    ///
    /// # Panics
    /// If `out` is of another length than the range, or the chunk ends before it.
    pub(crate) fn copy(&self, elements: Range<usize>, out: &mut [f32]) {
        assert_eq!(elements.len(), out.len(), "as many elements are copied as there is room for");
        let width = self.float.bytes();
        if !self.shuffled {
            return to_f32(self.float, &self.bytes[elements.start * width..elements.end * width], out);
        }
        let plane_bytes = self.bytes.len() / width;
        assert!(elements.end <= plane_bytes, "elements {elements:?} lie in a chunk of {plane_bytes}");
        planes::to_f32(self.float, |plane| &self.bytes[plane * plane_bytes..][elements.clone()], out);
    }
}

const DEFLATE: &str = "deflate";

/// The densest stream repeats 258 bytes by two bits.
const DEFLATE_DENSITY: Density = Density { filter: DEFLATE, expansion_max: 1032 };

/// Decompresses a stream in zlib's format (RFC 1950), of `expected` bytes. Bytes after the stream
/// are ignored, as by HDF5.
fn decompress_zlib(
    decompressor: &mut Decompressor,
    stored: &[u8],
    out: &mut FilterBuffer,
    expected: usize,
) -> Result<usize, Corrupt> {
    DEFLATE_DENSITY.check(stored.len(), expected)?;
    match decompressor.zlib_decompress(stored, out.provide(expected)) {
        Ok(found) if found == expected => Ok(found),
        Ok(found) => Err(Corrupt::TooShort { filter: DEFLATE, found, expected }),
        Err(DecompressionError::InsufficientSpace) => Err(Corrupt::TooLong { filter: DEFLATE, expected }),
        Err(DecompressionError::BadData) => Err(Corrupt::Deflate { stored_bytes: stored.len() }),
    }
}

/// Undoes a shuffle that [`Decoded::copy`] cannot undo: it was not the first filter, or its
/// elements are not the dataset's. No usual file has one. Bytes left over where the length is no
/// multiple of `element_bytes` were not shuffled. Returns the number of bytes.
fn unshuffle(element_bytes: usize, from: &[u8], to: &mut FilterBuffer) -> usize {
    let to = to.provide(from.len());
    let elements = from.len() / element_bytes;
    let (planes, rest) = from.split_at(elements * element_bytes);
    for (byte, plane) in planes.chunks_exact(elements.max(1)).enumerate() {
        to[byte..].iter_mut().step_by(element_bytes).zip(plane).for_each(|(to, &from)| *to = from);
    }
    to[planes.len()..].copy_from_slice(rest);
    from.len()
}
