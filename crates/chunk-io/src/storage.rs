use std::num::NonZeroUsize;
use std::path::Path;

use hdf5::{Dataset, File};

use crate::error::{Error, Result};
use crate::slab::{Element, write_rows};
use crate::text::{AttributeValue, unicode, write_attribute};

/// Storage of datasets on disk. The values are the same in every case.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Layout of every numeric dataset.
    pub storage: Storage,
}

/// Layout of a dataset on disk.
#[derive(Clone, Copy, Debug)]
pub enum Storage {
    /// One block without filters, in which any row has a known place.
    Contiguous,
    /// Pieces of whole rows, each compressed by itself.
    Chunked {
        /// Rows of the first axis in a chunk; as many as make about 1 MiB if `None`.
        rows: Option<NonZeroUsize>,
        /// Compression of a chunk.
        compression: Compression,
    },
}

impl Default for Storage {
    fn default() -> Self {
        Storage::Chunked { rows: None, compression: Compression::Gzip { level: 4 } }
    }
}

/// Compression of a chunk. Bytes are shuffled by significance first, which is what makes floats
/// compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As is.
    None,
    /// Deflate at level 0 to 9.
    Gzip {
        /// 0 is fastest, 9 is smallest.
        level: u8,
    },
    /// LZF: larger than gzip, several times faster.
    Lzf,
}

/// Chunks aim at this size: small enough to decode a few samples for, large enough to read from
/// disk at full speed.
const CHUNK_BYTES: usize = 1 << 20;

/// The file being written, with what each of its datasets and errors needs.
#[derive(Debug)]
pub(crate) struct OutputFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a File,
    pub(crate) storage: Storage,
}

impl OutputFile<'_> {
    /// An empty dataset of `T` in little-endian order.
    pub(crate) fn create<T: Element>(&self, object: &str, shape: &[usize]) -> Result<Dataset> {
        let builder = self.file.new_dataset::<T>();
        let builder = match self.storage {
            // HDF5 refuses chunks of no elements, and an empty dataset has nothing to compress.
            Storage::Chunked { rows, compression } if !shape.contains(&0) => {
                let mut chunk = shape.to_vec();
                chunk[0] = rows.map_or_else(|| chunk_rows(shape, size_of::<T>()), NonZeroUsize::get).min(shape[0]);
                let builder = builder.chunk(chunk);
                match compression {
                    Compression::None => builder,
                    Compression::Gzip { level } => builder.shuffle().deflate(level.min(9)),
                    Compression::Lzf => builder.shuffle().lzf(),
                }
            }
            _ => builder,
        };
        builder.shape(shape).create(object).map_err(Error::hdf5(self.path, object, "create the dataset"))
    }

    /// A dataset of `T` that holds `values`, row-major.
    pub(crate) fn write<T: Element>(&self, object: &str, shape: &[usize], values: &[T]) -> Result<Dataset> {
        let dataset = self.create::<T>(object, shape)?;
        self.write_rows(&dataset, 0, values)?;
        Ok(dataset)
    }

    /// Writes whole rows of `dataset` from row `first` on.
    pub(crate) fn write_rows<T: Element>(&self, dataset: &Dataset, first: usize, values: &[T]) -> Result<()> {
        let row_len: usize = dataset.shape()[1..].iter().product();
        let rows = first..first + values.len().checked_div(row_len).unwrap_or(0);
        write_rows(dataset, &rows, values).map_err(|error| Error::hdf5(self.path, &dataset.name(), "write")(error))
    }

    /// A list of variable-length UTF-8 strings.
    pub(crate) fn write_texts(&self, object: &str, texts: &[String]) -> Result<()> {
        let write = || -> hdf5::Result<()> {
            let texts = texts.iter().map(|text| unicode(text)).collect::<hdf5::Result<Vec<_>>>()?;
            let dataset = self.file.new_dataset::<hdf5::types::VarLenUnicode>().shape([texts.len()]).create(object)?;
            if texts.is_empty() { Ok(()) } else { dataset.write_raw(&texts) }
        };
        write().map_err(Error::hdf5(self.path, object, "write the strings"))
    }

    pub(crate) fn write_attribute(&self, location: &hdf5::Location, name: &str, value: &AttributeValue) -> Result<()> {
        let object = format!("{}@{name}", location.name());
        write_attribute(location, name, value).map_err(Error::hdf5(self.path, &object, "write the attribute"))
    }
}

fn chunk_rows(shape: &[usize], element_bytes: usize) -> usize {
    let row_bytes = shape[1..].iter().product::<usize>() * element_bytes;
    (CHUNK_BYTES / row_bytes).max(1)
}
