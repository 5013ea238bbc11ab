use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use hdf5::Dataset;
use hdf5::types::TypeDescriptor;
use megabatch_gpu_core::{Buffer, Device, Scope};

use crate::checksums::{Blocks, TableChecksums};
use crate::cost::ReadCost;
use crate::error::{Error, LayoutFault, Result, innermost};
use crate::file::InputFile;
use crate::read::{
    DatasetQuery, DirectIntegers, Done, FileIdentity, LibraryRows, NonFinite, ReadContext, ReadFailure, ReadPath,
    RowSelection, ToF32, UNSTOPPED, choose_read_path,
};
use crate::slab::{Element, read_rows};
use crate::stored::{StoredFilter, filters};

/// Fix for contents that differ from their checksums in the file.
pub(crate) const CHANGED: &str = "the file is damaged or was changed by another program: copy it or make it again; if the \
                                  change is meant, delete its group /checksums";

/// Multiples of the wanted size that are read at once, at most, to end with a chunk and a block.
const ALIGNED_PARTS_MAX: usize = 16;

/// Kind of a dataset's elements, whatever their width and byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementKind {
    Float,
    Integer,
    /// 0 or 1 by the names FALSE and TRUE, as h5py writes booleans.
    Boolean,
    Other,
}

/// Requirements of a layout on a dataset.
pub(crate) struct Expect {
    /// In words, for the error.
    pub(crate) what: &'static str,
    pub(crate) kinds: &'static [ElementKind],
    pub(crate) ranks: RangeInclusive<usize>,
}

/// A numeric dataset of known kind and rank. Elements are converted as they are read.
#[derive(Clone, Debug)]
pub(crate) struct NumericDataset {
    path: PathBuf,
    pub(crate) object: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dataset: Dataset,
    chunk: Option<Vec<usize>>,
    to_f32: ToF32,
    /// True for features and targets.
    is_read_as_f32: bool,
    opened: FileIdentity,
    reading: Arc<ReadContext>,
    /// Determined when values are first read.
    read_path: Arc<OnceLock<ReadPath>>,
    /// Determined when integers are first read in pieces.
    integers: Arc<OnceLock<Option<DirectIntegers>>>,
    /// Checksums that rows are compared with when they are read.
    checksums: Option<Arc<TableChecksums>>,
    /// Numbers that rows may have when they are read as f32; any if `None`.
    allowed: Option<AllowedNumbers>,
}

/// Numbers that the columns of a table may have.
#[derive(Clone, Debug)]
pub(crate) enum AllowedNumbers {
    /// Finite ones, in columns of these names.
    Finite(Arc<[String]>),
    /// Finite ones, in windows whose rows have this many features.
    FiniteInWindows(usize),
    /// Finite ones and NaN, in the targets of a series.
    FiniteOrNan,
    /// Finite ones and NaN, in the targets of windows.
    FiniteOrNanInWindows,
}

impl AllowedNumbers {
    /// The rule that `value` in `column` breaks: the expected numbers, the one found, and the fix.
    fn broken_by(&self, value: f32, column: usize) -> Option<[String; 3]> {
        match self {
            AllowedNumbers::Finite(names) if !value.is_finite() => {
                let name = names.get(column).map_or("a feature", String::as_str);
                let fix = format!("correct or drop the bars that {name} is made of, or leave the feature out");
                Some(["finite features".to_owned(), format!("{value} for {name}"), fix])
            }
            AllowedNumbers::FiniteInWindows(features) if !value.is_finite() => Some([
                "a sample of finite features".to_owned(),
                format!("{value} for feature_{} in row {} of its window", column % features, column / features),
                format!(
                    "leave the sample out or {} before the file is written",
                    if value.is_nan() { "fill the gap" } else { "replace the number" }
                ),
            ]),
            AllowedNumbers::FiniteOrNan if value.is_infinite() => {
                Some(infinite_target(value, column, "correct or drop the prices of the bars after this sample"))
            }
            AllowedNumbers::FiniteOrNanInWindows if value.is_infinite() => Some(infinite_target(
                value,
                column,
                "correct the target, or leave the sample out before the file is written",
            )),
            _ => None,
        }
    }
}

/// The rule that the infinite `value` of a target breaks, see [`AllowedNumbers::broken_by`].
fn infinite_target(value: f32, target: usize, fix: &str) -> [String; 3] {
    let expected = "finite numbers, or NaN for a target that is not known";
    [expected.to_owned(), format!("{value} for target {target}"), fix.to_owned()]
}

