#![forbid(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hdf5::Dataset;
use hdf5::types::TypeDescriptor;
use megabatch_gpu_core::{Buffer, Device, Scope};

use crate::cost::ReadCost;
use crate::error::{Error, Fault, Result, innermost};
use crate::file::InputFile;
use crate::read::{
    DatasetQuery, Failure, Identity, LibraryRows, NonFinite, NonFiniteCount, NonFiniteFound, ReadPath, Reading, Rows,
    ToF32, way,
};
use crate::slab::{Element, read_rows};
use crate::stored::{StoredFilter, filters};

/// Kind of a dataset's elements, whatever their width and byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Integer,
    Other,
}

/// Requirements of a layout on a dataset.
pub(crate) struct Expect {
    /// In words, for the error.
    pub(crate) what: &'static str,
    pub(crate) kinds: &'static [Kind],
    pub(crate) ranks: RangeInclusive<usize>,
}

/// A numeric dataset of known kind and rank. Elements are converted as they are read.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    path: PathBuf,
    pub(crate) object: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dataset: Dataset,
    chunk: Option<Vec<usize>>,
    to_f32: ToF32,
    opened: Identity,
    reading: Arc<Reading>,
    /// Found out when values are first read.
    way: Arc<OnceLock<ReadPath>>,
}

