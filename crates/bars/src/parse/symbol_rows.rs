//! Rows of a file that names a symbol in each, sorted by symbol while the file is read once.
//!
//! ```text
//! part   rows of one symbol, or those without a symbol, in the order of the file
//! row    line number u64, length u32, then the line without its end, native byte order
//! ```
//!
//! Parts grow in memory. Once all of them take [`FOLDER_BYTES_MAX`], their rows move to a temporary
//! file without a name, which ends with the process.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::parse::date_order::DateEvidence;
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::header::NumberedLine;
use crate::parse::lines::{TextLines, is_stopped};
use crate::parse::options::ReadOptions;
use crate::parse::symbol_column::{FileSymbols, SPLIT_MAX, symbol_in};
use crate::place::{ObserveBytes, tell_read};
use crate::spill::SpillFile;
use crate::spool::failed;

/// Bytes of rows in memory where a folder takes more.
const FOLDER_BYTES_MAX: usize = 1 << 26;
/// Bytes of rows in memory without a folder. A file with more is read once for each symbol.
const MEMORY_BYTES_MAX: usize = 1 << 28;
/// Bytes of a row in front of its text.
const ROW_HEAD: usize = 12;
/// Bytes of a part that are read at once.
const READ_BYTES: usize = 1 << 16;

/// Rows of the files that have rows of several symbols, by symbol.
///
/// To read `n` symbols from a file costs two passes over its text, whatever `n` is: one sorts the
/// rows, and each symbol reads its own. Rows without a symbol are of all, and read by each. Of the
/// rows 128 MiB at most are in memory, beside some 200 bytes for each symbol of each file, and 16
/// for each symbol and 64 MiB of text. A temporary file has the other rows, with 12 bytes more than
/// their text each. Gzip, zip, UTF-16 and Parquet are decoded once. A file whose rows have no room,
/// on the disk or, without a folder, in 256 MiB, is read once for each symbol.
#[derive(Debug, Default)]
pub struct SymbolRows {
    /// File of the rows that are not in memory; all are if `None`.
    spill: Option<SpillFile>,
    /// Bytes of rows in memory: of those of all files, and at most as many of the file that is
    /// sorted.
    bytes_max: usize,
    bytes: usize,
    files: BTreeMap<PathBuf, SplitFile>,
}

impl SymbolRows {
    /// No rows. They stay in memory.
    pub(crate) fn in_memory() -> Self {
        SymbolRows { bytes_max: MEMORY_BYTES_MAX, ..SymbolRows::default() }
    }

    /// No rows. Those that memory should not hold go to a temporary file in `folder`.
    ///
    /// # Errors
    /// [`Error::Spool`].
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let spill = Some(SpillFile::create(folder)?);
        Ok(SymbolRows { spill, bytes_max: FOLDER_BYTES_MAX, ..SymbolRows::default() })
    }

    /// The files whose rows are kept.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Bytes that are read of the file at `path` for `symbol`, if its rows are kept.
    pub fn bytes(&self, path: &Path, symbol: &str) -> Option<u64> {
        let file = self.files.get(path)?;
        Some(file.part(symbol).bytes() + file.nameless.bytes())
    }

    /// The file at `path`, if its rows are kept.
    pub(crate) fn file(&self, path: &Path) -> Option<&SplitFile> {
        self.files.get(path)
    }

    /// The symbols of the rows of a file, in the order of their first rows, if there are several;
    /// their rows are kept. None for a file that cannot be read: reading its bars gives the error.
    ///
    /// # Errors
    /// [`Error::Spool`] and [`Error::Interrupted`].
    pub(crate) fn split(
        &mut self,
        path: &Path,
        options: &ReadOptions,
        observe: ObserveBytes<'_>,
    ) -> Result<Vec<String>> {
        if let Some(known) = self.files.get(path) {
            return Ok(known.symbols.clone());
        }
        let end = self.spill.as_ref().map_or(0, SpillFile::end);
        let split = match SplitFile::read(path, options, self.spill.clone(), self.bytes_max, observe) {
            Err(error @ (Error::Spool { .. } | Error::Interrupted)) => return Err(error),
            split => split.ok().flatten(),
        };
        let symbols = split.as_ref().map(|split| split.symbols.clone()).unwrap_or_default();
        if let Some(mut split) = split.filter(|_| !symbols.is_empty()) {
            if self.bytes + split.bytes > self.bytes_max {
                split.spill();
            }
            if split.is_whole {
                self.bytes += split.bytes;
                self.files.insert(path.to_owned(), split);
                return Ok(symbols);
            }
        }
        // Rows that are not kept.
        self.spill.iter().try_for_each(|spill| spill.truncate(end))?;
        Ok(symbols)
    }
}

