use std::fmt;

use crate::error::message::Percent;
use crate::time::timestamp::listed;

/// Advice for a column whose names are no symbols.
struct OrOneSeries<'a>(Option<&'a str>);

impl fmt::Display for OrOneSeries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(column) => write!(f, ", or, if they are contracts of one series, rename the column `{column}`"),
            None => Ok(()),
        }
    }
}

/// Reason why a file cannot be read by its columns or headers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnFault {
    /// Too many rows contradict themselves for the prices to be in the columns that they are read
    /// from.
    #[error(
        "{misfits} of the {rows} rows whose prices differ, the first in line {first_line}, have an open or close outside of high and low: the columns are in another order (open, high, low and close were read from fields {}, {}, {} and {}); name each column in a header, such as `time,close,low,high,open`",
        fields[0], fields[1], fields[2], fields[3]
    )]
    Order {
        /// Rows that contradict themselves.
        misfits: u64,
        /// Rows whose four prices are not all one.
        rows: u64,
        /// Line number, from 1, of the first that contradicts itself.
        first_line: u64,
        /// Fields, counted from 1, from which open, high, low and close were read.
        fields: [usize; 4],
    },

    /// Open and close of columns without names are probably exchanged.
    #[error(
        "the columns have no names, and open and close are probably exchanged: with the open read from field {} and the close from field {}, the median bar of {pairs} opens {} from the close before it, and {} with the two exchanged; name the columns in a first line, `{exchanged_header}`, or `{header}` if they are right as read",
        fields[0], fields[1], Percent(*as_read), Percent(*exchanged)
    )]
    ExchangedOpenClose {
        /// Fields, counted from 1, from which open and close were read.
        fields: [usize; 2],
        /// Pairs of neighbouring bars that were compared.
        pairs: usize,
        /// Median distance from a close to the next open, in percent.
        as_read: f64,
        /// The same with open and close exchanged.
        exchanged: f64,
        /// Header of the columns as they were read.
        header: String,
        /// Header of the columns with open and close exchanged.
        exchanged_header: String,
    },

    /// Each symbol of a file has its own columns.
    #[error("line {line}: the columns are those of several symbols, {}: state the symbol to read", listed(symbols))]
    SymbolColumns {
        /// Line number, from 1, of the symbols.
        line: u64,
        /// The symbols.
        symbols: Vec<String>,
    },

    /// The rows of a file are of several symbols.
    #[error(
        "line {line}: the column `{column}` has several symbols, {}: state the symbol to read, or, if they are contracts of one series, rename the column",
        listed(symbols)
    )]
    SymbolRows {
        /// Line number, from 1, of the first row of a second symbol.
        line: u64,
        /// Name of the column.
        column: String,
        /// The symbols, in the order of their first rows.
        symbols: Vec<String>,
    },

    /// The symbol that was asked for is none of the file's.
    #[error(
        "`{symbol}` is none of the {} symbols of the file; the nearest are {}: state one of them{}",
        symbols.len(), listed(symbols), OrOneSeries(column.as_deref())
    )]
    NoSuchSymbol {
        /// The symbol.
        symbol: String,
        /// Name of the column of symbols; `None` where each symbol has its own columns.
        column: Option<String>,
        /// The symbols of the file, the nearest first.
        symbols: Vec<String>,
    },

    /// A column that was asked for is missing, or there twice.
    #[error("no column {name}: found {found}; give its name as the header has it")]
    Missing {
        /// Name of the column.
        name: String,
        /// Columns that the file has, in words.
        found: String,
    },

    /// A column without a name may be an adjusted close or a volume.
    #[error(
        "line {line}: the columns have no names, and field {field} {found}; name the columns in a first line, `{volume_header}` or `{adjusted_header}`"
    )]
    Unclear {
        /// Line number, from 1, of the first row that shows it.
        line: u64,
        /// The field in question, counted from 1.
        field: usize,
        /// Why it is probably not the one that it was to be read as.
        found: &'static str,
        /// The header of files with volume and open interest.
        volume_header: String,
        /// The header of files with an adjusted close.
        adjusted_header: String,
    },

    /// A second header names other columns than the rows before it have.
    #[error(
        "line {line}: a header in the middle of the rows that names {found}: the rows below it would be read from the wrong columns; cut the file in two there (found `{text}`)"
    )]
    AnotherHeader {
        /// Line number from 1.
        line: u64,
        /// Difference.
        found: String,
        /// The line, shortened.
        text: String,
    },

    /// Adjusted prices were asked for and the file has none.
    #[error(
        "there is no adjusted close to adjust prices with; read them as quoted, or name the column `adjusted_close` in the header"
    )]
    NoAdjustedClose,
}
