//! Rows read through the HDF5 library, for datasets that this crate does not read itself. It runs
//! under one lock: one thread reads.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use half::f16;
use half::slice::HalfFloatSliceExt;
use hdf5::Dataset;
use megabatch_gpu_core::{Buffer, Scope};

use super::parallel::Done;
use super::rows::{RowSelection, cut, take};
use super::{NonFinite, has_non_finite};
use crate::cost::ReadCost;
use crate::decode::FloatWidth;
use crate::slab::{Element, read_rows};
use crate::stored::ieee_float;

/// Converter of the elements to f32. HDF5's own conversion is slow, and the bits of a NaN depend on
/// the byte order. So for the common types it only swaps bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ToF32 {
    /// HDF5: 32-bit floats, and narrow ones of unusual form.
    Hdf5,
    /// This crate, from IEEE half precision; exact.
    FromHalf,
    /// This crate, from f64 (to which HDF5 widens integers and booleans); to nearest, ties to even.
    FromDouble,
}

impl ToF32 {
    pub(crate) fn new(dataset: &Dataset, is_whole: bool) -> Self {
        match dataset.dtype() {
            Ok(dtype) if ieee_float(&dtype).is_some_and(|float| float.width == FloatWidth::F16) => ToF32::FromHalf,
            Ok(dtype) if is_whole || dtype.size() > size_of::<f32>() => ToF32::FromDouble,
            _ => ToF32::Hdf5,
        }
    }
}

/// Elements that become f32 here are staged this many bytes at a time, in whole chunks.
const STAGING_BYTES: usize = 1 << 20;
/// A range is read in parts of about this size, between which a read may be stopped.
const PART_BYTES: usize = 16 << 20;
/// A gather reads at most this much at once into memory of its own.
const GATHER_BYTES: usize = 64 << 20;

/// Reason for which rows could not be read.
#[derive(Debug)]
pub(crate) enum ReadFailure {
    Hdf5(hdf5::Error),
    Memory(megabatch_gpu_core::Error),
    Stopped,
}

/// A dataset that the library reads.
pub(crate) struct LibraryRows<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) to_f32: ToF32,
    pub(crate) row_len: usize,
    /// Rows of the first axis in a chunk, if the dataset is chunked.
    pub(crate) chunk_rows: Option<usize>,
    pub(crate) non_finite: NonFinite,
    /// Ends reading between two parts once it is true.
    pub(crate) stop: &'a AtomicBool,
}

