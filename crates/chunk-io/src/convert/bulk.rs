//! Tables of the new file: read in batches, packed on all cores, written chunk by chunk, and
//! compared.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use hdf5::filters::Filter;
use hdf5::plist::DatasetCreate;
use hdf5::{Dataset, Dataspace, File};
use megabatch_gpu_core::Buffer;
use rayon::prelude::*;

use super::packing::{PackedChunk, Packing};
use super::row_source::RowSource;
use super::work::ConversionContext;
use super::{ConversionJob, StorageChoice, StorageForm, raw};
use crate::error::{Error, LayoutFault, Result};
use crate::slab;
use crate::storage::Compression;

/// Chunks aim at this size, as those of every writer of this crate do.
const CHUNK_BYTES: usize = 1 << 20;
/// HDF5 counts the bytes of a chunk in 32 bits.
const CHUNK_BYTES_MAX: usize = u32::MAX as usize;

/// Storage of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableStorage {
    Contiguous,
    Chunked { rows: usize, compression: Compression },
}

/// Meaning of storage settings that are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOpen {
    /// As in the old dataset.
    AsItWas,
    /// As in every new file.
    Default,
}

/// A table of the new file.
#[derive(Debug)]
pub(super) struct Bulk {
    /// Its path in the new file.
    pub(super) object: String,
    pub(super) shape: Vec<usize>,
    /// The dataset of the old file that it takes its type and fill value from.
    pub(super) like: Dataset,
    pub(super) form: TableStorage,
    pub(super) element_bytes: usize,
}

impl Bulk {
    /// The table `object` with the type of `like`, stored as `choice` says.
    pub(super) fn new(
        object: &str,
        shape: Vec<usize>,
        like: Dataset,
        choice: &StorageChoice,
        open: LeftOpen,
    ) -> hdf5::Result<Self> {
        let element_bytes = like.dtype()?.size();
        let mut bulk = Bulk { object: object.to_owned(), shape, like, form: TableStorage::Contiguous, element_bytes };
        bulk.form = bulk.choose(choice, open);
        Ok(bulk)
    }

    /// The table `object` of the old file, stored as it was unless the options say otherwise.
    pub(super) fn keeping(job: &ConversionJob<'_>, object: &str, dataset: &Dataset) -> Result<Self> {
        Self::new(object, dataset.shape(), dataset.clone(), &job.options.storage, LeftOpen::AsItWas)
            .map_err(job.input.failed(object, "look at the dataset"))
    }

    fn choose(&self, choice: &StorageChoice, open: LeftOpen) -> TableStorage {
        let original = (open == LeftOpen::AsItWas).then(|| original_form(&self.like, &self.shape));
        let chosen = choice.chunk_rows.is_some() || choice.compression.is_some();
        match choice.form {
            Some(StorageForm::Contiguous) => return TableStorage::Contiguous,
            None if !chosen && original == Some(TableStorage::Contiguous) => return TableStorage::Contiguous,
            _ => {}
        }
        let (kept_rows, kept_compression) = match original {
            Some(TableStorage::Chunked { rows, compression }) => {
                (Some(rows).filter(|&rows| rows > 0), Some(compression))
            }
            Some(TableStorage::Contiguous) => (None, Some(Compression::None)),
            None => (None, None),
        };
        // `chunk_rows` is meant for samples; lists such as times would get tiny chunks.
        let asked = choice.chunk_rows.filter(|_| self.shape.len() > 1).map(NonZeroUsize::get);
        let by_size = (CHUNK_BYTES / self.row_bytes().max(1)).max(1);
        TableStorage::Chunked {
            rows: asked.or(kept_rows).unwrap_or(by_size).min(self.rows()).max(1),
            compression: choice.compression.or(kept_compression).unwrap_or(Compression::Gzip { level: 4 }),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.shape[0]
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.shape[1..].iter().product::<usize>() * self.element_bytes
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows() as u64 * self.row_bytes() as u64
    }

    /// Bytes of the rows of a unit.
    pub(super) fn bytes_of(&self, unit: usize) -> u64 {
        let first = unit * self.unit_rows();
        ((self.rows() - first).min(self.unit_rows()) * self.row_bytes()) as u64
    }

    /// Rows that are packed together: a chunk, or a piece of a contiguous table.
    pub(super) fn unit_rows(&self) -> usize {
        match self.form {
            TableStorage::Chunked { rows, .. } => rows,
            TableStorage::Contiguous => (CHUNK_BYTES / self.row_bytes().max(1)).clamp(1, self.rows().max(1)),
        }
    }

    pub(super) fn units(&self) -> usize {
        self.rows().div_ceil(self.unit_rows())
    }

    /// Refuses chunks that HDF5 cannot have or that memory cannot hold.
    pub(super) fn check(&self, work: &ConversionContext<'_>) -> Result<()> {
        let bytes = self.unit_rows().saturating_mul(self.row_bytes());
        let limit = CHUNK_BYTES_MAX.min(work.batch_bytes().max(CHUNK_BYTES));
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::BadRequest {
            path: work.out.to_owned(),
            asked: format!("chunks of {} rows of {} bytes for {}", self.unit_rows(), self.row_bytes(), self.object),
            found: format!("a chunk may have {limit} bytes here (HDF5 ends at 4 GiB, and four must fit in memory)"),
            fix: "ask for fewer rows in a chunk, or allow more memory".to_owned(),
        })
    }

