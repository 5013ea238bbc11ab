//! The port for samples that load themselves ahead, many batches at a time.

use std::error::Error as StdError;
use std::ops::{AddAssign, Sub};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};

/// Interval at which a consumer that waits for a batch is asked whether it still wants it.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Error of a wait for samples that nobody wants any longer.
pub(crate) const INTERRUPTED: Error = Error::Interrupted { work: "the reading of samples" };

/// The samples of each batch to come, in order.
pub type BatchLists<'a> = Box<dyn Iterator<Item = Vec<usize>> + Send + 'a>;

/// Error of a source of samples; it names its file and place.
type SourceError = Box<dyn StdError + Send + Sync>;

/// Samples that do not fit in memory, and are read in pieces of many batches rather than batch by
/// batch.
pub trait PrefetchingSource: Sync {
    /// Begins to load the batches `lists` into the source's own memory, in chunks as `chunking`
    /// says. A validation that interrupts training loads its batches beside those of training.
    ///
    /// # Errors
    /// No memory, or whatever else keeps the source from beginning.
    fn load<'a>(
        &'a self,
        lists: BatchLists<'a>,
        chunking: Chunking,
    ) -> Result<Box<dyn LoadedBatches + 'a>, SourceError>;
}

/// The size of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Percent of the planned chunk, 100 at most: less where memory has run short.
    pub percent: u32,
    /// Samples in the largest batch, which a chunk holds in any case.
    pub batch_samples: usize,
}

impl Chunking {
    /// Samples in a chunk, if `planned` are planned.
    pub fn samples(self, planned: usize) -> usize {
        let cut = planned as u128 * u128::from(self.percent) / 100;
        usize::try_from(cut).unwrap_or(usize::MAX).max(self.batch_samples)
    }
}

/// Batches that were loaded, in the order of their lists.
pub trait LoadedBatches {
    /// The next batch, or `None` after the last; it is valid until the next call. A source that
    /// waits asks `is_wanted` several times a second, and ends with an error once it returns false.
    ///
    /// # Errors
    /// Whatever keeps the source from reading. There are no batches after an error.
    fn next(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<Option<BorrowedBatch<'_>>, SourceError>;

    /// Waiting time of `next` so far, by cause.
    fn waits(&self) -> Waits;
}

/// A batch in the source's own memory.
#[derive(Clone, Debug)]
pub struct BorrowedBatch<'a> {
    /// The indices of its samples, `[B]`.
    pub samples: &'a [usize],
    /// Their windows, `[B, T, F]` a timeframe.
    pub features: Vec<&'a [f32]>,
    /// Their targets, `[B, K]`.
    pub targets: &'a [f32],
}

/// Time spent waiting for data by cause, and the bytes read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Reading the file.
    #[serde(rename = "data_disk_s", serialize_with = "seconds")]
    pub disk: Duration,
    /// Decoding its filters.
    #[serde(rename = "data_decode_s", serialize_with = "seconds")]
    pub decode: Duration,
    /// Copying values to their place.
    #[serde(rename = "data_copy_s", serialize_with = "seconds")]
    pub copy: Duration,
    /// Bytes read from the file for what was delivered.
    #[serde(rename = "data_bytes_read")]
    pub bytes_read: u64,
}

impl Waits {
    /// All of the waiting.
    pub fn total(&self) -> Duration {
        self.disk + self.decode + self.copy
    }

    /// Splits `waited` by cause, in the ratio of these read times.
    pub(crate) fn apportion(self, waited: Duration) -> Waits {
        let total = self.total().as_secs_f64();
        let share =
            |cause: Duration| if total > 0.0 { waited.mul_f64(cause.as_secs_f64() / total) } else { Duration::ZERO };
        let (decode, copy) = (share(self.decode), share(self.copy));
        Waits { disk: waited.saturating_sub(decode + copy), decode, copy, bytes_read: self.bytes_read }
    }
}

impl AddAssign for Waits {
    fn add_assign(&mut self, other: Waits) {
        self.disk += other.disk;
        self.decode += other.decode;
        self.copy += other.copy;
        self.bytes_read += other.bytes_read;
    }
}

impl Sub for Waits {
    type Output = Waits;

    /// Waits after `earlier`.
    fn sub(self, earlier: Waits) -> Waits {
        Waits {
            disk: self.disk - earlier.disk,
            decode: self.decode - earlier.decode,
            copy: self.copy - earlier.copy,
            bytes_read: self.bytes_read - earlier.bytes_read,
        }
    }
}

/// Answer of a consumer that waits for each batch as long as it takes.
pub(crate) fn always() -> bool {
    true
}

/// The next of `receiver`, or `None` after the last.
///
/// # Errors
/// [`Error::Interrupted`] once `is_wanted`, which is asked while nothing comes, returns false.
pub(crate) fn receive<T>(receiver: &Receiver<T>, is_wanted: &dyn Fn() -> bool) -> Result<Option<T>> {
    loop {
        match receiver.recv_timeout(ASK_INTERVAL) {
            Ok(received) => return Ok(Some(received)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if is_wanted() => {}
            Err(RecvTimeoutError::Timeout) => return Err(INTERRUPTED),
        }
    }
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