impl Table {
    pub(crate) fn open(file: &InputFile, object: &str, expect: &Expect) -> Result<Self> {
        if !file.has_dataset(object) {
            return Err(file.missing(object, expect.what));
        }
        let dataset = file.root.dataset(object).map_err(file.failed(object, "open the dataset"))?;
        let shape = dataset.shape();
        let (kind, kind_name) = kind_of(&dataset);
        if !expect.kinds.contains(&kind) || !expect.ranks.contains(&shape.len()) {
            return Err(file.broken(object, expect.what, &format!("{kind_name} of shape {shape:?}")));
        }
        let table = Table {
            path: file.path.clone(),
            object: object.to_owned(),
            shape,
            chunk: dataset.chunk(),
            to_f32: ToF32::of(&dataset, kind == Kind::Integer),
            opened: file.opened.clone(),
            reading: Arc::clone(&file.reading),
            way: Arc::default(),
            dataset,
        };
        match table.shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis)) {
            Some(elements) if elements <= isize::MAX as usize / 8 => Ok(table),
            _ => Err(table.fault(None, "a shape that fits in memory", &format!("{:?}", table.shape))),
        }
    }

    /// Length of the first axis.
    pub(crate) fn rows(&self) -> usize {
        self.shape[0]
    }

    /// Elements of one row: the product of all axes but the first.
    pub(crate) fn row_len(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Rows of the first axis in a chunk, if the dataset is chunked.
    pub(crate) fn chunk_rows(&self) -> Option<usize> {
        self.chunk.as_ref().map(|chunk| chunk[0])
    }

    /// Shape of a chunk, if the dataset is chunked.
    pub(crate) fn chunk(&self) -> Option<&[usize]> {
        self.chunk.as_deref()
    }

    pub(crate) fn require_rows(&self, expected: usize, as_many_as: &str) -> Result<()> {
        if self.rows() == expected {
            return Ok(());
        }
        let expected = format!("{expected} rows, as many as {as_many_as} has");
        Err(self.fault(None, &expected, &format!("{} (shape {:?})", self.rows(), self.shape)))
    }

    /// Refuses a dataset with an axis of length 0: there is nothing to train on.
    pub(crate) fn require_elements(&self) -> Result<()> {
        if self.shape.contains(&0) {
            return Err(self.fault(None, "at least one element along each axis", &format!("shape {:?}", self.shape)));
        }
        Ok(())
    }

    /// Reads `rows` of the first axis into `out`, row-major.
    pub(crate) fn read_rows<T: Element>(&self, rows: Range<usize>, out: &mut [T]) -> Result<()> {
        read_rows(&self.dataset, &rows, out).map_err(|error| self.unreadable(&error))
    }

    /// Reads rows of the first axis into `out` as f32, row-major. Memory that the library may need
    /// is booked on `scope`.
    pub(crate) fn read_f32(&self, rows: &Rows<'_>, out: &mut [f32], scope: &Scope) -> Result<ReadCost> {
        let done = match self.way()? {
            ReadPath::Own(stored) => stored.read(rows, out, &self.reading)?,
            ReadPath::Library(_) => self.by_library().read(rows, out, scope).map_err(|failure| match failure {
                Failure::Hdf5(error) => self.unreadable(&error),
                Failure::Memory(error) => Error::memory(&self.path)(error),
            })?,
        };
        self.report(done.found)?;
        Ok(done.cost)
    }

    fn by_library(&self) -> LibraryRows<'_> {
        LibraryRows {
            dataset: &self.dataset,
            to_f32: self.to_f32,
            row_len: self.row_len(),
            chunk_rows: self.chunk_rows(),
            non_finite: self.reading.options.non_finite,
        }
    }

    /// Reader of the values.
    pub(crate) fn way(&self) -> Result<&ReadPath> {
        if let Some(way) = self.way.get() {
            return Ok(way);
        }
        let Table { dataset, object, shape, path, opened, .. } = self;
        let found = way(&DatasetQuery { dataset, object, shape, path, opened }, &self.reading)?;
        Ok(self.way.get_or_init(|| found))
    }

    /// Notes values that were not finite, and refuses them if they are to be refused.
    fn report(&self, found: NonFiniteCount) -> Result<()> {
        let Some(first) = found.first else { return Ok(()) };
        let index = index_of(first, &self.shape);
        if self.reading.options.non_finite == NonFinite::Fail {
            let (path, object) = (self.path.clone(), self.object.clone());
            return Err(Error::NotFinite { path, object, index, count: found.count });
        }
        self.reading.note_non_finite(&NonFiniteFound { count: found.count, dataset: self.object.clone(), index });
        Ok(())
    }

    pub(crate) fn read_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.rows() * self.row_len()];
        self.read_rows(0..self.rows(), &mut values)?;
        Ok(values)
    }

    pub(crate) fn read_f32_vec(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.rows() * self.row_len()];
        self.read_f32_range(0..self.rows(), &mut values)?;
        Ok(values)
    }

    /// Reads `rows` of the first axis into `out` as f32, row-major.
    pub(crate) fn read_f32_range(&self, rows: Range<usize>, out: &mut [f32]) -> Result<ReadCost> {
        self.read_f32(&Rows::Range(rows), out, &Device::cpu().scope("staging"))
    }

    /// The whole dataset as f32 in memory booked on `scope`.
    pub(crate) fn read_f32_buffer(&self, scope: &Scope) -> Result<Buffer<f32>> {
        let mut buffer = Buffer::zeros(scope, self.rows() * self.row_len()).map_err(Error::memory(&self.path))?;
        self.read_f32(&Rows::Range(0..self.rows()), buffer.as_mut_slice(), scope)?;
        Ok(buffer)
    }

    /// The whole dataset in memory booked on `scope`.
    pub(crate) fn read_buffer<T: Element>(&self, scope: &Scope) -> Result<Buffer<T>> {
        let mut buffer = Buffer::zeros(scope, self.rows() * self.row_len()).map_err(Error::memory(&self.path))?;
        self.read_rows(0..self.rows(), buffer.as_mut_slice())?;
        Ok(buffer)
    }

    pub(crate) fn fault(&self, index: Option<usize>, expected: &str, found: &str) -> Error {
        Error::invalid(
            &self.path,
            Fault {
                object: self.object.clone(),
                index,
                expected: expected.to_owned(),
                found: found.to_owned(),
                fix: "write the file again; docs/reference/formats.md has both layouts".to_owned(),
            },
        )
    }

    fn unreadable(&self, error: &hdf5::Error) -> Error {
        let filters = filters(&self.dataset).unwrap_or_default();
        if let Some(StoredFilter { id, name, .. }) = filters.into_iter().find(|filter| !filter.available) {
            return Error::FilterMissing { path: self.path.clone(), object: self.object.clone(), id, name };
        }
        Error::Hdf5 {
            path: self.path.clone(),
            object: self.object.clone(),
            action: "read the values",
            detail: innermost(error),
            fix: "the file may be damaged; copy or write it again".to_owned(),
        }
    }
}

/// The index by axis of the element with the flat index `flat` in row-major order.
fn index_of(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&axis| {
            let place = flat % axis;
            flat /= axis;
            place
        })
        .collect();
    index.reverse();
    index
}

fn kind_of(dataset: &Dataset) -> (Kind, String) {
    match dataset.dtype().and_then(|dtype| dtype.to_descriptor()) {
        Ok(kind @ TypeDescriptor::Float(_)) => (Kind::Float, kind.to_string()),
        Ok(kind @ (TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_))) => (Kind::Integer, kind.to_string()),
        Ok(kind) => (Kind::Other, kind.to_string()),
        Err(_) => (Kind::Other, "a type that is not supported".to_owned()),
    }
}
