//! Checksums of a series that is in its file already, and the mark of a file that a conversion
//! made.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use megabatch_gpu_core::Scope;

use super::SeriesFile;
use super::mark::{Hashes, INSTRUMENT, MarkWriter};
use crate::atomic::open_draft;
use crate::checksums::{BlockSums, Blocks};
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::numeric_dataset::NumericDataset;
use crate::slab::Element;

/// Bytes of an array that are read at once.
const PART_BYTES: usize = 4 << 20;

impl SeriesFile {
    /// The fingerprint that a mark of verification of this file would have, from all that is in it.
    /// `each` gets the number of bytes of every read.
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
        let lists = lists.into_iter().flatten().chain(&samples.instrument).chain(&samples.weight);
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
    let blocks = Blocks::new(table.rows(), table.row_len() * size_of::<T>());
    let part_rows = table.part_rows(PART_BYTES)?;
    let block_sums = BlockSums::new(blocks);
    let mut part = Vec::new();
    for first in (0..table.rows()).step_by(part_rows) {
        let rows = first..table.rows().min(first + part_rows);
        part.resize(rows.len() * table.row_len(), T::zeroed());
        read(rows.clone(), &mut part).map_err(|source| table.rows_failed(&[rows], source))?;
        block_sums.add(first, &part).iter().for_each(|complete| sums(&complete.sums));
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

/// Checks the rules of the layout on the series in the draft of `out`, and writes its mark of
/// verification. `each` gets the number of bytes of every read. Returns the hashes of the mark.
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
    let sealed = series.check_in_pieces(|_| each(0)).and_then(|()| write_mark(series, draft, out, each));
    sealed.map_err(|error| error.about(draft, out))
}

/// Writes the mark of `series`, which is in the draft of `out`.
fn write_mark(
    series: SeriesFile,
    draft: &Path,
    out: &Path,
    mut each: impl FnMut(usize) -> Result<()>,
) -> Result<Hashes> {
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use megabatch_gpu_core::Device;

    use super::*;
    use crate::series::MARK_GROUP;
    use crate::series::{Instruments, Series, SeriesColumn, SeriesTimeframe, write_series};
    use crate::source::{Source, SourceOptions};
    use crate::storage::{Storage, WriteOptions};

    const BARS: i64 = 40;

    /// Two instruments of two segments each, with windows of three bars.
    fn series() -> Series {
        let ends: Vec<i64> = (0..2 * BARS).filter(|bar| bar % (BARS / 2) >= 2).collect();
        let time = |bar: &i64| 100 * (bar % BARS + 1);
        Series {
            timeframes: vec![SeriesTimeframe {
                name: "M1".to_owned(),
                steps: 3,
                feature_names: vec!["x".to_owned()],
                values: (0..2 * BARS).map(|bar| bar as f32).collect(),
                close_time: (0..2 * BARS).map(|bar| time(&bar)).collect(),
                sample_end: ends.clone(),
                instrument_start: vec![0, BARS, 2 * BARS],
                segment_start: (0..4).map(|segment| segment * BARS / 2).collect(),
                scaler: None,
            }],
            sample_time: ends.iter().map(time).collect(),
            sample_reach_time: ends.iter().map(|end| time(end) - 300).collect(),
            sample_label_end_time: ends.iter().map(|end| time(end) + 100).collect(),
            targets: vec![0.5; ends.len()],
            instruments: Some(Instruments {
                names: vec!["A".to_owned(), "B".to_owned()],
                sample_instrument: ends.iter().map(|end| (end / BARS) as i32).collect(),
            }),
            ..Series::default()
        }
    }

    /// A file with another number in a list, and a mark that says that it was written so.
    fn marked_with(folder: &Path, object: &str, at: usize, number: i64) -> PathBuf {
        let path = folder.join("series.h5");
        write_series(&path, &series(), &WriteOptions { storage: Storage::Contiguous }).unwrap();
        let file = open_draft(&path).unwrap();
        file.unlink(MARK_GROUP).unwrap();
        let dataset = file.dataset(object).unwrap();
        let mut numbers = dataset.read_raw::<i64>().unwrap();
        numbers[at] = number;
        dataset.write_raw(&numbers).unwrap();
        drop((dataset, file));
        let scope = Device::cpu().scope("data");
        let unchecked = SeriesFile::with_index_in_file(InputFile::open(&path).unwrap(), &scope).unwrap();
        write_mark(unchecked, &path, &path, |_| Ok(())).unwrap();
        path
    }

    /// Opens the file as a stream, and reads all that training reads of it.
    fn stream(path: &Path) -> Result<()> {
        let options = SourceOptions { series_cache_bytes: Some(0), ..SourceOptions::default() };
        let source = Source::open_with(path, &Device::cpu().scope("data"), options)?;
        let file = source.series().expect("a series").file();
        assert!(file.fingerprint().is_some());
        let samples = source.shape().samples;
        for column in [SeriesColumn::SampleTime, SeriesColumn::ReachTime, SeriesColumn::LabelEndTime] {
            file.scan_column(column, 0..samples, |_, _| Ok::<(), Error>(()))?;
        }
        file.scan_column(SeriesColumn::CloseTime(0), 0..file.bars(0), |_, _| Ok::<(), Error>(()))?;
        let mut block = crate::shape::SampleBlock::zeros(source.shape(), samples);
        source.gather(&(0..samples).collect::<Vec<_>>(), block.slices()).map(drop)
    }

    #[test]
    fn lists_that_break_a_rule_are_found_whatever_the_mark_says() {
        let (folder, scope) = (tempfile::tempdir().unwrap(), Device::cpu().scope("data"));
        stream(&marked_with(folder.path(), "/samples/time", 0, 300)).unwrap();
        let cases: [(&str, usize, i64, &str); 9] = [
            ("/samples/label_end_time", 5, 1, "the sample's time, 800, or a later one, found 1"),
            ("/samples/reach_time", 5, 800, "a time before the sample's, 800, found 800"),
            ("/series/M1/close_time", 7, 1, "a time after 700, that of the bar before, found 1"),
            ("/series/M1/segment_start", 1, 21, "a window of 3 bars within its segment, which begins with bar 21"),
            ("/series/M1/segment_start", 2, 41, "an entry 40, where an instrument begins"),
            ("/series/M1/instrument_start", 1, 1 << 62, "a bar from 0 to 80, found 4611686018427387904"),
            ("/samples/instrument", 3, 99, "an instrument from 0 to 1, found 99"),
            ("/samples/end/M1", 3, -1, "within bars 0..40 of its instrument, found -1"),
            ("/samples/end/M1", 3, 60, "within bars 0..40 of its instrument, found 60"),
        ];
        for (object, place, number, expected) in cases {
            let path = marked_with(folder.path(), object, place, number);
            let error = stream(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{object}: {error}");
            if object == "/samples/reach_time" || object == "/samples/label_end_time" {
                let series = SeriesFile::with_index_in_file(InputFile::open(&path).unwrap(), &scope).unwrap();
                let error = series.check_span_lists(|_| Ok::<(), Error>(())).unwrap_err().to_string();
                assert!(error.contains(expected), "{object}: {error}");
            }
            let resident = Source::open(&path, &Device::cpu().scope("data")).unwrap_err().to_string();
            assert!(resident.contains(expected), "{object}: {resident}");
            let options = crate::ConvertOptions { to: Some(crate::Layout::Windows), ..Default::default() };
            let out = folder.path().join("windows.h5");
            let mut observe = |_: crate::ConversionProgress| std::ops::ControlFlow::Continue(());
            let converted = crate::convert(&path, &out, &options, &Device::cpu().scope("convert"), &mut observe);
            assert!(converted.unwrap_err().to_string().contains(expected) && !out.exists(), "{object}");
        }
    }
}
