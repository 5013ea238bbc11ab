#![forbid(unsafe_code)]

use std::ops::Range;
use std::time::Instant;

use megabatch_gpu_core::{Buffer, Scope};

use super::SourceOptions;
use crate::cost::ReadCost;
use crate::error::{Error, Result};
use crate::shape::{SampleSlices, TimeframeShape};
use crate::table::Table;
use crate::windows::WindowsFile;

/// A gather reads at most this much at once into memory of its own.
const STAGING_BYTES: usize = 64 << 20;

/// A windows file, held in memory if it is small.
#[derive(Debug)]
pub(super) struct WindowsSource {
    file: WindowsFile,
    held: Option<Held>,
    scope: Scope,
}

#[derive(Debug)]
struct Held {
    features: Vec<Buffer<f32>>,
    targets: Buffer<f32>,
}

impl WindowsSource {
    pub(super) fn open(file: WindowsFile, scope: &Scope, options: SourceOptions) -> Result<Self> {
        let shape = file.shape();
        let sample_len = shape.timeframes.iter().map(TimeframeShape::window_len).sum::<usize>() + shape.horizons;
        let bytes = sample_len.saturating_mul(shape.samples).saturating_mul(size_of::<f32>());
        let held = if bytes <= options.resident_bytes_max {
            let features = file.features().iter().map(|table| table.read_f32_buffer(scope)).collect::<Result<_>>()?;
            Some(Held { features, targets: file.targets().read_f32_buffer(scope)? })
        } else {
            None
        };
        Ok(WindowsSource { file, held, scope: scope.child("staging") })
    }

    pub(super) fn file(&self) -> &WindowsFile {
        &self.file
    }

    pub(super) fn is_resident(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn read(&self, samples: Range<usize>, out: SampleSlices<'_>) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        for (i, (table, out)) in self.tables().zip(slices(out)).enumerate() {
            cost += match self.held_rows(i) {
                Some(rows) => copied(|| {
                    let row_len = table.row_len();
                    out.copy_from_slice(&rows[samples.start * row_len..samples.end * row_len]);
                }),
                None => table.read_f32(samples.clone(), out)?,
            };
        }
        Ok(cost)
    }

    pub(super) fn gather(&self, samples: &[usize], out: SampleSlices<'_>) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        for (i, (table, out)) in self.tables().zip(slices(out)).enumerate() {
            cost += match self.held_rows(i) {
                Some(rows) => copied(|| gather_held(rows, samples, out)),
                None => self.gather_from_file(table, samples, out)?,
            };
        }
        Ok(cost)
    }

    /// Features by timeframe, then the targets.
    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.file.features().iter().chain([self.file.targets()])
    }

    pub(super) fn held_rows(&self, i: usize) -> Option<&[f32]> {
        let held = self.held.as_ref()?;
        Some(held.features.get(i).unwrap_or(&held.targets).as_slice())
    }

    /// Reads in the order of the file, each chunk once, and scatters the rows to their places.
    fn gather_from_file(&self, table: &Table, samples: &[usize], out: &mut [f32]) -> Result<ReadCost> {
        let mut cost = ReadCost::default();
        let row_len = table.row_len();
        let mut order: Vec<usize> = (0..samples.len()).collect();
        order.sort_unstable_by_key(|&place| samples[place]);
        let mut staging = Buffer::<f32>::zeros(&self.scope, 0).map_err(Error::memory(self.file.path()))?;
        for places in order.chunk_by(|&a, &b| read_together(table, samples[a], samples[b])) {
            for places in split_by_size(places, samples, row_len) {
                let rows = samples[places[0]]..samples[places[places.len() - 1]] + 1;
                if staging.len() < rows.len() * row_len {
                    staging =
                        Buffer::zeros(&self.scope, rows.len() * row_len).map_err(Error::memory(self.file.path()))?;
                }
                let staged = &mut staging.as_mut_slice()[..rows.len() * row_len];
                cost += table.read_f32(rows.clone(), staged)?;
                cost += copied(|| {
                    for &place in places {
                        let from = (samples[place] - rows.start) * row_len;
                        out[place * row_len..][..row_len].copy_from_slice(&staged[from..from + row_len]);
                    }
                });
            }
        }
        Ok(cost)
    }
}

/// Neighbours in the order of the file are read at once if they touch, or if one chunk holds both: decoding it twice would cost
/// more than reading the rows between them.
fn read_together(table: &Table, earlier: usize, later: usize) -> bool {
    let same_chunk = || table.chunk_rows().is_some_and(|rows| earlier / rows == later / rows);
    later - earlier <= 1 || same_chunk()
}

/// Cuts a run of places into pieces whose rows, from first to last, fit the staging memory.
fn split_by_size<'a>(
    mut places: &'a [usize],
    samples: &'a [usize],
    row_len: usize,
) -> impl Iterator<Item = &'a [usize]> + 'a {
    let rows_max = (STAGING_BYTES / size_of::<f32>() / row_len).max(1);
    std::iter::from_fn(move || {
        let first = *places.first()?;
        let fitting = places.partition_point(|&place| samples[place] - samples[first] < rows_max);
        let (piece, rest) = places.split_at(fitting);
        places = rest;
        Some(piece)
    })
}

/// What `copy`, which moves values within memory, took.
fn copied(copy: impl FnOnce()) -> ReadCost {
    let started = Instant::now();
    copy();
    ReadCost { copy: started.elapsed(), ..ReadCost::default() }
}

fn gather_held(rows: &[f32], samples: &[usize], out: &mut [f32]) {
    let Some(row_len) = out.len().checked_div(samples.len()) else { return };
    for (row, &sample) in out.chunks_exact_mut(row_len).zip(samples) {
        row.copy_from_slice(&rows[sample * row_len..(sample + 1) * row_len]);
    }
}

fn slices(out: SampleSlices<'_>) -> impl Iterator<Item = &mut [f32]> {
    out.features.into_iter().chain([out.targets])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_span_no_more_rows_than_fit() {
        let four_rows_fit = STAGING_BYTES / size_of::<f32>() / 4;
        let samples = [9, 0, 3, 4, 8, 3, 20];
        let places = [1, 2, 5, 3, 4, 0, 6];
        let pieces: Vec<_> = split_by_size(&places, &samples, four_rows_fit).collect();
        assert_eq!(pieces, [&[1, 2, 5][..], &[3], &[4, 0], &[6]]);
        let pieces: Vec<_> = split_by_size(&places, &samples, usize::MAX / 8).collect();
        assert_eq!(
            pieces,
            [&[1][..], &[2, 5], &[3], &[4], &[0], &[6]],
            "a row too large for the staging memory goes alone"
        );
        assert_eq!(split_by_size(&[], &samples, 1).count(), 0);
    }
}