impl LibraryRows<'_> {
    /// Reads `rows` into `out`. Memory for rows that are not consecutive is booked on `scope`.
    pub(crate) fn read(&self, rows: &RowSelection<'_>, out: &mut [f32], scope: &Scope) -> Result<Done, ReadFailure> {
        match rows {
            RowSelection::Range(rows) => {
                let mut done = Done::default();
                let mut out = out;
                for rows in cut(rows.clone(), self.part_rows()) {
                    let part = take(&mut out, rows.len() * self.row_len);
                    done.cost += self.read_range(rows, part)?;
                    done.has_non_finite |= has_non_finite(self.non_finite, part);
                }
                Ok(done)
            }
            RowSelection::Ranges(ranges) => {
                let mut done = Done::default();
                let mut out = out;
                for rows in *ranges {
                    let part = take(&mut out, rows.len() * self.row_len);
                    done.merge(self.read(&RowSelection::Range(rows.clone()), part, scope)?);
                }
                Ok(done)
            }
            RowSelection::List(rows) => self.gather(rows, out, scope),
        }
    }

    /// Rows of a range that are read at once, a multiple of a chunk's: none is decoded twice.
    fn part_rows(&self) -> usize {
        let rows = (PART_BYTES / size_of::<f32>() / self.row_len.max(1)).max(1);
        rows.next_multiple_of(self.chunk_rows.unwrap_or(1).max(1))
    }

    fn read_range(&self, rows: Range<usize>, out: &mut [f32]) -> Result<ReadCost, ReadFailure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ReadFailure::Stopped);
        }
        let started = Instant::now();
        let read = match self.to_f32 {
            ToF32::Hdf5 => read_rows(self.dataset, &rows, out),
            ToF32::FromHalf => self.read_staged::<f16>(rows, out, <[f16]>::convert_to_f32_slice),
            ToF32::FromDouble => self.read_staged::<f64>(rows, out, |doubles, out| {
                out.iter_mut().zip(doubles).for_each(|(narrow, &wide)| *narrow = wide as f32);
            }),
        };
        read.map_err(ReadFailure::Hdf5)?;
        let width = self.dataset.dtype().map_or(0, |dtype| dtype.size());
        Ok(ReadCost { bytes_read: (out.len() * width) as u64, disk: started.elapsed(), ..ReadCost::default() })
    }

    /// Reads `rows` as `T` in batches and converts each.
    fn read_staged<T: Element>(
        &self,
        rows: Range<usize>,
        out: &mut [f32],
        convert: impl Fn(&[T], &mut [f32]),
    ) -> hdf5::Result<()> {
        let row_len = self.row_len;
        let unit = self.chunk_rows.unwrap_or(1);
        let batch_rows = (STAGING_BYTES / size_of::<T>() / row_len.max(1)).max(1).next_multiple_of(unit);
        let mut staged = Vec::new();
        let mut first = rows.start;
        while first < rows.end {
            // Batches end with a chunk, so that none is decoded twice.
            let end = (first / unit * unit + batch_rows).min(rows.end);
            staged.resize((end - first) * row_len, T::zeroed());
            read_rows(self.dataset, &(first..end), &mut staged)?;
            convert(&staged, &mut out[(first - rows.start) * row_len..][..staged.len()]);
            first = end;
        }
        Ok(())
    }

    /// Reads in the order of the file, each chunk once, and scatters the rows to their places.
    fn gather(&self, rows: &[usize], out: &mut [f32], scope: &Scope) -> Result<Done, ReadFailure> {
        let mut done = Done::default();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|&place| rows[place]);
        let mut staging = Buffer::<f32>::zeros(scope, 0).map_err(ReadFailure::Memory)?;
        for places in order.chunk_by(|&a, &b| self.read_together(rows[a], rows[b])) {
            for places in split_by_size(places, rows, self.row_len) {
                let together = rows[places[0]]..rows[places[places.len() - 1]] + 1;
                let len = together.len() * self.row_len;
                if staging.len() < len {
                    staging = Buffer::zeros(scope, len).map_err(ReadFailure::Memory)?;
                }
                let staged = &mut staging.as_mut_slice()[..len];
                done.cost += self.read_range(together.clone(), staged)?;
                let started = Instant::now();
                for &place in places {
                    let from = (rows[place] - together.start) * self.row_len;
                    let row = &mut out[place * self.row_len..][..self.row_len];
                    row.copy_from_slice(&staged[from..from + self.row_len]);
                    done.has_non_finite |= has_non_finite(self.non_finite, row);
                }
                done.cost.copy += started.elapsed();
            }
        }
        Ok(done)
    }

    /// Neighbours in the order of the file are read at once if they touch, or if one chunk holds
    /// both: decoding it twice would cost more than reading the rows between them.
    fn read_together(&self, earlier: usize, later: usize) -> bool {
        let same_chunk = || self.chunk_rows.is_some_and(|rows| earlier / rows == later / rows);
        later - earlier <= 1 || same_chunk()
    }
}

/// Cuts a run of places into pieces whose rows, from first to last, fit the staging memory.
fn split_by_size<'a>(
    mut places: &'a [usize],
    rows: &'a [usize],
    row_len: usize,
) -> impl Iterator<Item = &'a [usize]> + 'a {
    let rows_max = (GATHER_BYTES / size_of::<f32>() / row_len).max(1);
    std::iter::from_fn(move || {
        let first = *places.first()?;
        let fitting = places.partition_point(|&place| rows[place] - rows[first] < rows_max);
        let (piece, rest) = places.split_at(fitting);
        places = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_span_no_more_rows_than_fit() {
        let four_rows_fit = GATHER_BYTES / size_of::<f32>() / 4;
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
