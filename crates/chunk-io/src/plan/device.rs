#![forbid(unsafe_code)]

use serde::Serialize;

/// Share of a device's memory that a chunk takes, where the model leaves as much.
pub const CHUNK_SHARE: f64 = 0.75;

/// Samples of a batch for each GiB of device memory: 64 on a GPU of 8 GB, 192 on one of 24.
const BATCH_SAMPLES_PER_GIB: u64 = 8;

/// Settings to begin with on a device of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recommendation {
    /// Size of a chunk in bytes.
    pub chunk_bytes: u64,
    /// Samples of a batch, a multiple of 8, as tensor cores like it.
    pub batch_size: usize,
}

/// Recommended start for a device of `device_bytes`: chunks of [`CHUNK_SHARE`] of it and eight
/// samples a batch for each GiB. So it was found to work on GPUs of 8, 12, 16 and 24 GB (6, 9, 12
/// and 18 GB; 64, 96, 128 and 192 samples), and the same line goes through what lies between them
/// and beyond.
pub fn recommend(device_bytes: u64) -> Recommendation {
    let gibibytes = device_bytes >> 30;
    Recommendation {
        chunk_bytes: (device_bytes as f64 * CHUNK_SHARE) as u64,
        batch_size: (gibibytes.max(1) * BATCH_SAMPLES_PER_GIB) as usize,
    }
}
