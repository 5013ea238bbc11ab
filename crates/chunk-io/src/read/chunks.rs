//! Rows from chunks: each chunk is read and decoded once, and its values are copied straight to
//! their places.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::access::ExtentReader;
use super::file::FileExtent;
use super::index::{ChunkEntry, ChunkIndex};
use super::parallel::{Done, in_parallel};
use super::read_path::DirectDataset;
use super::rows::{RowSelection, cut, take};
use super::scratch::ThreadBuffers;
use super::span::{BLOCK_BYTES, Extended, ReadSpan, spans};
use super::{ReadContext, has_non_finite};
use crate::decode::{ChunkDecoder, Corrupt, Decoded, Pipeline};
use crate::error::{Error, Result};

/// Most bytes of the chunks that are decoded at the same time, beyond the first.
const CHUNKS_AT_ONCE_BYTES: u64 = 1 << 30;
/// A thread is not worth starting for less.
const BYTES_A_THREAD: u64 = 64 << 10;

/// Rows of one chunk that are consecutive in the caller's memory: of a *band*, the steps that a
/// chunk covers, which are consecutive in a row.
struct ChunkPiece<'a> {
    /// Place of the chunk along the first and the second axis.
    at: [usize; 2],
    /// From the chunk's first row on.
    rows: Range<usize>,
    /// `[rows, steps of the band, F]`.
    out: &'a mut [f32],
}

/// The chunks of one band of the same rows, one beside the other along the last axis. Their places
/// in the caller's memory lie between each other's, so that one thread fills them all.
struct Band<'a> {
    at: [usize; 2],
    /// `None` where a chunk was never written.
    chunks: Vec<Option<ChunkEntry>>,
    extent: Option<FileExtent>,
    pieces: Vec<ChunkPiece<'a>>,
}

impl Extended for Band<'_> {
    fn extent(&self) -> Option<FileExtent> {
        self.extent
    }

    fn is_large(&self) -> bool {
        false
    }
}

/// Inputs of decoding for one request.
struct DecodeRequest<'a> {
    stored: &'a DirectDataset,
    pipeline: &'a Pipeline,
    access: ExtentReader<'a>,
}

impl DirectDataset {
    /// Reads `rows` of a dataset whose chunks are to be decoded.
    pub(super) fn read_chunks(
        &self,
        index: &ChunkIndex,
        pipeline: &Pipeline,
        rows: &RowSelection<'_>,
        out: &mut [f32],
        reading: &ReadContext,
        stop: &AtomicBool,
    ) -> Result<Done> {
        let spans = spans(self.bands(index, rows, out)?);
        let extents = spans.iter().enumerate().flat_map(|(task, span)| extents(span).map(move |extent| (task, extent)));
        let access = ExtentReader::new(&self.file, reading, extents.collect());
        let bytes = self.chunk_bytes().saturating_mul(spans.iter().map(|span| span.pieces.len() as u64).sum());
        let at_once = (CHUNKS_AT_ONCE_BYTES / (2 * self.chunk_bytes()).max(1)).max(1);
        let workers = reading.threads().min((bytes / BYTES_A_THREAD + 1).min(at_once) as usize);
        let request = DecodeRequest { stored: self, pipeline, access };
        in_parallel(reading, stop, workers, spans, |scratch, task, span| request.read_span(task, scratch, span))
    }

    fn bands<'a>(&self, index: &ChunkIndex, rows: &RowSelection<'_>, out: &'a mut [f32]) -> Result<Vec<Band<'a>>> {
        let mut pieces = self.pieces_of_bands(rows, out);
        // Stable, so that rows of a chunk keep the caller's order.
        pieces.sort_by_key(|piece| piece.at);
        let mut bands: Vec<Band<'_>> = Vec::new();
        for piece in pieces {
            match bands.last_mut() {
                Some(band) if band.at == piece.at => band.pieces.push(piece),
                _ => bands.push(self.band(index, piece)?),
            }
        }
        Ok(bands)
    }

    fn pieces_of_bands<'a>(&self, rows: &RowSelection<'_>, mut out: &'a mut [f32]) -> Vec<ChunkPiece<'a>> {
        let ([_, _, features], [chunk_rows, _, _], [_, bands, _]) =
            (self.grid.shape, self.grid.chunk, self.grid.counts);
        let mut pieces = Vec::new();
        for run in rows.runs() {
            // Rows of several bands are apart in the caller's memory, those of a single one are
            // not.
            let unit = if bands == 1 { chunk_rows } else { 1 };
            for together in cut(run, unit) {
                let (block, within) = (together.start / chunk_rows, together.start % chunk_rows);
                for band in 0..bands {
                    let steps = self.grid.covered(1, band);
                    pieces.push(ChunkPiece {
                        at: [block, band],
                        rows: within..within + together.len(),
                        out: take(&mut out, together.len() * steps.len() * features),
                    });
                }
            }
        }
        pieces
    }

    fn band<'a>(&self, index: &ChunkIndex, piece: ChunkPiece<'a>) -> Result<Band<'a>> {
        let [row, band] = piece.at;
        let mut chunks = Vec::with_capacity(self.grid.counts[2]);
        for column in 0..self.grid.counts[2] {
            let place = [row, band, column];
            let entry = index.get(self.grid.number(place));
            if let Some(entry) = entry {
                self.require_within(entry.extent(), || self.grid.origin(place))?;
                self.require_plausible(entry, place)?;
            }
            chunks.push(entry);
        }
        Ok(Band { at: piece.at, extent: read_at_once(&chunks), chunks, pieces: vec![piece] })
    }

    /// Refuses a chunk that takes more bytes than its filters could have made of it.
    fn require_plausible(&self, entry: ChunkEntry, place: [usize; 3]) -> Result<()> {
        let bytes_max = self.chunk_bytes() + self.chunk_bytes() / 8 + 64;
        if u64::from(entry.bytes) <= bytes_max {
            return Ok(());
        }
        let detail = format!("it takes {} bytes, more than filters could make of {}", entry.bytes, self.chunk_bytes());
        Err(self.damaged(entry, place, detail))
    }

    /// The error of the chunk `entry` at `place`.
    pub(super) fn damaged(&self, entry: ChunkEntry, place: [usize; 3], detail: String) -> Error {
        Error::DamagedChunk {
            path: self.file.path.clone(),
            object: self.object.clone(),
            chunk: self.grid.origin(place),
            offset: entry.offset,
            detail,
        }
    }
}

