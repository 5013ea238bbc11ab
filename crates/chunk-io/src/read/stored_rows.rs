use std::sync::atomic::AtomicBool;

use super::parallel::Done;
use super::read_path::{DirectDataset, StoragePlace};
use super::rows::RowSelection;
use super::{ReadContext, has_non_finite};
use crate::error::Result;

/// A range is read in parts of no more pieces than this, so that what is known of them takes little
/// memory beside the values.
const PIECES_MAX: usize = 1 << 16;

impl DirectDataset {
    /// Reads `rows` into `out`, row-major, as f32.
    ///
    /// # Errors
    /// If the file has changed since it was opened, cannot be read, or holds less than its index
    /// says or something that its filters cannot be undone from. The same file gives the same error
    /// with any number of threads. Once `stop` is true, reading ends before the next chunk or block
    /// with [`Error::Stopped`](crate::Error::Stopped).
    pub(crate) fn read(
        &self,
        rows: &RowSelection<'_>,
        out: &mut [f32],
        reading: &ReadContext,
        stop: &AtomicBool,
    ) -> Result<Done> {
        if out.is_empty() {
            return Ok(Done::default());
        }
        self.file.require_unchanged()?;
        let RowSelection::Range(range) = rows else { return self.read_part(rows, out, reading, stop) };
        let (row_len, unit) = (self.row_len(), self.part_rows());
        let (mut done, mut out, mut first) = (Done::default(), out, range.start);
        while first < range.end {
            // Parts end with a chunk, so that none is decoded twice.
            let end = range.end.min((first / unit + 1).saturating_mul(unit));
            let (part, rest) = out.split_at_mut((end - first) * row_len);
            done.merge(self.read_part(&RowSelection::Range(first..end), part, reading, stop)?);
            (out, first) = (rest, end);
        }
        Ok(done)
    }

    /// Rows of a range that are read together, a multiple of a chunk's.
    fn part_rows(&self) -> usize {
        let chunk_rows = self.grid.chunk[0];
        let pieces_a_chunk = match self.grid.counts[1] {
            1 => 1,
            bands => chunk_rows.saturating_mul(bands),
        };
        chunk_rows.saturating_mul((PIECES_MAX / pieces_a_chunk).max(1))
    }

    fn read_part(
        &self,
        rows: &RowSelection<'_>,
        out: &mut [f32],
        reading: &ReadContext,
        stop: &AtomicBool,
    ) -> Result<Done> {
        match &self.place {
            StoragePlace::Nowhere => {
                out.fill(self.fill);
                Ok(Done { has_non_finite: has_non_finite(reading.options.non_finite, out), ..Done::default() })
            }
            StoragePlace::Contiguous { .. } | StoragePlace::PlainChunks { .. } => {
                self.read_positional(rows, out, reading, stop)
            }
            StoragePlace::Chunks { index, pipeline } => self.read_chunks(index, pipeline, rows, out, reading, stop),
        }
    }
}