impl InputFile {
    /// The numeric dataset `object`, checked against the layout's rules.
    pub(crate) fn table(&self, object: &str, expect: &Expect) -> Result<NumericDataset> {
        NumericDataset::open(self, object, expect)
    }
}

impl NumericDataset {
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
        let table = NumericDataset {
            path: file.path.clone(),
            object: object.to_owned(),
            shape,
            chunk: dataset.chunk(),
            to_f32: ToF32::new(&dataset, kind != ElementKind::Float),
            is_read_as_f32: expect.kinds.contains(&ElementKind::Float),
            opened: file.opened.clone(),
            reading: Arc::clone(&file.reading),
            read_path: Arc::default(),
            integers: Arc::default(),
            checksums: None,
            allowed: None,
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

    /// True if elements are floats, or are read as such.
    pub(crate) fn is_of_floats(&self) -> bool {
        self.is_read_as_f32
    }

    /// Rows to read at once when the whole table is read, about `bytes` in total. They end with a
    /// decoded chunk, so that none is decoded twice, and with a block of checksums, unless that
    /// takes too many rows.
    pub(crate) fn part_rows(&self, bytes: usize) -> Result<usize> {
        let row_bytes = self.row_len().max(1) * size_of::<f32>();
        let chunk_rows = if self.is_read_as_f32 { self.decoded_chunk_rows()?.unwrap_or(1) } else { 1 };
        let block_rows = Blocks::new(self.rows(), row_bytes).block_rows;
        let aligned = (1..=block_rows).map(|k| k * chunk_rows).find(|rows| rows % block_rows == 0);
        let unit = aligned.filter(|rows| rows * row_bytes <= ALIGNED_PARTS_MAX * bytes).unwrap_or(chunk_rows);
        Ok((bytes / row_bytes).max(1).next_multiple_of(unit))
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

    /// Refuses a list of which a part was never written. No allocation or loop is then longer than
    /// the file has chunks for.
    pub(crate) fn require_written(&self) -> Result<()> {
        let chunks = self.chunk.as_ref().map(|chunk| {
            let along = self.shape.iter().zip(chunk).map(|(&axis, &chunk)| axis.div_ceil(chunk.max(1)));
            along.fold(1_usize, usize::saturating_mul)
        });
        let is_written = match chunks {
            Some(chunks) => self.dataset.num_chunks().is_some_and(|written| written >= chunks),
            None => self.rows() == 0 || self.dataset.storage_size() > 0,
        };
        if is_written {
            return Ok(());
        }
        Err(self.fault(
            None,
            "a list whose every entry was written",
            &format!("{} entries, not all written", self.rows()),
        ))
    }

    /// Compares rows with their checksums from now on, when they are read.
    pub(crate) fn set_checksums(&mut self, checksums: Option<Arc<TableChecksums>>) {
        self.checksums = checksums;
    }

    /// Refuses other numbers from now on, when rows are read as f32.
    pub(crate) fn allow(&mut self, allowed: AllowedNumbers) {
        self.allowed = Some(allowed);
    }

    /// The same table, which gives any number.
    pub(crate) fn allowing_all(&self) -> Self {
        NumericDataset { allowed: None, ..self.clone() }
    }

    /// Refuses `rows`, whose numbers are `values`, if the table may not have some of them.
    pub(crate) fn require_allowed_in(&self, rows: &RowSelection<'_>, values: &[f32]) -> Result<()> {
        let mut left = values;
        for run in rows.runs().filter(|_| self.allowed.is_some()) {
            let (part, rest) = left.split_at(run.len() * self.row_len());
            self.require_allowed(run.start, part)?;
            left = rest;
        }
        Ok(())
    }

    /// Refuses rows from `first` on that have numbers which the table may not have.
    fn require_allowed(&self, first: usize, values: &[f32]) -> Result<()> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let width = self.row_len().max(1);
        let broken = |(place, &value): (usize, &f32)| allowed.broken_by(value, place % width).map(|rule| (place, rule));
        let suspicious = |values: &[f32]| values.iter().any(|value| !value.is_finite());
        let parts = values.chunks(width * 64).enumerate().filter(|(_, part)| suspicious(part));
        let found = parts.map(|(k, part)| (k * 64, part.iter().enumerate().find_map(broken)));
        let Some((rows_before, (place, [expected, found, fix]))) =
            found.into_iter().find_map(|(rows, found)| Some((rows, found?)))
        else {
            return Ok(());
        };
        let index = first + rows_before + place / width;
        let (found, fix) = match self.stored_beyond_f32(index, place % width) {
            Some(number) => {
                let found = format!("{found}: {number:e}, which is beyond the range of 32-bit floats");
                (found, "scale the numbers before the file is written".to_owned())
            }
            None => (found, fix),
        };
        let index = Some(index);
        Err(Error::invalid(&self.path, LayoutFault { object: self.object.clone(), index, expected, found, fix }))
    }

    /// The stored number of a row's column, if it is finite and no f32 can hold it.
    fn stored_beyond_f32(&self, row: usize, column: usize) -> Option<f64> {
        let mut stored = vec![0.0_f64; self.row_len()];
        read_rows(&self.dataset, &(row..row + 1), &mut stored).ok()?;
        stored.get(column).copied().filter(|number| number.is_finite() && !(*number as f32).is_finite())
    }

    /// Reads `rows` of the first axis into `out`, row-major.
    pub(crate) fn read_rows<T: Element>(&self, rows: Range<usize>, out: &mut [T]) -> Result<()> {
        let read = |rows: Range<usize>, out: &mut [T]| {
            read_rows(&self.dataset, &rows, out).map_err(|error| self.unreadable(&error))
        };
        read(rows.clone(), out)?;
        self.require_undamaged(rows.start, out, read)
    }

    /// Refuses rows from `first` on that are not those which were written, by the checksums of
    /// their blocks; `read` reads the rest of a block that begins before them or ends after them.
    fn require_undamaged<T: Element>(
        &self,
        first: usize,
        values: &[T],
        read: impl FnMut(Range<usize>, &mut [T]) -> Result<()>,
    ) -> Result<()> {
        let Some(checksums) = &self.checksums else { return Ok(()) };
        let Some(block) = checksums.first_damaged_or_cut(first, values, read)? else { return Ok(()) };
        let rows = checksums.blocks().rows_of(block);
        let fault = LayoutFault {
            object: self.object.clone(),
            index: Some(rows.start),
            expected: format!("rows {} to {} as they were written (block {block})", rows.start, rows.end - 1),
            found: "others, by their checksum".to_owned(),
            fix: CHANGED.to_owned(),
        };
        Err(Error::invalid(&self.path, fault))
    }

    /// Reads rows of the first axis into `out` as f32, row-major. Memory that the library may need
    /// is booked on `scope`.
    pub(crate) fn read_f32(&self, rows: &RowSelection<'_>, out: &mut [f32], scope: &Scope) -> Result<ReadCost> {
        self.read_f32_until(&UNSTOPPED, rows, out, scope)
    }

    /// As [`NumericDataset::read_f32`]. Once `stop` is true, reading ends before the next chunk of
    /// the file with [`Error::Stopped`].
    pub(crate) fn read_f32_until(
        &self,
        stop: &AtomicBool,
        rows: &RowSelection<'_>,
        out: &mut [f32],
        scope: &Scope,
    ) -> Result<ReadCost> {
        let mut done = self.read_unverified_f32(stop, rows, out, scope)?;
        // The threads that read have looked at each number already.
        let is_finite = self.reading.options.non_finite == NonFinite::Fail && !done.has_non_finite;
        let is_suspicious = self.allowed.is_some() && !is_finite;
        let mut left = &*out;
        for run in rows.runs().filter(|_| self.checksums.is_some() || is_suspicious) {
            let (part, rest) = left.split_at(run.len() * self.row_len());
            self.require_undamaged(run.start, part, |rows, out| {
                done.cost += self.read_unverified_f32(stop, &RowSelection::Range(rows), out, scope)?.cost;
                Ok(())
            })?;
            if is_suspicious {
                self.require_allowed(run.start, part)?;
            }
            left = rest;
        }
        Ok(done.cost)
    }

    fn read_unverified_f32(
        &self,
        stop: &AtomicBool,
        rows: &RowSelection<'_>,
        out: &mut [f32],
        scope: &Scope,
    ) -> Result<Done> {
        match self.read_path()? {
            ReadPath::Own(stored) => stored.read(rows, out, &self.reading, stop),
            ReadPath::Library(_) => self.by_library(stop).read(rows, out, scope).map_err(|failure| match failure {
                ReadFailure::Stopped => Error::Stopped,
                ReadFailure::Hdf5(error) => self.unreadable(&error),
                ReadFailure::Memory(error) => Error::memory(&self.path)(error),
            }),
        }
    }

    /// Reads `rows` of a list of integers into `out`, which is as long.
    pub(crate) fn read_integers(&self, rows: Range<usize>, out: &mut [i64]) -> Result<()> {
        let Some(checksums) = &self.checksums else { return self.read_unverified_integers(rows, out) };
        let read = |rows: Range<usize>, out: &mut [i64]| self.read_unverified_integers(rows, out);
        let whole = checksums.blocks().widened(&rows);
        if whole == rows {
            read(rows.clone(), out)?;
            return self.require_undamaged(rows.start, out, read);
        }
        let mut blocks = vec![0; whole.len()];
        read(whole.clone(), &mut blocks)?;
        self.require_undamaged(whole.start, &blocks, read)?;
        out.copy_from_slice(&blocks[rows.start - whole.start..rows.end - whole.start]);
        Ok(())
    }

    fn read_unverified_integers(&self, rows: Range<usize>, out: &mut [i64]) -> Result<()> {
        if self.integers.get().is_none() {
            let NumericDataset { dataset, object, shape, path, opened, .. } = self;
            let found = DirectIntegers::open(&DatasetQuery { dataset, object, shape, path, opened })?;
            self.integers.get_or_init(|| found);
        }
        match self.integers.get().and_then(Option::as_ref) {
            Some(direct) => direct.read(&rows, out),
            None => read_rows(&self.dataset, &rows, out).map_err(|error| self.unreadable(&error)),
        }
    }

    fn by_library<'a>(&'a self, stop: &'a AtomicBool) -> LibraryRows<'a> {
        LibraryRows {
            dataset: &self.dataset,
            to_f32: self.to_f32,
            row_len: self.row_len(),
            chunk_rows: self.chunk_rows(),
            non_finite: self.reading.options.non_finite,
            stop,
        }
    }

    /// Reader of the values.
    pub(crate) fn read_path(&self) -> Result<&ReadPath> {
        if let Some(found) = self.read_path.get() {
            return Ok(found);
        }
        let NumericDataset { dataset, object, shape, path, opened, .. } = self;
        let found = choose_read_path(&DatasetQuery { dataset, object, shape, path, opened })?;
        Ok(self.read_path.get_or_init(|| found))
    }

    /// Rows that are decoded together, where rows are not read one by one.
    pub(crate) fn decoded_chunk_rows(&self) -> Result<Option<usize>> {
        let is_decoded = match self.read_path()? {
            ReadPath::Own(stored) => stored.is_decoded(),
            ReadPath::Library(_) => true,
        };
        Ok(self.chunk_rows().filter(|_| is_decoded))
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Error for rows that cannot be read because of `source`.
    pub(crate) fn rows_failed(&self, ranges: &[Range<usize>], source: Error) -> Error {
        let first = ranges.iter().map(|range| range.start).min().unwrap_or(0);
        let last = ranges.iter().map(|range| range.end).max().unwrap_or(0).saturating_sub(1);
        Error::Rows { object: self.object.clone(), first, last, source: Box::new(source) }
    }

    /// The list, which has at most `rows_max` entries.
    pub(crate) fn read_list<T: Element>(&self, rows_max: usize) -> Result<Vec<T>> {
        if self.rows() > rows_max {
            return Err(self.fault(None, &format!("at most {rows_max} entries"), &self.rows().to_string()));
        }
        self.read_vec()
    }

    pub(crate) fn read_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.rows() * self.row_len()];
        self.read_rows(0..self.rows(), &mut values)?;
        Ok(values)
    }

