#![forbid(unsafe_code)]

use std::mem;

use libdeflater::Decompressor;

use super::corrupt::Corrupt;
use super::decoded::Decoded;
use super::pipeline::{Filter, Pipeline};
use super::scratch::Scratch;
use super::{deflate, fletcher32, lzf, shuffle};

/// Undoes filters. One a thread: it owns a decompressor and the memory that it decompresses to,
/// which grows to the largest chunk that it met, and to two where a shuffle does not come first.
pub(crate) struct Decoder {
    decompressor: Decompressor,
    front: Scratch,
    back: Scratch,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Decoder { decompressor: Decompressor::new(), front: Scratch::default(), back: Scratch::default() }
    }

    /// Undoes the filters that `stored` went through, from the last to the first: those of
    /// `pipeline` but the ones that `mask` leaves out (bit i for filter i, as `H5Dget_chunk_info`
    /// gives it). A shuffle that came first is left to [`Decoded::copy`].
    ///
    /// # Errors
    /// What is wrong with `stored`.
    pub(crate) fn decode<'a>(
        &'a mut self,
        pipeline: &Pipeline,
        mask: u32,
        stored: &'a [u8],
    ) -> Result<Decoded<'a>, Corrupt> {
        let mut held = Held { stored, len: stored.len(), in_front: false };
        let mut shuffled = false;
        for (place, filter) in pipeline.active(mask).rev() {
            let expected = pipeline.bytes_before(place, mask);
            match filter {
                Filter::Shuffle { .. } if pipeline.is_first_shuffle(place, mask) => shuffled = true,
                Filter::Shuffle { element_bytes } => {
                    self.rewrite(&mut held, |_, from, to| Ok(shuffle::undo(element_bytes, from, to)))?;
                }
                Filter::Deflate => self.rewrite(&mut held, |decompressor, from, to| {
                    deflate::decompress(decompressor, from, to, expected)
                })?,
                Filter::Lzf => self.rewrite(&mut held, |_, from, to| lzf::decompress(from, to, expected))?,
                Filter::Fletcher32 => held.len = fletcher32::verify(held.bytes(&self.front))?,
            }
        }
        Decoded::new(pipeline, held.bytes(&self.front), shuffled)
    }

    /// Undoes a filter that moves bytes: `undo` reads the bytes held, writes to memory that does
    /// not hold them, and returns how many it wrote.
    fn rewrite(
        &mut self,
        held: &mut Held<'_>,
        undo: impl FnOnce(&mut Decompressor, &[u8], &mut Scratch) -> Result<usize, Corrupt>,
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

/// Location of the chunk between two filters.
struct Held<'a> {
    stored: &'a [u8],
    len: usize,
    in_front: bool,
}

impl<'a> Held<'a> {
    fn bytes<'b>(&self, front: &'b Scratch) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.in_front { front.filled(self.len) } else { &self.stored[..self.len] }
    }
}