/// A file with rows of several symbols.
#[derive(Debug)]
pub(crate) struct SplitFile {
    /// Its first lines, by which the format is told.
    pub(crate) head: Vec<NumberedLine>,
    /// Format by which rows were sorted.
    pub(crate) format: RowFormat,
    /// Its dates, if they have the year last.
    pub(crate) dates: DateEvidence,
    symbols: Vec<String>,
    parts: HashMap<Vec<u8>, Part>,
    /// Rows without a symbol.
    nameless: Part,
    /// Bytes of rows in memory.
    bytes: usize,
    spill: Option<SpillFile>,
    /// False once the rows were dropped.
    is_whole: bool,
}

/// Part of a symbol without rows after the first lines.
static NO_ROWS: Part = Part { chunks: Vec::new(), tail: Vec::new() };

impl SplitFile {
    /// Sorts the rows of a file after its first lines; `None` where no column has symbols.
    fn read(
        path: &Path,
        options: &ReadOptions,
        spill: Option<SpillFile>,
        bytes_max: usize,
        observe: ObserveBytes<'_>,
    ) -> Result<Option<Self>> {
        let mut lines = TextLines::observed(path, observe)?;
        let head = lines.read_head()?;
        let format = RowFormat::detect(&head, None, None).ok();
        let format = format.map(|format| format.for_columns(&head, |name| options.wants(name)));
        let Some(format) = format.filter(|format| format.columns.symbol.is_some()) else { return Ok(None) };
        let mut split = SplitFile {
            head,
            format,
            dates: DateEvidence::default(),
            symbols: Vec::new(),
            parts: HashMap::new(),
            nameless: Part::default(),
            bytes: 0,
            spill,
            is_whole: true,
        };
        let mut symbols = FileSymbols::default();
        for (line, text) in &split.head {
            let fields = RowFields::split(text, format.delimiter);
            if format.has_year_last() {
                split.dates.add(&fields, &format);
            }
            if Some(*line) > format.header_line {
                symbols.add(&fields, &format);
            }
        }
        let mut text = Vec::new();
        while let Some(line) = lines.read_into(&mut text)? {
            let fields = RowFields::split(&text, format.delimiter);
            if format.has_year_last() {
                split.dates.add(&fields, &format);
            }
            symbols.add(&fields, &format);
            if !text.is_empty() {
                split.keep(line, &text, symbol_in(&fields, &format));
            }
            if split.bytes > bytes_max {
                split.spill();
            }
        }
        split.symbols = symbols.several(&format);
        Ok(Some(split))
    }

    fn keep(&mut self, line: u64, text: &[u8], symbol: Option<&[u8]>) {
        if !self.is_whole {
            return;
        }
        let part = match symbol {
            None => &mut self.nameless,
            Some(symbol) if self.parts.contains_key(symbol) => self.parts.get_mut(symbol).expect("it is there"),
            // Such a column has no symbols.
            Some(_) if self.parts.len() == 2 * SPLIT_MAX => return self.give_up(),
            Some(symbol) => self.parts.entry(symbol.to_vec()).or_default(),
        };
        let before = part.tail.capacity();
        part.push(line, text);
        self.bytes += part.tail.capacity() - before;
    }

    /// Drops all rows.
    fn give_up(&mut self) {
        (self.parts, self.nameless, self.bytes, self.is_whole) = (HashMap::new(), Part::default(), 0, false);
    }

    /// Moves the rows in memory to the temporary file; drops all where there is none, or no room.
    fn spill(&mut self) {
        let Some(spill) = &self.spill else { return self.give_up() };
        let parts = self.parts.values_mut().chain([&mut self.nameless]).filter(|part| !part.tail.is_empty());
        let mut has_room = true;
        for part in parts {
            let rows = std::mem::take(&mut part.tail);
            let Ok(start) = spill.append(&rows) else {
                has_room = false;
                break;
            };
            part.chunks.push(start..start + rows.len() as u64);
        }
        self.bytes = 0;
        if !has_room {
            self.give_up();
        }
    }

    /// True if the rows of `symbol` are a part.
    pub(crate) fn has(&self, symbol: &str) -> bool {
        self.symbols.iter().any(|own| own == symbol)
    }

    fn part(&self, symbol: &str) -> &Part {
        self.parts.get(symbol.as_bytes()).unwrap_or(&NO_ROWS)
    }