    /// Packs the units from `first` on in batches; `sink` takes each, in order, and may stop the
    /// work.
    pub(super) fn pack(
        &self,
        source: &mut dyn RowSource,
        first: usize,
        work: &mut ConversionContext<'_>,
        sink: &mut dyn FnMut(usize, &PackedChunk, &mut ConversionContext<'_>) -> Result<()>,
    ) -> Result<()> {
        let unit_bytes = self.unit_rows() * self.row_bytes();
        let batch_units = (work.batch_bytes() / unit_bytes.max(1)).max(1).min(self.units() - first);
        let mut batch = work.buffer(batch_units * unit_bytes)?;
        for start in (first..self.units()).step_by(batch_units.max(1)) {
            let units = start..(start + batch_units).min(self.units());
            let rows = units.start * self.unit_rows()..(units.end * self.unit_rows()).min(self.rows());
            let raw = &mut batch.as_mut_slice()[..units.len() * unit_bytes];
            let (filled, padding) = raw.split_at_mut(rows.len() * self.row_bytes());
            source.read(rows, filled)?;
            padding.fill(0);
            let packed = self.pack_batch(&batch.as_slice()[..units.len() * unit_bytes], work);
            units.zip(&packed).try_for_each(|(unit, packed)| sink(unit, packed, work))?;
        }
        Ok(())
    }

    /// Bytes that the table takes in the new file: of compressed chunks the first, the middle and
    /// the last one tell how small they become, and the others may become smaller by a fifth.
    pub(super) fn estimated_bytes(&self, source: &mut dyn RowSource, work: &ConversionContext<'_>) -> Result<u64> {
        let (packing, units) = (self.packing(), self.units());
        if packing.compression == Compression::None || units == 0 {
            return Ok(self.bytes());
        }
        self.check(work)?;
        let mut raw: Buffer<u8> = work.buffer(self.unit_rows() * self.row_bytes())?;
        let looked_at = BTreeSet::from([0, units / 2, units - 1]);
        let (mut read_bytes, mut packed_bytes) = (0, 0);
        for unit in looked_at {
            let first = unit * self.unit_rows();
            let raw = &mut raw.as_mut_slice()[..self.bytes_of(unit) as usize];
            source.read(first..(first + self.unit_rows()).min(self.rows()), raw)?;
            read_bytes += raw.len();
            packed_bytes += packing.pack(raw).bytes.len();
        }
        Ok((0.8 * self.bytes() as f64 * packed_bytes as f64 / read_bytes.max(1) as f64) as u64)
    }

    fn packing(&self) -> Packing {
        let compression = match self.form {
            TableStorage::Chunked { compression, .. } => compression,
            TableStorage::Contiguous => Compression::None,
        };
        Packing { element_bytes: self.element_bytes, compression }
    }

    fn pack_batch(&self, raw: &[u8], work: &ConversionContext<'_>) -> Vec<PackedChunk> {
        let packing = self.packing();
        let units = raw.chunks_exact(self.unit_rows() * self.row_bytes());
        let units: Vec<&[u8]> = units.collect();
        work.threads.install(|| units.par_iter().map(|unit| packing.pack(unit)).collect())
    }

    /// The empty dataset, to be filled with [`Bulk::write`].
    pub(super) fn create(&self, file: &File, path: &Path) -> Result<Dataset> {
        let create = || -> hdf5::Result<Dataset> {
            let mut plist = DatasetCreate::build();
            plist.obj_track_times(false);
            let mut space = Dataspace::try_new(self.shape.clone())?;
            if let TableStorage::Chunked { rows, compression } = self.form {
                let mut chunk = self.shape.clone();
                chunk[0] = rows;
                plist.chunk(chunk);
                match compression {
                    Compression::None => {}
                    Compression::Gzip { level } => drop(plist.shuffle().deflate(level.min(9))),
                    Compression::Lzf => drop(plist.shuffle().lzf()),
                }
                // A maximal shape is kept, except for a contiguous dataset, which cannot have one.
                let original = self.like.space()?;
                space = if original.shape() == self.shape { original } else { space };
            }
            raw::create_like(file, &self.object, &space, &self.like, &plist.finish()?)
        };
        create().map_err(Error::hdf5(path, &self.object, "create the dataset"))
    }

    /// Writes a packed unit to its place.
    pub(super) fn write(&self, dataset: &Dataset, path: &Path, unit: usize, packed: &PackedChunk) -> Result<()> {
        let first = unit * self.unit_rows();
        let written = match self.form {
            TableStorage::Chunked { .. } => raw::write_chunk(dataset, first, packed.mask, &packed.bytes),
            TableStorage::Contiguous => {
                let rows = first..(first + self.unit_rows()).min(self.rows());
                slab::write_stored_rows(dataset, &rows, &packed.bytes[..rows.len() * self.row_bytes()])
            }
        };
        written.map_err(Error::hdf5(path, &self.object, "write"))
    }
}

/// Compares every row of two sources, bit for bit.
pub(super) fn compare(
    object: &str,
    rows: usize,
    row_bytes: usize,
    old: &mut dyn RowSource,
    new: &mut dyn RowSource,
    work: &mut ConversionContext<'_>,
) -> Result<()> {
    let batch_rows = (work.batch_bytes() / 2 / row_bytes.max(1)).max(1).min(rows);
    let mut buffers: [Buffer<u8>; 2] = [work.buffer(batch_rows * row_bytes)?, work.buffer(batch_rows * row_bytes)?];
    for first in (0..rows).step_by(batch_rows) {
        let range: Range<usize> = first..(first + batch_rows).min(rows);
        let [left, right] = buffers.each_mut().map(|buffer| &mut buffer.as_mut_slice()[..range.len() * row_bytes]);
        old.read(range.clone(), left)?;
        new.read(range.clone(), right)?;
        if left != right {
            let differs = left.iter().zip(&*right).position(|(left, right)| left != right).unwrap_or(0);
            let fault = LayoutFault {
                object: object.to_owned(),
                index: Some(first + differs / row_bytes),
                expected: "the values of the file that it was made from, bit for bit".to_owned(),
                found: "others".to_owned(),
                fix: "the new file was not kept; look at the disk and the memory of this machine".to_owned(),
            };
            return Err(Error::invalid(work.out, fault));
        }
        work.advance((range.len() * row_bytes) as u64)?;
    }
    Ok(())
}

/// Storage of a dataset, as far as it can be kept; 0 rows if its chunks are no whole rows.
fn original_form(dataset: &Dataset, shape: &[usize]) -> TableStorage {
    let Some(chunk) = dataset.chunk() else { return TableStorage::Contiguous };
    let whole = chunk.len() == shape.len() && chunk[1..] == shape[1..];
    let filters = dataset.filters();
    let compression = filters.iter().find_map(|filter| match filter {
        Filter::Deflate(level) => Some(Compression::Gzip { level: *level }),
        Filter::LZF => Some(Compression::Lzf),
        Filter::Shuffle | Filter::Fletcher32 => None,
        _ => Some(Compression::Gzip { level: 4 }),
    });
    TableStorage::Chunked {
        rows: if whole { chunk[0] } else { 0 },
        compression: compression.unwrap_or(Compression::None),
    }
}
