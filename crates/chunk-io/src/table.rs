#![forbid(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Instant;

use half::f16;
use half::slice::HalfFloatSliceExt;
use hdf5::Dataset;
use hdf5::types::TypeDescriptor;
use megabatch_gpu_core::{Buffer, Scope};

use crate::cost::ReadCost;
use crate::error::{Error, Fault, Result, innermost};
use crate::file::InputFile;
use crate::slab::{Element, is_ieee_half, read_rows};

/// Kind of a dataset's elements, whatever their width and byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Integer,
    Other,
}

/// What a layout asks of a dataset.
pub(crate) struct Expect {
    /// In words, for the error.
    pub(crate) what: &'static str,
    pub(crate) kinds: &'static [Kind],
    pub(crate) ranks: RangeInclusive<usize>,
}

/// A numeric dataset of known kind and rank. Elements are converted by HDF5 as they are read.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    path: PathBuf,
    pub(crate) object: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dataset: Dataset,
    chunk: Option<Vec<usize>>,
    to_f32: ToF32,
    /// Of an element in the file, before any filter.
    element_bytes: u64,
}

/// Who makes f32 of the elements. HDF5's own code for what the processor does in one instruction is slow, and gives a NaN other
/// bits in one byte order than in the other; so that it only swaps bytes for the common types.
#[derive(Clone, Copy, Debug)]
enum ToF32 {
    /// HDF5: 32-bit floats, and narrow ones of unusual form.
    Hdf5,
    /// This crate, from IEEE half precision; exact.
    FromHalf,
    /// This crate, from f64 (to which HDF5 widens integers); to nearest, ties to even.
    FromDouble,
}

/// Elements that become f32 here are staged this many bytes at a time, in whole chunks.
const STAGING_BYTES: usize = 1 << 20;

impl Table {
    pub(crate) fn open(file: &InputFile, object: &str, expect: &Expect) -> Result<Self> {
        if !file.has_dataset(object) {
            return Err(file.missing(object, expect.what));
        }
        let dataset = file.root.dataset(object).map_err(file.failed(object, "open the dataset"))?;
        let shape = dataset.shape();
        let (kind, kind_name) = kind_of(&dataset);
        let to_f32 = to_f32(&dataset, kind);
        if !expect.kinds.contains(&kind) || !expect.ranks.contains(&shape.len()) {
            return Err(file.broken(object, expect.what, &format!("{kind_name} of shape {shape:?}")));
        }
        let table = Table {
            path: file.path.clone(),
            object: object.to_owned(),
            shape,
            chunk: dataset.chunk(),
            to_f32,
            element_bytes: dataset.dtype().map_or(0, |dtype| dtype.size() as u64),
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

    /// Reads `rows` of the first axis into `out` as f32.
    pub(crate) fn read_f32(&self, rows: Range<usize>, out: &mut [f32]) -> Result<ReadCost> {
        let started = Instant::now();
        let bytes_read = out.len() as u64 * self.element_bytes;
        match self.to_f32 {
            ToF32::Hdf5 => self.read_rows(rows, out),
            ToF32::FromHalf => self.read_staged::<f16>(rows, out, <[f16]>::convert_to_f32_slice),
            ToF32::FromDouble => self.read_staged::<f64>(rows, out, |doubles, out| {
                out.iter_mut().zip(doubles).for_each(|(narrow, &wide)| *narrow = wide as f32);
            }),
        }?;
        Ok(ReadCost { bytes_read, disk: started.elapsed(), ..ReadCost::default() })
    }

    /// Reads `rows` as `T` in batches and converts each.
    fn read_staged<T: Element>(
        &self,
        rows: Range<usize>,
        out: &mut [f32],
        convert: impl Fn(&[T], &mut [f32]),
    ) -> Result<()> {
        let row_len = self.row_len();
        let unit = self.chunk_rows().unwrap_or(1);
        let batch_rows = (STAGING_BYTES / size_of::<T>() / row_len.max(1)).max(1).next_multiple_of(unit);
        let mut staged = Vec::new();
        let mut first = rows.start;
        while first < rows.end {
            // Batches end with a chunk, so that none is decoded twice.
            let end = (first / unit * unit + batch_rows).min(rows.end);
            staged.resize((end - first) * row_len, T::zeroed());
            self.read_rows(first..end, &mut staged)?;
            convert(&staged, &mut out[(first - rows.start) * row_len..][..staged.len()]);
            first = end;
        }
        Ok(())
    }

    pub(crate) fn read_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.rows() * self.row_len()];
        self.read_rows(0..self.rows(), &mut values)?;
        Ok(values)
    }

    pub(crate) fn read_f32_vec(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.rows() * self.row_len()];
        self.read_f32(0..self.rows(), &mut values)?;
        Ok(values)
    }

    /// The whole dataset as f32 in memory booked on `scope`.
    pub(crate) fn read_f32_buffer(&self, scope: &Scope) -> Result<Buffer<f32>> {
        let mut buffer = Buffer::zeros(scope, self.rows() * self.row_len()).map_err(Error::memory(&self.path))?;
        self.read_f32(0..self.rows(), buffer.as_mut_slice())?;
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
                fix: "write the file again; docs/formats.md has both layouts".to_owned(),
            },
        )
    }

    fn unreadable(&self, error: &hdf5::Error) -> Error {
        let unknown = |filter: &hdf5::filters::Filter| (!filter.is_available()).then(|| format!("{filter:?}"));
        let fix = match self.dataset.filters().iter().find_map(unknown) {
            Some(filter) => format!("the filter {filter} is not built in; rewrite the dataset with gzip or lzf"),
            None => "the file may be damaged; copy or write it again".to_owned(),
        };
        Error::Hdf5 {
            path: self.path.clone(),
            object: self.object.clone(),
            action: "read the values",
            detail: innermost(error),
            fix,
        }
    }
}

fn to_f32(dataset: &Dataset, kind: Kind) -> ToF32 {
    match dataset.dtype() {
        Ok(dtype) if is_ieee_half(&dtype) => ToF32::FromHalf,
        Ok(dtype) if kind == Kind::Integer || dtype.size() > size_of::<f32>() => ToF32::FromDouble,
        _ => ToF32::Hdf5,
    }
}

fn kind_of(dataset: &Dataset) -> (Kind, String) {
    match dataset.dtype().and_then(|dtype| dtype.to_descriptor()) {
        Ok(kind @ TypeDescriptor::Float(_)) => (Kind::Float, kind.to_string()),
        Ok(kind @ (TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_))) => (Kind::Integer, kind.to_string()),
        Ok(kind) => (Kind::Other, kind.to_string()),
        Err(_) => (Kind::Other, "a type that is not supported".to_owned()),
    }
}
