use serde::Serialize;

use crate::error::Result;
use crate::numeric_dataset::NumericDataset;
use crate::read::ReadPath;
use crate::stored::filters;

/// Storage and reader of a dataset of a [`Source`](crate::Source).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoredDataset {
    /// Path in the file.
    pub object: String,
    /// Length of each axis, the samples or bars first.
    pub shape: Vec<usize>,
    /// Bytes of an element in the file before filters.
    pub element_bytes: usize,
    /// Bytes that the values take in the file.
    pub stored_bytes: u64,
    /// Shape of a chunk, if it is chunked.
    pub chunk: Option<Vec<usize>>,
    /// Names of the filters, in the order in which they are applied when writing.
    pub filters: Vec<String>,
    /// Reader of the values.
    pub read_by: ReadBy,
}

/// Readers of a dataset's values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReadBy {
    /// Rows are read from where they lie, those asked for and no others.
    Position,
    /// Chunks are read and decoded whole, on several threads.
    Chunk,
    /// The HDF5 library, on one thread.
    Library {
        /// Why it is not read faster.
        reason: String,
    },
}

impl StoredDataset {
    pub(super) fn new(table: &NumericDataset) -> Result<Self> {
        let read_path = table.read_path()?;
        let filters = filters(&table.dataset).unwrap_or_default();
        Ok(StoredDataset {
            object: table.object.clone(),
            shape: table.shape.clone(),
            element_bytes: table.dataset.dtype().map_or(0, |dtype| dtype.size()),
            stored_bytes: match read_path {
                ReadPath::Own(stored) => stored.stored_bytes(),
                ReadPath::Library(_) => table.dataset.storage_size(),
            },
            chunk: table.chunk().map(<[usize]>::to_vec),
            filters: filters.into_iter().map(|filter| filter.name).collect(),
            read_by: match read_path {
                ReadPath::Own(stored) if stored.is_decoded() => ReadBy::Chunk,
                ReadPath::Own(_) => ReadBy::Position,
                ReadPath::Library(reason) => ReadBy::Library { reason: reason.clone() },
            },
        })
    }
}