    /// Reads `rows` of the first axis into `out` as f32, row-major.
    pub(crate) fn read_f32_range(&self, rows: Range<usize>, out: &mut [f32]) -> Result<ReadCost> {
        self.read_f32(&RowSelection::Range(rows), out, &Device::cpu().scope("staging"))
    }

    /// The whole dataset as f32 in memory booked on `scope`.
    pub(crate) fn read_f32_buffer(&self, scope: &Scope) -> Result<Buffer<f32>> {
        let mut buffer = Buffer::zeros(scope, self.rows() * self.row_len()).map_err(Error::memory(&self.path))?;
        self.read_f32(&RowSelection::Range(0..self.rows()), buffer.as_mut_slice(), scope)?;
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
            LayoutFault {
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

fn kind_of(dataset: &Dataset) -> (ElementKind, String) {
    match dataset.dtype().and_then(|dtype| dtype.to_descriptor()) {
        Ok(kind @ TypeDescriptor::Float(_)) => (ElementKind::Float, kind.to_string()),
        Ok(kind @ (TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_))) => {
            (ElementKind::Integer, kind.to_string())
        }
        Ok(kind @ TypeDescriptor::Boolean) => (ElementKind::Boolean, kind.to_string()),
        Ok(kind) => (ElementKind::Other, kind.to_string()),
        Err(_) => (ElementKind::Other, "a type that is not supported".to_owned()),
    }
}
