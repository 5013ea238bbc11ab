#![forbid(unsafe_code)]

use std::ops::Range;

use super::corrupt::Corrupt;
use super::floats::{Float, to_f32};
use super::pipeline::Pipeline;
use super::planes;

/// A chunk with its filters undone, but for a shuffle that came first.
#[derive(Debug)]
pub(crate) struct Decoded<'a> {
    bytes: &'a [u8],
    float: Float,
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
