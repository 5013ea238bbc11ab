use std::iter::Peekable;
use std::ops::Range;

use megabatch_gpu_core::{Buffer, Error, Scope};

use crate::cost::ReadCost;
use crate::shape::{SampleSlices, Shape, TimeframeShape};

/// Samples of consecutive batches, in the order of the batches, and their memory, which is reused.
#[derive(Debug, Default)]
pub(super) struct SampleChunk {
    samples: Vec<usize>,
    /// The place in `samples` at which each batch ends.
    batch_ends: Vec<usize>,
    /// Row-major: `[n, T, F]` of each timeframe, then the targets `[n, K]`.
    tables: Vec<Buffer<f32>>,
    /// Samples for which the tables are allocated.
    capacity: usize,
    /// Cost of reading.
    pub(super) cost: ReadCost,
}

impl SampleChunk {
    /// Allocates memory for `samples` samples on `scope`, unless there is enough already.
    pub(super) fn ensure_capacity(&mut self, scope: &Scope, shape: &Shape, samples: usize) -> Result<(), Error> {
        if self.tables.is_empty() || self.capacity < samples {
            // Freed before the larger one is allocated.
            self.tables.clear();
            let table = |width: usize| Buffer::zeros(scope, samples.saturating_mul(width));
            self.tables = widths(shape).map(table).collect::<Result<_, Error>>()?;
            self.capacity = samples;
        }
        Ok(())
    }

    pub(super) fn samples(&self) -> &[usize] {
        &self.samples
    }

    /// The places among the chunk's samples of its `n`-th batch; `None` after its last.
    pub(super) fn batch(&self, n: usize) -> Option<Range<usize>> {
        let end = *self.batch_ends.get(n)?;
        Some(n.checked_sub(1).map_or(0, |before| self.batch_ends[before])..end)
    }

    /// The rows at `places` of the `i`-th table, in which a row has `width` values.
    pub(super) fn rows(&self, i: usize, width: usize, places: &Range<usize>) -> &[f32] {
        &self.tables[i].as_slice()[places.start * width..places.end * width]
    }

    /// The samples, and the memory that they belong in.
    pub(super) fn parts(&mut self, shape: &Shape) -> (&[usize], SampleSlices<'_>) {
        let n = self.samples.len();
        let tables = self.tables.iter_mut().zip(widths(shape));
        let mut features: Vec<&mut [f32]> =
            tables.map(|(table, width)| &mut table.as_mut_slice()[..n * width]).collect();
        let targets = features.pop().expect("the last table is that of the targets");
        (&self.samples, SampleSlices { features, targets })
    }
}

/// Values of a row of each table.
fn widths(shape: &Shape) -> impl Iterator<Item = usize> {
    shape.timeframes.iter().map(TimeframeShape::window_len).chain([shape.horizons])
}

/// The lists of batches to come, taken a chunk at a time.
pub(super) struct BatchQueue<I: Iterator> {
    batches: Peekable<I>,
    chunk_samples: usize,
}

impl<I: Iterator<Item = Vec<usize>>> BatchQueue<I> {
    pub(super) fn new(batches: I, chunk_samples: usize) -> Self {
        BatchQueue { batches: batches.peekable(), chunk_samples }
    }

    /// Fills the lists of `chunk` with the next batches, as many as fit and at least one. Returns
    /// the samples that it needs memory for, or `None` after the last batch.
    pub(super) fn next_into(&mut self, chunk: &mut SampleChunk) -> Option<usize> {
        chunk.samples.clear();
        chunk.batch_ends.clear();
        // An empty batch counts as one sample, so that a chunk ends.
        let mut counted = 0;
        while let Some(list) =
            self.batches.next_if(|list| counted == 0 || counted + list.len().max(1) <= self.chunk_samples)
        {
            counted += list.len().max(1);
            chunk.samples.extend_from_slice(&list);
            chunk.batch_ends.push(chunk.samples.len());
        }
        let samples = chunk.samples.len();
        match (chunk.batch_ends.is_empty(), self.batches.peek()) {
            (true, _) => None,
            (_, None) => Some(samples),
            // Later chunks may be a little larger and must find enough memory.
            (_, Some(_)) => Some(samples.max(self.chunk_samples)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the batches of each chunk, and the room that each needs.
    fn chunks(sizes: &[usize], chunk_samples: usize) -> Vec<(Vec<usize>, usize)> {
        let mut lists = BatchQueue::new(sizes.iter().map(|&size| vec![7; size]), chunk_samples);
        let (mut chunk, mut all) = (SampleChunk::default(), Vec::new());
        while let Some(capacity) = lists.next_into(&mut chunk) {
            let batches = (0..).map_while(|n| chunk.batch(n)).map(|places| places.len());
            all.push((batches.collect(), capacity));
        }
        all
    }

    #[test]
    fn a_chunk_takes_as_many_batches_as_fit() {
        assert_eq!(chunks(&[3, 3, 3, 2], 6), [(vec![3, 3], 6), (vec![3, 2], 5)]);
        assert_eq!(chunks(&[3, 3, 3], 7), [(vec![3, 3], 7), (vec![3], 3)]);
        assert_eq!(chunks(&[3, 3], 100), [(vec![3, 3], 6)], "room for what there is");
        assert_eq!(chunks(&[1, 9, 1], 4), [(vec![1], 4), (vec![9], 9), (vec![1], 1)], "too large a batch goes alone");
        assert_eq!(chunks(&[2, 2], 0), [(vec![2], 2), (vec![2], 2)]);
        assert_eq!(chunks(&[], 5), []);
    }

    #[test]
    fn batches_of_nothing_come_and_end() {
        assert_eq!(chunks(&[0, 0, 2], 2), [(vec![0, 0], 2), (vec![2], 2)]);
        let mut lists = BatchQueue::new(std::iter::repeat(Vec::new()), 3);
        assert_eq!(lists.next_into(&mut SampleChunk::default()), Some(3));
    }
}