/// Extent from the first byte of chunks to the last, if little else lies between them.
fn read_at_once(chunks: &[Option<ChunkEntry>]) -> Option<FileExtent> {
    let written = || chunks.iter().flatten().map(ChunkEntry::extent);
    let (first, end) = (written().map(|extent| extent.offset).min()?, written().map(|extent| extent.end()).max()?);
    let together = FileExtent { offset: first, bytes: (end - first) as usize };
    let own: usize = written().map(|extent| extent.bytes).sum();
    let alone = written().count() == 1;
    (alone || (together.bytes <= BLOCK_BYTES && together.bytes <= 2 * own)).then_some(together)
}

/// Extents that a task reads, in its order.
fn extents<'s>(span: &'s ReadSpan<Band<'_>>) -> impl Iterator<Item = FileExtent> + 's {
    let apart = span.pieces.iter().filter(|_| span.extent.is_none());
    let apart = apart.flat_map(|band| band.chunks.iter().flatten().map(ChunkEntry::extent));
    span.extent.into_iter().chain(apart)
}

impl DecodeRequest<'_> {
    fn read_span(&self, task: usize, scratch: &mut ThreadBuffers, span: ReadSpan<Band<'_>>) -> Result<Done> {
        let mut done = Done::default();
        let ThreadBuffers { staging, decoder } = scratch;
        if let Some(extent) = span.extent {
            self.fetch(task, extent, staging, &mut done)?;
        }
        for mut band in span.pieces {
            for (column, entry) in std::mem::take(&mut band.chunks).into_iter().enumerate() {
                let start = match (entry, span.extent) {
                    (None, _) => 0,
                    (Some(entry), Some(together)) => (entry.offset - together.offset) as usize,
                    (Some(entry), None) => {
                        self.fetch(task, entry.extent(), staging, &mut done)?;
                        0
                    }
                };
                let stored = entry.map(|entry| (entry, &staging[start..start + entry.bytes as usize]));
                self.scatter(&mut band, column, stored, decoder, &mut done)?;
            }
            done.has_non_finite |= band.pieces.iter().any(|piece| has_non_finite(self.access.non_finite(), piece.out));
        }
        Ok(done)
    }

    /// Reads `extent` to the first bytes of `staging`.
    fn fetch(&self, task: usize, extent: FileExtent, staging: &mut Vec<u8>, done: &mut Done) -> Result<()> {
        let started = Instant::now();
        self.access.read_staged(task, extent, staging)?;
        done.cost.disk += started.elapsed();
        done.cost.bytes_read += extent.bytes as u64;
        Ok(())
    }

    /// Decodes a chunk of a band, and copies what is wanted of it to its places.
    fn scatter(
        &self,
        band: &mut Band<'_>,
        column: usize,
        stored: Option<(ChunkEntry, &[u8])>,
        decoder: &mut ChunkDecoder,
        done: &mut Done,
    ) -> Result<()> {
        let place = [band.at[0], band.at[1], column];
        let Some((entry, stored)) = stored else {
            self.stored.copy_runs(place, &mut band.pieces, |_, out| out.fill(self.stored.fill));
            return Ok(());
        };
        let started = Instant::now();
        let decoded: Result<Decoded<'_>, Corrupt> = decoder.decode(self.pipeline, entry.mask, stored);
        let decoded = decoded.map_err(|corrupt| self.stored.damaged(entry, place, corrupt.to_string()))?;
        let decode = started.elapsed();
        self.stored.copy_runs(place, &mut band.pieces, |elements, out| decoded.copy(elements, out));
        done.cost.decode += decode;
        done.cost.copy += started.elapsed() - decode;
        Ok(())
    }
}

impl DirectDataset {
    /// Calls `copy` with each run of consecutive elements of the chunk at `place` and its place in
    /// the caller's memory.
    fn copy_runs(
        &self,
        place: [usize; 3],
        pieces: &mut [ChunkPiece<'_>],
        mut copy: impl FnMut(Range<usize>, &mut [f32]),
    ) {
        let [_, chunk_steps, chunk_features] = self.grid.chunk;
        let features = self.grid.shape[2];
        let (steps, columns) = (self.grid.covered(1, place[1]).len(), self.grid.covered(2, place[2]));
        for piece in pieces {
            let band_len = steps * features;
            if columns.len() == chunk_features && chunk_features == features && steps == chunk_steps {
                copy(piece.rows.start * band_len..piece.rows.end * band_len, piece.out);
                continue;
            }
            for (row, out) in piece.rows.clone().zip(piece.out.chunks_exact_mut(band_len)) {
                let first = row * chunk_steps * chunk_features;
                if chunk_features == features {
                    copy(first..first + band_len, out);
                    continue;
                }
                for (step, out) in out.chunks_exact_mut(features).enumerate() {
                    let first = first + step * chunk_features;
                    copy(first..first + columns.len(), &mut out[columns.clone()]);
                }
            }
        }
    }
}
