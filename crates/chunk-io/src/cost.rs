use std::ops::AddAssign;
use std::time::Duration;

use serde::Serialize;

/// Cost of a request for samples, by cause. Times of several threads add up, so a sum of causes may
/// exceed the elapsed time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadCost {
    /// Bytes read from the file; 0 where the samples were in memory.
    pub bytes_read: u64,
    /// Time spent on reading from the file, by this crate or within HDF5.
    pub disk: Duration,
    /// Time spent on undoing filters: decompression, checksums.
    pub decode: Duration,
    /// Time spent on copying values, conversion to f32 and unshuffling included.
    pub copy: Duration,
}

impl AddAssign for ReadCost {
    fn add_assign(&mut self, other: Self) {
        self.bytes_read += other.bytes_read;
        self.disk += other.disk;
        self.decode += other.decode;
        self.copy += other.copy;
    }
}
