//! The table of a Parquet file as text: a header and rows, as pandas' `to_csv` writes them.
//!
//! Source: the Apache Parquet format 2.12, its `LogicalTypes.md` for what numbers stand for.

mod columns;
mod pandas;

use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::parse::parquet_text::columns::{CellText, TextColumn};
use crate::parse::parquet_text::pandas::PandasTable;
use crate::place::{ObserveBytes, tell_read};

/// The first bytes of a Parquet file, and its last ones.
pub(crate) const PARQUET_MAGIC: [u8; 4] = *b"PAR1";
/// Rows that are turned into text at once.
const ROWS_AT_ONCE: usize = 1024;

/// The text of a Parquet file. At most a page of each column is in memory, and some rows of text.
///
/// Columns are those of scalars at the top level; lists and structures are left out. Columns of
/// pandas' index come first, and each level of its column names is a line of the header.
pub(crate) struct ParquetText<'a> {
    file: SerializedFileReader<File>,
    columns: Vec<TextColumn>,
    /// Row group that is read next, and the readers of the present one, a column each.
    next_group: usize,
    readers: Vec<ColumnReader>,
    rows_left: usize,
    cells: Vec<CellText>,
    /// Lines that are not taken yet, from `start` on.
    text: Vec<u8>,
    start: usize,
    progress: RowProgress<'a>,
}

/// Bytes of a file as its rows stand for them: pages are read in another order than rows.
struct RowProgress<'a> {
    observe: ObserveBytes<'a>,
    file_bytes: u64,
    row_count: u64,
    rows: u64,
}

impl<'a> ParquetText<'a> {
    /// Opens a file at whose start the [magic](PARQUET_MAGIC) stands.
    ///
    /// # Errors
    /// If its footer is damaged, or if it has no column of scalars.
    pub(crate) fn open(file: File, observe: ObserveBytes<'a>) -> io::Result<Self> {
        let file_bytes = file.metadata()?.len();
        let file = decoded(|| SerializedFileReader::new(file))?;
        let metadata = file.metadata().file_metadata();
        let pandas = PandasTable::from_metadata(metadata.key_value_metadata());
        let schema = metadata.schema_descr();
        let mut columns: Vec<TextColumn> = (0..schema.num_columns())
            .filter_map(|place| TextColumn::new(place, &schema.column(place), &pandas))
            .collect();
        if columns.is_empty() {
            return Err(invalid("the Parquet file has no column of numbers, times or text".to_owned()));
        }
        columns.sort_by_key(|column| pandas.place_in_index(column.name()));
        let names: Vec<&str> = columns.iter().map(TextColumn::name).collect();
        let text = pandas.header(&names);
        let row_count =
            u64::try_from(metadata.num_rows()).map_err(|_| invalid("a negative number of rows".to_owned()))?;
        let cells = columns.iter().map(|_| CellText::default()).collect();
        let progress = RowProgress { observe, file_bytes, row_count, rows: 0 };
        let (next_group, readers) = (0, Vec::new());
        Ok(ParquetText { file, columns, next_group, readers, rows_left: 0, cells, text, start: 0, progress })
    }

    /// Replaces the text by that of the next rows; leaves it empty after the last.
    fn advance(&mut self) -> io::Result<()> {
        self.text.clear();
        self.start = 0;
        while self.rows_left == 0 {
            if self.next_group == self.file.num_row_groups() {
                return Ok(());
            }
            decoded(|| self.open_group())?;
        }
        let rows = self.rows_left.min(ROWS_AT_ONCE);
        for ((column, reader), cells) in self.columns.iter().zip(&mut self.readers).zip(&mut self.cells) {
            decoded(|| column.read(reader, rows, cells))?;
        }
        for row in 0..rows {
            for (place, cells) in self.cells.iter().enumerate() {
                if place > 0 {
                    self.text.push(b',');
                }
                self.text.extend_from_slice(cells.get(row));
            }
            self.text.push(b'\n');
        }
        self.rows_left -= rows;
        self.progress.add(rows as u64)
    }

    fn open_group(&mut self) -> parquet::errors::Result<()> {
        let group = self.file.get_row_group(self.next_group)?;
        let rows = group.metadata().num_rows();
        self.rows_left = usize::try_from(rows).map_err(|_| ParquetError::General(format!("{rows} rows in a group")))?;
        self.readers.clear();
        for column in &self.columns {
            self.readers.push(group.get_column_reader(column.place())?);
        }
        self.next_group += 1;
        Ok(())
    }
}

impl RowProgress<'_> {
    /// Counts rows, and tells the observer of the bytes that they stand for.
    fn add(&mut self, rows: u64) -> io::Result<()> {
        let bytes = |rows: u64| match self.row_count {
            0 => 0,
            all => (u128::from(self.file_bytes) * u128::from(rows.min(all)) / u128::from(all)) as u64,
        };
        let read = bytes(self.rows + rows) - bytes(self.rows);
        self.rows += rows;
        tell_read(self.observe, read)
    }
}

impl BufRead for ParquetText<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.text.len() {
            self.advance()?;
        }
        Ok(&self.text[self.start..])
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }
}

impl Read for ParquetText<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let text = self.fill_buf()?;
        let count = text.len().min(buffer.len());
        buffer[..count].copy_from_slice(&text[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// The result of a call of the library. It panics on some damaged files: it indexes beyond the end
/// of a page, and asserts what a footer says. Nothing is read from its readers after an error.
fn decoded<T>(call: impl FnOnce() -> parquet::errors::Result<T>) -> io::Result<T> {
    let found = catch_unwind(AssertUnwindSafe(call));
    let found = found.unwrap_or_else(|_| Err(ParquetError::General("it contradicts itself".to_owned())));
    found.map_err(|error| {
        invalid(match error {
            ParquetError::NYI(what) => format!("the Parquet file has what is not read: {what}"),
            ParquetError::General(what) | ParquetError::EOF(what) => format!("the Parquet file is damaged: {what}"),
            error => format!("the Parquet file is damaged: {error}"),
        })
    })
}

fn invalid(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests;
