#![forbid(unsafe_code)]

//! Checksums of a series that is in its file already, and the mark of a file that a conversion
//! made.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use megabatch_atomic_file::NewFile;
use megabatch_gpu_core::Scope;

use super::SeriesFile;
use super::mark::{GROUP as MARK_GROUP, Hashes, INSTRUMENT, MarkWriter};
use crate::atomic::{not_writable, open_draft, publish};
use crate::checksums::{BlockSums, Blocks};
use crate::error::{Error, Result};
use crate::file::{InputFile, NumericDataset};
use crate::slab::Element;

/// Bytes of an array that are read at once.
const PART_BYTES: usize = 4 << 20;

impl SeriesFile {
    /// The fingerprint that a mark of verification of this file would have, from all that is in it.
    /// `each` hears of the bytes that were read.
    ///
    /// # Errors
    /// [`Error::Rows`]; whatever `each` returns.
    pub fn fingerprint_of_blocks<E: From<Error>>(
        &self,
        mut each: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<String, E> {
        let hashes = self.marked().hashes(|object, hash| self.sums_of(object, hash, &mut each))?;
        Ok(hashes.fingerprint)
    }

    /// Bytes that [`SeriesFile::fingerprint_of_blocks`] reads, as numbers in memory.
    pub fn array_bytes(&self) -> u64 {
        self.marked_tables().map(|table| (table.rows() * hashed_row_bytes(table)) as u64).sum()
    }

    fn marked_tables(&self) -> impl Iterator<Item = &NumericDataset> {
        let timeframes = self.timeframes().iter().flat_map(|timeframe| {
            [timeframe.values_table(), timeframe.close_time_table(), timeframe.sample_end_table()]
        });
        let samples = &self.samples;
        let lists = [Some(&samples.time), samples.reach_time.as_ref(), samples.label_end_time.as_ref()];
        let lists = lists.into_iter().flatten().chain(&samples.instrument);
        timeframes.chain(lists).chain([self.targets_table()])
    }

    /// Gives `sums` the checksums of the array `object`, some at a time.
    fn sums_of<E: From<Error>>(
        &self,
        object: &str,
        sums: &mut dyn FnMut(&[u64]),
        each: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = self.marked_tables().find(|table| table.object == object).expect("an array of the series");
        match table.is_of_floats() {
            true => scan(table, |rows, part: &mut [f32]| table.read_f32_range(rows, part).map(drop), sums, each),
            false if object == INSTRUMENT => {
                scan(table, |rows, part: &mut [i32]| table.read_rows(rows, part), sums, each)
            }
            false => scan(table, |rows, part: &mut [i64]| table.read_integers(rows, part), sums, each),
        }
    }
}

fn hashed_row_bytes(table: &NumericDataset) -> usize {
    match table.is_of_floats() || table.object == INSTRUMENT {
        true => table.row_len() * size_of::<f32>(),
        false => size_of::<i64>(),
    }
}

fn scan<T: Element, E: From<Error>>(
    table: &NumericDataset,
    mut read: impl FnMut(std::ops::Range<usize>, &mut [T]) -> Result<()>,
    sums: &mut dyn FnMut(&[u64]),
    each: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<(), E> {
    let blocks = Blocks::of(table.rows(), table.row_len() * size_of::<T>());
    let part_rows = table.part_rows(PART_BYTES)?;
    let of_blocks = BlockSums::new(blocks);
    let mut part = Vec::new();
    for first in (0..table.rows()).step_by(part_rows) {
        let rows = first..table.rows().min(first + part_rows);
        part.resize(rows.len() * table.row_len(), T::zeroed());
        read(rows.clone(), &mut part).map_err(|source| table.rows_failed(&[rows], source))?;
        of_blocks.add(first, &part).iter().for_each(|complete| sums(&complete.sums));
        each(size_of_val(part.as_slice()))?;
    }
    Ok(())
}

/// Checksums on their way from reading a file to writing it.
struct SumsFile<'a> {
    file: File,
    out: &'a Path,
    /// Name and number of the checksums of each array, in their order in the file.
    arrays: Vec<(String, usize)>,
}

impl<'a> SumsFile<'a> {
    /// A file without a name beside `out`.
    fn create(out: &'a Path) -> Result<Self> {
        let folder = out.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let file = tempfile::tempfile_in(folder).map_err(failed(out, "create a temporary file beside it"))?;
        Ok(SumsFile { file, out, arrays: Vec::new() })
    }

