use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::{Buffer, Result, Scope};

use crate::gradients::ElementIndex;
use crate::threads::BLOCK;

/// Stands for no number: `NONE` of state.cuh.
pub(super) const NONE: u32 = u32::MAX;

/// Ranges of tensors in the buffers of weights, gradients and moments, cut into the chunks that one
/// launch takes all of; and room for what the first pass finds in each.
#[derive(Debug)]
pub struct ChunkedTensors {
    ranges: Vec<Range<usize>>,
    chunks: Vec<TensorChunk>,
    pub(super) on_device: DeviceChunks,
}

/// Tensors as kernels read and write them.
#[derive(Debug)]
pub(super) struct DeviceChunks {
    pub(super) chunks: Buffer<TensorChunk>,
    /// Sum of squares of each chunk.
    pub(super) sums: Buffer<f64>,
    /// First non-finite element of each chunk.
    pub(super) firsts: Buffer<u32>,
}

/// Elements of a tensor from number `start` of the buffers on: `TensorChunk` of state.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct TensorChunk {
    start: u64,
    len: u32,
    tensor: u32,
}

impl ChunkedTensors {
    /// Tensors of these elements of each buffer, in `scope`. What lies between them stays as it is.
    /// Tensors that lie in one piece may be one range.
    ///
    /// # Errors
    /// Errors of [`Buffer::zeros`].
    ///
    /// # Panics
    /// If a tensor begins before the one before it ends, or there are 2³² chunks of 16,384
    /// elements.
    pub fn new(scope: &Scope, ranges: &[Range<usize>]) -> Result<Self> {
        let ascend = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        assert!(ascend && ranges.iter().all(|range| range.start <= range.end), "tensors follow one another");
        let tensor_chunks = |(tensor, range): (usize, &Range<usize>)| {
            let end = range.end;
            let starts = range.clone().step_by(BLOCK);
            starts.map(move |start| TensorChunk {
                start: start as u64,
                len: BLOCK.min(end - start) as u32,
                tensor: tensor as u32,
            })
        };
        let chunks: Vec<TensorChunk> = ranges.iter().enumerate().flat_map(tensor_chunks).collect();
        assert!(chunks.len() < NONE as usize, "the numbers of chunks are of 32 bits");
        let (sums, firsts) = (Buffer::zeros(scope, chunks.len())?, Buffer::zeros(scope, chunks.len())?);
        let on_device = DeviceChunks { chunks: Buffer::from_slice(scope, &chunks)?, sums, firsts };
        Ok(ChunkedTensors { ranges: ranges.to_vec(), chunks, on_device })
    }

    /// The elements of each tensor.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Panics if a buffer of so many elements ends before the last tensor.
    pub(super) fn assert_within(&self, len: usize) {
        let end = self.ranges.last().map_or(0, |range| range.end);
        assert!(end <= len, "tensors end at element {end} of {len}");
    }

    /// Element `index` of a chunk, as an element of its tensor.
    pub(super) fn place(&self, chunk: u32, index: u32) -> ElementIndex {
        let TensorChunk { start, tensor, .. } = self.chunks[chunk as usize];
        let tensor = tensor as usize;
        ElementIndex { tensor, index: start as usize - self.ranges[tensor].start + index as usize }
    }

    /// The chunk of an element of a tensor, and its number there.
    pub(super) fn chunk_of(&self, ElementIndex { tensor, index }: ElementIndex) -> [u32; 2] {
        let before = self.chunks.partition_point(|chunk| (chunk.tensor as usize) < tensor);
        [(before + index / BLOCK) as u32, (index % BLOCK) as u32]
    }
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;

    #[test]
    fn chunks_cover_the_tensors_and_lead_back_to_them() {
        let ranges = [3..10, 10..10, 20..20 + 2 * BLOCK + 1];
        let tensors = ChunkedTensors::new(&Device::cpu().scope("test"), &ranges).unwrap();
        let found: Vec<_> = tensors.chunks.iter().map(|chunk| (chunk.start as usize, chunk.len as usize)).collect();
        assert_eq!(found, [(3, 7), (20, BLOCK), (20 + BLOCK, BLOCK), (20 + 2 * BLOCK, 1)]);
        for (tensor, index) in [(0, 0), (0, 6), (2, 0), (2, BLOCK), (2, 2 * BLOCK)] {
            let place = ElementIndex { tensor, index };
            let [chunk, number] = tensors.chunk_of(place);
            assert_eq!(tensors.place(chunk, number), place);
        }
    }

    #[test]
    #[should_panic(expected = "tensors follow one another")]
    fn tensors_that_overlap_are_refused() {
        let _ = ChunkedTensors::new(&Device::cpu().scope("test"), &[0..3, 2..4]);
    }
}
