//! Plan of chunks in memory before any data is read: arithmetic on shapes, no input or output.

mod amplification;

use serde::Serialize;

use crate::shape::{Shape, TimeframeShape};

pub use amplification::{ReadAmplification, Remedy, read_amplification, remedy};

impl Shape {
    /// Bytes of one sample as windows and targets in single precision: T·F·4 a timeframe and K·4.
    ///
    /// Saturates; no such sample fits in memory.
    pub fn sample_bytes(&self) -> u64 {
        let bytes = |len: usize| (len as u64).saturating_mul(size_of::<f32>() as u64);
        let windows = self
            .timeframes
            .iter()
            .map(|TimeframeShape { steps, features, .. }| bytes(*steps).saturating_mul(*features as u64));
        windows.fold(bytes(self.horizons), u64::saturating_add)
    }

    /// Bytes of all samples as windows and targets in single precision.
    pub fn windows_bytes(&self) -> u64 {
        self.sample_bytes().saturating_mul(self.samples as u64)
    }
}

/// Inputs of a [`ChunkPlan`].
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// Dimensions of the samples.
    pub shape: &'a Shape,
    /// Bytes that the data take when all of them are in memory: [`Shape::windows_bytes`], or those
    /// of the series.
    pub resident_bytes: u64,
    /// Memory that the device can hand out.
    pub device_bytes: u64,
    /// Bytes of the run beside its data: weights, gradients, activations.
    pub model_bytes: u64,
    /// Size of a chunk; `None` derives it from the device's memory.
    pub chunk_bytes: Option<u64>,
    /// Samples of a batch; a chunk holds whole batches.
    pub batch_size: usize,
    /// Rows of the file's own chunks, 1 for a contiguous dataset: a chunk that ends with one of
    /// them leaves nothing to be decoded twice.
    pub stored_rows: usize,
}

/// Chunks in memory at once: the one that is trained on and the one that is filled.
const CHUNKS_IN_FLIGHT: u64 = 2;

/// Chunks in which the data of a run pass through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChunkPlan {
    /// True if data stay in memory or pass through it.
    pub residence: Residence,
    /// Bytes of a sample, see [`Shape::sample_bytes`].
    pub sample_bytes: u64,
    /// Samples in each chunk but the last.
    pub samples_per_chunk: usize,
    /// Chunks in which an epoch of all samples passes; 1 where the data stay.
    pub chunks: usize,
    /// Bytes of a full chunk, or of the cache.
    pub chunk_bytes: u64,
    /// Bytes of the device's memory that data take at most: all of them, the chunks in flight, or
    /// the cache.
    pub data_bytes: u64,
}

/// True if data stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Residence {
    /// All of them are read once and stay.
    Resident,
    /// Chunks of them pass through, once an epoch.
    Chunked,
    /// Bars and targets of a series are read as batches need them, through a cache.
    Streamed,
}

/// Reason for which a plan is not possible, and the nearest possible one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryShortage {
    /// The model leaves no memory for data.
    #[error(
        "the model takes {model_bytes} of {device_bytes} bytes, and data of at least {least_bytes} bytes must have room beside it"
    )]
    Model {
        /// Bytes of the run beside its data.
        model_bytes: u64,
        /// Memory that the device can hand out.
        device_bytes: u64,
        /// Least memory for data: the chunks in flight, of one sample each.
        least_bytes: u64,
    },

    /// A chunk does not hold one batch.
    #[error(
        "a chunk of {chunk_bytes} bytes holds {fitting} samples of {sample_bytes} bytes, less than a batch of {batch_size}"
    )]
    Batch {
        /// Size of a chunk.
        chunk_bytes: u64,
        /// Bytes of a sample.
        sample_bytes: u64,
        /// Samples that a chunk holds: the largest batch that would do.
        fitting: usize,
        /// Samples of a batch.
        batch_size: usize,
    },

    /// The chunks in flight do not fit beside the model, at the size that the user gave.
    #[error("chunks of {chunk_bytes} bytes do not fit beside the model; {fitting_bytes} bytes would")]
    Chunk {
        /// As the user gave it.
        chunk_bytes: u64,
        /// The largest that fits.
        fitting_bytes: u64,
    },
}

