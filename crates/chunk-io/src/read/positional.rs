//! Rows that the file stores uncompressed: native f32 are read straight to their place, others are
//! converted while they are copied.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::access::ExtentReader;
use super::file::FileExtent;
use super::index::ChunkIndex;
use super::parallel::{Done, in_parallel};
use super::read_path::{DirectDataset, StoragePlace};
use super::rows::{RowSelection, cut, take};
use super::scratch::ThreadBuffers;
use super::span::{BLOCK_BYTES, Extended, ReadSpan, spans};
use super::{ReadContext, has_non_finite};
use crate::cost::ReadCost;
use crate::decode::to_f32;
use crate::error::Result;

/// A smaller piece is read together with its neighbours and copied; a larger one is worth a call of
/// its own.
const LARGE_BYTES: usize = 64 << 10;
/// A thread is not worth starting for less.
const BYTES_A_THREAD: usize = 512 << 10;

/// Consecutive elements in the file and in the caller's memory.
struct FilePiece<'a> {
    extent: FileExtent,
    is_large: bool,
    out: &'a mut [f32],
}

impl Extended for FilePiece<'_> {
    fn extent(&self) -> Option<FileExtent> {
        Some(self.extent)
    }

    fn is_large(&self) -> bool {
        self.is_large
    }
}

impl DirectDataset {
    /// Reads `rows` of a dataset that is contiguous or in plain chunks.
    pub(super) fn read_positional(
        &self,
        rows: &RowSelection<'_>,
        out: &mut [f32],
        reading: &ReadContext,
        stop: &AtomicBool,
    ) -> Result<Done> {
        let mut done = Done::default();
        let pieces = self.pieces(rows, out, reading, &mut done)?;
        let bytes: usize = pieces.iter().map(|piece| piece.extent.bytes).sum();
        let spans = spans(pieces);
        let extents = spans.iter().enumerate().filter_map(|(task, span)| Some((task, span.extent?))).collect();
        let access = ExtentReader::new(&self.file, reading, extents);
        let workers = reading.threads().min(bytes / BYTES_A_THREAD + 1);
        done.merge(in_parallel(reading, stop, workers, spans, |scratch, task, span| {
            self.read_span(&access, task, scratch, span)
        })?);
        Ok(done)
    }

    /// The pieces to be read; what was never written is filled in at once.
    fn pieces<'a>(
        &self,
        rows: &RowSelection<'_>,
        mut out: &'a mut [f32],
        reading: &ReadContext,
        done: &mut Done,
    ) -> Result<Vec<FilePiece<'a>>> {
        let row_len = self.row_len();
        // Rows are consecutive in the file up to each multiple of this number.
        let rows_together =
            if matches!(self.place, StoragePlace::PlainChunks { .. }) { self.grid.chunk[0] } else { usize::MAX };
        let mut pieces = Vec::new();
        for run in rows.runs() {
            for together in cut(run, rows_together) {
                let out = take(&mut out, together.len() * row_len);
                match self.offset_of(together.start)? {
                    Some(offset) => self.cut_to_blocks(offset, out, &mut pieces)?,
                    None => {
                        out.fill(self.fill);
                        done.has_non_finite |= has_non_finite(reading.options.non_finite, out);
                    }
                }
            }
        }
        Ok(pieces)
    }

    /// Offset of a row in the file, `None` if it was never written.
    fn offset_of(&self, row: usize) -> Result<Option<u64>> {
        let row_bytes = (self.row_len() * self.width()) as u64;
        match &self.place {
            StoragePlace::Nowhere | StoragePlace::Chunks { .. } => Ok(None),
            StoragePlace::Contiguous { offset } => Ok(Some(offset + row as u64 * row_bytes)),
            StoragePlace::PlainChunks { index } => self.offset_in_chunk(index, row, row_bytes),
        }
    }

    fn offset_in_chunk(&self, index: &ChunkIndex, row: usize, row_bytes: u64) -> Result<Option<u64>> {
        let place = [row / self.grid.chunk[0], 0, 0];
        let Some(entry) = index.get(self.grid.number(place)) else { return Ok(None) };
        if u64::from(entry.bytes) != self.chunk_bytes() {
            let detail = format!("expected {} bytes, found {}", self.chunk_bytes(), entry.bytes);
            return Err(self.damaged(entry, place, detail));
        }
        self.require_within(entry.extent(), || self.grid.origin(place))?;
        Ok(Some(entry.offset + (row % self.grid.chunk[0]) as u64 * row_bytes))
    }

    /// Adds `out`, which lies at `offset`, in pieces that end at multiples of a block in the file, so
    /// that no page is read twice.
    fn cut_to_blocks<'a>(
        &self,
        mut offset: u64,
        mut out: &'a mut [f32],
        pieces: &mut Vec<FilePiece<'a>>,
    ) -> Result<()> {
        self.require_within(FileExtent { offset, bytes: out.len() * self.width() }, Vec::new)?;
        let is_large = self.is_native() && out.len() * self.width() >= LARGE_BYTES;
        while !out.is_empty() {
            let to_boundary = BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize;
            let elements = (to_boundary / self.width()).max(1).min(out.len());
            let extent = FileExtent { offset, bytes: elements * self.width() };
            pieces.push(FilePiece { extent, is_large, out: take(&mut out, elements) });
            offset = extent.end();
        }
        Ok(())
    }

    fn read_span(
        &self,
        access: &ExtentReader<'_>,
        task: usize,
        scratch: &mut ThreadBuffers,
        span: ReadSpan<FilePiece<'_>>,
    ) -> Result<Done> {
        let ReadSpan { extent: Some(extent), mut pieces } = span else { return Ok(Done::default()) };
        let started = Instant::now();
        let mut done =
            Done { cost: ReadCost { bytes_read: extent.bytes as u64, ..ReadCost::default() }, ..Done::default() };
        if let [piece] = &mut pieces[..]
            && self.is_native()
        {
            access.read(task, extent, bytemuck::cast_slice_mut(piece.out))?;
            done.cost.disk = started.elapsed();
        } else {
            access.read_staged(task, extent, &mut scratch.staging)?;
            done.cost.disk = started.elapsed();
            for piece in &mut pieces {
                let start = (piece.extent.offset - extent.offset) as usize;
                to_f32(self.float, &scratch.staging[start..start + piece.extent.bytes], piece.out);
            }
            done.cost.copy = started.elapsed() - done.cost.disk;
        }
        done.has_non_finite = pieces.iter().any(|piece| has_non_finite(access.non_finite(), piece.out));
        Ok(done)
    }
}