    fn append(&mut self, sums: &[u64]) -> Result<()> {
        self.file
            .write_all(bytemuck::cast_slice(sums))
            .map_err(failed(self.out, "write a temporary file beside it"))?;
        self.arrays.last_mut().expect("an array was begun").1 += sums.len();
        Ok(())
    }

    fn write_to(mut self, mark: &MarkWriter<'_>) -> Result<()> {
        let unreadable = failed(self.out, "read a temporary file beside it");
        self.file.seek(SeekFrom::Start(0)).map_err(&unreadable)?;
        let mut sums = Vec::new();
        for (object, count) in &self.arrays {
            for first in (0..*count).step_by(PART_BYTES / size_of::<u64>()) {
                sums.resize((count - first).min(PART_BYTES / size_of::<u64>()), 0_u64);
                self.file.read_exact(bytemuck::cast_slice_mut(&mut sums)).map_err(&unreadable)?;
                mark.write_sums(object, first, &sums)?;
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { path: path.clone(), action, source }
}

/// Deletes the mark of verification of the file at `path`, which another program changed on
/// purpose: the file is verified anew at its next use. The new file replaces the old one whole.
///
/// # Errors
/// [`Error::BadRequest`] for a file without a mark; [`Error::NotWritable`], [`Error::Io`] and
/// [`Error::Hdf5`] as they say.
pub fn remove_mark(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if !InputFile::open(path)?.has_group(MARK_GROUP) {
        return Err(Error::BadRequest {
            path: path.to_owned(),
            asked: "a file without its mark of verification".to_owned(),
            found: "it has none".to_owned(),
            fix: "use it as it is".to_owned(),
        });
    }
    let new = NewFile::create(path).map_err(not_writable(path))?;
    std::fs::copy(path, new.temporary_path()).map_err(failed(path, "copy the file"))?;
    let file = open_draft(new.temporary_path()).map_err(Error::hdf5(path, "/", "open the file"))?;
    file.unlink(MARK_GROUP).map_err(Error::hdf5(path, MARK_GROUP, "delete the group"))?;
    file.close().map_err(Error::hdf5(path, "/", "close the file"))?;
    publish(new, path)
}

/// Checks the rules of the layout on the series in the draft of `out`, and writes its mark of
/// verification. `each` hears of the bytes that were read. Returns the hashes of the mark.
///
/// # Errors
/// Errors of [`SeriesFile::check_in_pieces`]; whatever `each` returns; [`Error::Io`] and
/// [`Error::Hdf5`] as they say.
pub(crate) fn seal(
    draft: &Path,
    out: &Path,
    scope: &Scope,
    mut each: impl FnMut(usize) -> Result<()>,
) -> Result<Hashes> {
    let series = SeriesFile::with_index_in_file(InputFile::open(draft)?, scope)?;
    series.check_in_pieces(|_| each(0))?;
    let mut spool = SumsFile::create(out)?;
    let hashes = series.marked().hashes(|object, hash| {
        spool.arrays.push((object.to_owned(), 0));
        let mut written = Ok(());
        let mut take = |sums: &[u64]| {
            hash(sums);
            if written.is_ok() {
                written = spool.append(sums);
            }
        };
        series.sums_of(object, &mut take, &mut each)?;
        written
    })?;
    let arrays = series.marked().arrays();
    drop(series);
    let file = open_draft(draft).map_err(Error::hdf5(out, "/", "open the file"))?;
    let mark = MarkWriter::create(out, &file, arrays)?;
    spool.write_to(&mark)?;
    mark.write_attributes(&hashes)?;
    drop(mark);
    file.close().map_err(Error::hdf5(out, "/", "close the file"))?;
    Ok(hashes)
}