    /// The lines after the first ones that may be rows of `symbol`.
    pub(crate) fn lines<'a>(&'a self, symbol: &str, observe: ObserveBytes<'a>) -> Result<SymbolLines<'a>> {
        let own = PartLines::begin(self.part(symbol), self.spill.as_ref(), observe)?;
        let nameless = PartLines::begin(&self.nameless, self.spill.as_ref(), observe)?;
        Ok(SymbolLines { own, nameless })
    }
}

/// Rows in the order of the file.
#[derive(Debug, Default)]
struct Part {
    /// Places of the first rows in the temporary file.
    chunks: Vec<Range<u64>>,
    /// The rows after those.
    tail: Vec<u8>,
}

impl Part {
    fn push(&mut self, line: u64, text: &[u8]) {
        // Lines are cut at a length far below.
        let len = text.len() as u32;
        self.tail.extend_from_slice(&line.to_ne_bytes());
        self.tail.extend_from_slice(&len.to_ne_bytes());
        self.tail.extend_from_slice(text);
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.end - chunk.start).sum::<u64>() + self.tail.len() as u64
    }
}

/// The bytes of a part, one after the other.
struct PartReader<'a> {
    part: &'a Part,
    spill: Option<&'a SpillFile>,
    observe: ObserveBytes<'a>,
    /// Chunks that were read, and bytes of the next one, or of the tail behind them.
    chunks: usize,
    read: usize,
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match (self.part.chunks.get(self.chunks), self.spill) {
            (Some(chunk), Some(spill)) => {
                let start = chunk.start + self.read as u64;
                let count = buffer.len().min((chunk.end - start) as usize);
                spill.read(start, &mut buffer[..count])?;
                self.read += count;
                if start + count as u64 == chunk.end {
                    (self.chunks, self.read) = (self.chunks + 1, 0);
                }
                count
            }
            _ => {
                let rest = &self.part.tail[self.read..];
                let count = buffer.len().min(rest.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.read += count;
                count
            }
        };
        tell_read(self.observe, count as u64)?;
        Ok(count)
    }
}

/// The lines of a part, and the next of them.
struct PartLines<'a> {
    reader: BufReader<PartReader<'a>>,
    /// Number of the next line; `None` after the last.
    line: Option<u64>,
    text: Vec<u8>,
}

impl<'a> PartLines<'a> {
    fn begin(part: &'a Part, spill: Option<&'a SpillFile>, observe: ObserveBytes<'a>) -> Result<Self> {
        let reader = PartReader { part, spill, observe, chunks: 0, read: 0 };
        let reader = BufReader::with_capacity(READ_BYTES, reader);
        let mut lines = PartLines { reader, line: None, text: Vec::new() };
        lines.advance()?;
        Ok(lines)
    }

    fn advance(&mut self) -> Result<()> {
        let found = self.fill();
        let folder = self.reader.get_ref().spill.map_or(Path::new("."), SpillFile::folder);
        self.line = found.map_err(|error| match is_stopped(&error) {
            true => Error::Interrupted,
            false => failed(folder, "read")(error),
        })?;
        Ok(())
    }

    /// Reads the next line, and gives its number.
    fn fill(&mut self) -> io::Result<Option<u64>> {
        if self.reader.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let (mut line, mut len) = ([0; 8], [0; ROW_HEAD - 8]);
        self.reader.read_exact(&mut line)?;
        self.reader.read_exact(&mut len)?;
        self.text.resize(u32::from_ne_bytes(len) as usize, 0);
        self.reader.read_exact(&mut self.text)?;
        Ok(Some(u64::from_ne_bytes(line)))
    }
}

/// The lines of a file that may be rows of one symbol: its own, and those without a symbol.
pub(crate) struct SymbolLines<'a> {
    own: PartLines<'a>,
    nameless: PartLines<'a>,
}

