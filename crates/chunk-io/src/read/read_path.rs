//! Places of a dataset's bytes, and the choice of their reader.

use std::path::Path;

use hdf5::Dataset;
use hdf5::dataset::Layout;

use super::file::{FileExtent, FileIdentity, RawFile};
use super::index::{ChunkGrid, ChunkIndex, Unusable};
use crate::decode::{ByteOrder, ChunkFilter, FloatType, FloatWidth, Pipeline, to_f32};
use crate::error::{Error, Result, innermost};
use crate::stored::{StoredFilter, fill_bytes, filters, ieee_float, leaves_edges_unfiltered, misplaces_chunks};

/// Reader of a dataset.
#[derive(Debug)]
pub(crate) enum ReadPath {
    Own(Box<DirectDataset>),
    /// The HDF5 library, for this reason.
    Library(String),
}

/// A dataset whose bytes this crate reads itself.
#[derive(Debug)]
pub(crate) struct DirectDataset {
    pub(super) file: RawFile,
    pub(super) object: String,
    pub(super) grid: ChunkGrid,
    pub(super) float: FloatType,
    /// Fill value of places that were never written.
    pub(super) fill: f32,
    pub(super) place: StoragePlace,
}

#[derive(Debug)]
pub(super) enum StoragePlace {
    /// Nothing was ever written.
    Nowhere,
    /// Rows one after the other.
    Contiguous { offset: u64 },
    /// Whole rows one after the other in each chunk, without filters.
    PlainChunks { index: ChunkIndex },
    /// Chunks to be decoded.
    Chunks { index: ChunkIndex, pipeline: Pipeline },
}

/// A dataset for which a reader is chosen.
pub(crate) struct DatasetQuery<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) object: &'a str,
    pub(crate) shape: &'a [usize],
    /// The file that was opened by name, and its identity then.
    pub(crate) path: &'a Path,
    pub(crate) opened: &'a FileIdentity,
}

/// Chooses the reader of a dataset.
///
/// # Errors
/// If its file is another than the one that was opened, or if what its header or index says cannot
/// be true.
pub(crate) fn choose_read_path(query: &DatasetQuery<'_>) -> Result<ReadPath> {
    let DatasetQuery { dataset, object, shape, .. } = *query;
    let failed = |error| Error::hdf5(query.path, object, "look at the storage")(error);
    let Some(float) = dataset.dtype().ok().and_then(|dtype| ieee_float(&dtype)) else {
        return Ok(ReadPath::Library("its numbers are not IEEE floats".to_owned()));
    };
    let properties = dataset.dcpl().map_err(failed)?;
    let chunk = match properties.layout() {
        _ if !properties.external().is_empty() => return Ok(ReadPath::Library("it lies in other files".to_owned())),
        Layout::Contiguous => shape.to_vec(),
        Layout::Chunked => properties.chunk().unwrap_or_default(),
        Layout::Compact => return Ok(ReadPath::Library("it lies in its own header (compact storage)".to_owned())),
        _ => return Ok(ReadPath::Library("it is made of other datasets (virtual storage)".to_owned())),
    };
    let Some(grid) = ChunkGrid::new(shape, &chunk) else {
        return Ok(ReadPath::Library(format!("chunks of {chunk:?} for a shape of {shape:?}")));
    };
    let Some(file) = RawFile::open(dataset, query.opened)? else {
        return Ok(ReadPath::Library(
            "HDF5 does not read the file by plain system calls, or is writing to it".to_owned(),
        ));
    };
    let mut fill = [0.0];
    if let Some(bytes) = fill_bytes(dataset).map_err(failed)? {
        to_f32(float, &bytes, &mut fill);
    }
    let mut stored =
        DirectDataset { file, object: object.to_owned(), grid, float, fill: fill[0], place: StoragePlace::Nowhere };
    if properties.layout() == Layout::Contiguous {
        stored.place = stored.contiguous(dataset)?;
        return Ok(ReadPath::Own(Box::new(stored)));
    }
    let filters = filters(dataset).map_err(failed)?;
    let plain = filters.is_empty() && stored.grid.has_whole_rows();
    if !plain {
        stored.require_bounded_chunks()?;
    }
    if misplaces_chunks(dataset).map_err(failed)? {
        return Ok(ReadPath::Library("it grows along an axis that is not the first".to_owned()));
    }
    if !filters.is_empty() && leaves_edges_unfiltered(dataset).map_err(failed)? {
        return Ok(ReadPath::Library("its chunks at the edge are stored without filters".to_owned()));
    }
    let Some(pipeline) = pipeline(&filters, float, &stored.grid) else {
        let names: Vec<&str> = filters.iter().map(|filter| filter.name.as_str()).collect();
        return Ok(ReadPath::Library(format!("its filters are {}", names.join(", "))));
    };
    stored.place = stored.chunks(dataset, pipeline, plain)?;
    Ok(ReadPath::Own(Box::new(stored)))
}

