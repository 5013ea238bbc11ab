//! Integers that lie in the file as in memory, read by position.

use std::ops::Range;
use std::os::unix::fs::FileExt;

use hdf5::dataset::Layout;

use super::file::RawFile;
use super::read_path::DatasetQuery;
use crate::error::{Error, Result};

/// A contiguous list of 64-bit integers.
#[derive(Debug)]
pub(crate) struct DirectIntegers {
    file: RawFile,
    offset: u64,
}

impl DirectIntegers {
    /// Reader of a dataset; `None` where it is stored otherwise.
    ///
    /// # Errors
    /// If its file is another than the one that was opened.
    pub(crate) fn open(query: &DatasetQuery<'_>) -> Result<Option<Self>> {
        let DatasetQuery { dataset, object, shape, .. } = *query;
        let failed = |error| Error::hdf5(query.path, object, "look at the storage")(error);
        if shape.len() != 1 || !dataset.dtype().map_err(failed)?.is::<i64>() {
            return Ok(None);
        }
        let properties = dataset.dcpl().map_err(failed)?;
        if properties.layout() != Layout::Contiguous || !properties.external().is_empty() {
            return Ok(None);
        }
        let (Some(offset), 1..) = (dataset.offset(), dataset.storage_size()) else { return Ok(None) };
        let Some(file) = RawFile::open(dataset, query.opened)? else { return Ok(None) };
        let is_inside = offset.checked_add((shape[0] * size_of::<i64>()) as u64).is_some_and(|end| end <= file.bytes());
        Ok(is_inside.then_some(DirectIntegers { file, offset }))
    }

    /// Reads `rows` into `out`, which is as long.
    pub(crate) fn read(&self, rows: &Range<usize>, out: &mut [i64]) -> Result<()> {
        self.file.require_unchanged()?;
        let offset = self.offset + (rows.start * size_of::<i64>()) as u64;
        let read = self.file.file.read_exact_at(bytemuck::cast_slice_mut(out), offset);
        read.map_err(|error| self.file.failed(error))
    }
}