impl ChunkPlan {
    /// The plan for windows: all of them stay where they fit in [`CHUNK_SHARE`] of the device's
    /// memory, less where the model leaves less. Else the two chunks in memory share as much. They
    /// are of whole batches, and end with a chunk of the file where a common multiple fits.
    ///
    /// Samples of a chunk are ⌊chunk bytes ÷ (Σ T·F·4 + K·4)⌋ before that alignment.
    ///
    /// # Errors
    /// [`MemoryShortage`], which names the nearest setting that would do.
    pub fn new(request: &PlanRequest<'_>) -> Result<Self, MemoryShortage> {
        let sample_bytes = request.shape.sample_bytes();
        let capacity = request.capacity(sample_bytes)?;
        if request.resident_bytes <= capacity {
            return Ok(Self::resident(request.shape, request.resident_bytes));
        }
        let chunk_bytes = request.chunk_capacity(capacity)?;
        let fitting = usize::try_from(chunk_bytes / sample_bytes).unwrap_or(usize::MAX);
        let batch_size = request.batch_size.min(request.shape.samples);
        if fitting < batch_size {
            return Err(MemoryShortage::Batch { chunk_bytes, sample_bytes, fitting, batch_size });
        }
        let samples_per_chunk = aligned(fitting, batch_size, request.stored_rows);
        let chunk_bytes = samples_per_chunk as u64 * sample_bytes;
        Ok(ChunkPlan {
            residence: Residence::Chunked,
            sample_bytes,
            samples_per_chunk,
            chunks: request.shape.samples.div_ceil(samples_per_chunk),
            chunk_bytes,
            data_bytes: chunk_bytes * CHUNKS_IN_FLIGHT,
        })
    }

    /// The plan for a series that is read through a cache of `cache_bytes`.
    pub fn streamed(shape: &Shape, cache_bytes: u64) -> Self {
        ChunkPlan { residence: Residence::Streamed, ..ChunkPlan::resident(shape, cache_bytes) }
    }

    /// The plan for data of `bytes` that stay in memory.
    pub fn resident(shape: &Shape, bytes: u64) -> Self {
        ChunkPlan {
            residence: Residence::Resident,
            sample_bytes: shape.sample_bytes(),
            samples_per_chunk: shape.samples,
            chunks: 1,
            chunk_bytes: bytes,
            data_bytes: bytes,
        }
    }
}

impl PlanRequest<'_> {
    /// Bytes for data: the memory that the model leaves, at most [`CHUNK_SHARE`] of all.
    fn capacity(&self, sample_bytes: u64) -> Result<u64, MemoryShortage> {
        let left = self.device_bytes.saturating_sub(self.model_bytes);
        let least_bytes = (sample_bytes * CHUNKS_IN_FLIGHT).min(self.resident_bytes);
        if left < least_bytes {
            let PlanRequest { model_bytes, device_bytes, .. } = *self;
            return Err(MemoryShortage::Model { model_bytes, device_bytes, least_bytes });
        }
        Ok(left.min((self.device_bytes as f64 * CHUNK_SHARE) as u64))
    }

    /// Bytes of one chunk, of those that share `capacity`.
    fn chunk_capacity(&self, capacity: u64) -> Result<u64, MemoryShortage> {
        let fitting_bytes = self.device_bytes.saturating_sub(self.model_bytes) / CHUNKS_IN_FLIGHT;
        match self.chunk_bytes {
            Some(chunk_bytes) if chunk_bytes > fitting_bytes => {
                Err(MemoryShortage::Chunk { chunk_bytes, fitting_bytes })
            }
            Some(chunk_bytes) => Ok(chunk_bytes),
            None => Ok(capacity / CHUNKS_IN_FLIGHT),
        }
    }
}

/// The most samples, up to `fitting`, that are whole batches and, where so many fit, whole chunks
/// of the file.
fn aligned(fitting: usize, batch_size: usize, stored_rows: usize) -> usize {
    let common = least_common_multiple(batch_size, stored_rows.max(1)).filter(|&common| common <= fitting);
    let unit = common.unwrap_or(batch_size);
    fitting / unit * unit
}

fn least_common_multiple(a: usize, b: usize) -> Option<usize> {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

#[cfg(test)]
mod tests;

/// Share of a device's memory that its chunks take together, where the model leaves as much.
pub const CHUNK_SHARE: f64 = 0.75;