impl SymbolLines<'_> {
    /// Puts the next line into `text`, and gives its number in the file; `None` after the last.
    pub(crate) fn read_into(&mut self, text: &mut Vec<u8>) -> Result<Option<u64>> {
        let SymbolLines { own, nameless } = self;
        let is_nameless = nameless.line.is_some_and(|line| own.line.is_none_or(|own| line < own));
        let next = if is_nameless { nameless } else { own };
        let line = next.line;
        if line.is_some() {
            std::mem::swap(text, &mut next.text);
            next.advance()?;
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    const GO_ON: ObserveBytes<'static> = &|_| ControlFlow::Continue(());

    /// Lines of a file with three symbols, rows without one, and empty lines.
    fn text() -> String {
        let row = |k: usize| match k % 7 {
            3 => format!("2021-01-{:02},1,1,1,1,\n", 1 + k % 28),
            4 => "\n".to_owned(),
            _ => format!("2021-01-{:02},1,1,1,1,{}{}\n", 1 + k % 28, ["A", "B", "\"C\""][k % 3], " ".repeat(k % 5)),
        };
        let rows: String = (0..900).map(row).collect();
        format!("date,open,high,low,close,symbol\n{rows}")
    }

    /// The lines of each symbol as they are kept.
    fn kept(rows: &SymbolRows, path: &Path, symbol: &str) -> Vec<(u64, Vec<u8>)> {
        let mut lines = rows.file(path).unwrap().lines(symbol, GO_ON).unwrap();
        let (mut text, mut all) = (Vec::new(), Vec::new());
        while let Some(line) = lines.read_into(&mut text).unwrap() {
            all.push((line, text.clone()));
        }
        all
    }

    #[test]
    fn parts_have_the_lines_of_the_file_wherever_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.csv");
        let long = "D".repeat(70_000);
        let text = format!("{}2021-02-01,1,1,1,1,{long}", text());
        std::fs::write(&path, &text).unwrap();
        let file = Some(SpillFile::create(folder.path()).unwrap());
        for (spill, bytes_max) in [(None, usize::MAX), (file.clone(), usize::MAX), (file.clone(), 2_000), (file, 0)] {
            let mut rows = SymbolRows { spill: spill.clone(), bytes_max, ..SymbolRows::default() };
            let before = spill.as_ref().map_or(0, SpillFile::end);
            let mut symbols = rows.split(&path, &ReadOptions::default(), GO_ON).unwrap();
            symbols.sort();
            assert_eq!(symbols, ["A", "B", "C", long.as_str()]);
            assert_eq!(rows.files().collect::<Vec<_>>(), [path.as_path()]);
            let spilled = spill.as_ref().map_or(0, SpillFile::end) - before;
            assert_eq!(spilled > 20_000, bytes_max < usize::MAX, "{spilled} bytes");
            for symbol in symbols {
                let field = |line: &str| line.rsplit(',').next().unwrap().trim().replace('"', "");
                let numbered = text.lines().enumerate().skip(64);
                let own =
                    numbered.filter(|(_, line)| !line.is_empty() && ["", symbol.as_str()].contains(&&*field(line)));
                let expected: Vec<(u64, Vec<u8>)> =
                    own.map(|(place, line)| (place as u64 + 1, line.trim_end().as_bytes().to_vec())).collect();
                assert_eq!(kept(&rows, &path, &symbol), expected, "{symbol:.9}, {bytes_max} bytes");
                let bytes: usize = expected.iter().map(|(_, text)| ROW_HEAD + text.len()).sum();
                assert_eq!(rows.bytes(&path, &symbol), Some(bytes as u64));
            }
        }
    }

    #[test]
    fn rows_of_one_symbol_and_more_than_memory_holds_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (one, several) = (write("one.csv", &text().replace(['B', 'C'], "A")), write("several.csv", &text()));
        let mut rows = SymbolRows { bytes_max: 2_000, ..SymbolRows::default() };
        let mut beside = SymbolRows { bytes_max: 2_000, ..SymbolRows::in_folder(folder.path()).unwrap() };
        assert_eq!(beside.split(&one, &ReadOptions::default(), GO_ON).unwrap(), Vec::<String>::new());
        assert_eq!(beside.spill.unwrap().end(), 0);
        assert_eq!(rows.split(&several, &ReadOptions::default(), GO_ON).unwrap().len(), 3);
        rows.bytes_max = usize::MAX;
        for path in [one, folder.path().join("missing.csv"), write("none.csv", "date,open,high,low,close\n")] {
            assert_eq!(rows.split(&path, &ReadOptions::default(), GO_ON).unwrap(), Vec::<String>::new());
        }
        assert_eq!(rows.files().count(), 0);
        let stop: ObserveBytes<'_> = &|_| ControlFlow::Break(());
        assert!(matches!(rows.split(&several, &ReadOptions::default(), stop), Err(Error::Interrupted)));
        rows.split(&several, &ReadOptions::default(), GO_ON).unwrap();
        assert!(matches!(rows.file(&several).unwrap().lines("A", stop), Err(Error::Interrupted)));
    }
}