/// Registered numbers of the filters that are undone here (HDF5 File Format Specification,
/// IV.A.2.l, and h5py's registration of LZF).
const DEFLATE: i32 = 1;
const SHUFFLE: i32 = 2;
const FLETCHER32: i32 = 3;
const LZF: i32 = 32000;

fn pipeline(filters: &[StoredFilter], float: FloatType, grid: &ChunkGrid) -> Option<Pipeline> {
    let filter = |filter: &StoredFilter| match filter.id {
        DEFLATE => Some(ChunkFilter::Deflate),
        SHUFFLE => Some(ChunkFilter::Shuffle { element_bytes: *filter.parameters.first()? as usize }),
        FLETCHER32 => Some(ChunkFilter::Fletcher32),
        LZF => Some(ChunkFilter::Lzf),
        _ => None,
    };
    Pipeline::new(filters.iter().map(filter).collect::<Option<_>>()?, float, grid.chunk_elements()?)
}

/// HDF5's own limit for a chunk, and so for what is decoded at once.
const CHUNK_BYTES_MAX: u64 = u32::MAX as u64;
/// A chunk larger than this must not exceed its dataset by the factor below.
const CHUNK_BYTES_FREE: u64 = 64 << 20;
const CHUNK_OVERSIZE_MAX: u64 = 64;

impl DirectDataset {
    /// Bytes of an element in the file.
    pub(super) fn width(&self) -> usize {
        self.float.bytes()
    }

    /// True if the file's bytes are those of an f32 in memory.
    pub(super) fn is_native(&self) -> bool {
        let order = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
        self.float.width == FloatWidth::F32 && self.float.order == order
    }

    pub(super) fn row_len(&self) -> usize {
        self.grid.shape[1] * self.grid.shape[2]
    }

    /// Bytes that the values take in the file.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.place {
            StoragePlace::Nowhere => 0,
            StoragePlace::Contiguous { .. } => (self.grid.shape[0] * self.row_len() * self.width()) as u64,
            StoragePlace::PlainChunks { index } | StoragePlace::Chunks { index, .. } => index.stored_bytes(),
        }
    }

    /// True if chunks are decoded on the way.
    pub(crate) fn is_decoded(&self) -> bool {
        matches!(self.place, StoragePlace::Chunks { .. })
    }

    fn contiguous(&self, dataset: &Dataset) -> Result<StoragePlace> {
        // Behind a user block the library returns an address even for a dataset without one; the
        // size shows it.
        let (Some(offset), 1..) = (dataset.offset(), dataset.storage_size()) else { return Ok(StoragePlace::Nowhere) };
        let bytes = self.grid.shape[0] * self.row_len() * self.width();
        self.require_within(FileExtent { offset, bytes }, Vec::new)?;
        Ok(StoragePlace::Contiguous { offset })
    }

    fn chunks(&self, dataset: &Dataset, pipeline: Pipeline, plain: bool) -> Result<StoragePlace> {
        let index = ChunkIndex::read(dataset, &self.grid, self.file.bytes()).map_err(|unusable| {
            let detail = match unusable {
                Unusable::Hdf5(error) => innermost(&error),
                Unusable::Lies(what) => what,
            };
            Error::DamagedIndex { path: self.file.path.clone(), object: self.object.clone(), detail }
        })?;
        Ok(if plain { StoragePlace::PlainChunks { index } } else { StoragePlace::Chunks { index, pipeline } })
    }

    /// Bytes of a decoded chunk.
    pub(super) fn chunk_bytes(&self) -> u64 {
        let elements = self.grid.chunk_elements().map_or(u64::MAX, |elements| elements as u64);
        elements.saturating_mul(self.width() as u64)
    }

    fn require_bounded_chunks(&self) -> Result<()> {
        let bytes = self.chunk_bytes();
        let dataset_bytes = self.grid.shape.iter().product::<usize>() as u64 * self.width() as u64;
        let bytes_max = CHUNK_BYTES_FREE.max(dataset_bytes.saturating_mul(CHUNK_OVERSIZE_MAX)).min(CHUNK_BYTES_MAX);
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(Error::ChunkTooLarge {
            path: self.file.path.clone(),
            object: self.object.clone(),
            chunk: self.grid.chunk.to_vec(),
            bytes,
            bytes_max,
        })
    }

    /// Refuses an extent beyond the end of the file: of the chunk that begins with the element
    /// `chunk`, or of a contiguous dataset.
    pub(super) fn require_within(&self, extent: FileExtent, chunk: impl FnOnce() -> Vec<usize>) -> Result<()> {
        if extent.end() <= self.file.bytes() {
            return Ok(());
        }
        Err(Error::BeyondEnd {
            path: self.file.path.clone(),
            object: self.object.clone(),
            chunk: chunk(),
            bytes: extent.bytes as u64,
            offset: extent.offset,
            file_bytes: self.file.bytes(),
        })
    }
}
