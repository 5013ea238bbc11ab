use std::path::PathBuf;

use crate::error::row_error::RowError;

/// The remedy for ticks whose columns are in an unknown order.
const NAME_COLUMNS: &str = "write a header above them that names the columns in their order, such as `time,bid,ask`, \
     `time,ask,bid,askvolume,bidvolume` or `time,price,volume`, and read them with `ticks`";

/// Errors between files of ticks and bars.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TickError {
    /// The file has bars, of which no ticks can be made.
    #[error(
        "{}: these are bars ({format}), not ticks; `ingest` reads them as they are{}",
        path.display(), if *has_header { String::new() } else { format!("; if they are ticks, {NAME_COLUMNS}") }
    )]
    Bars {
        /// The file.
        path: PathBuf,
        /// Name of the bars' format.
        format: &'static str,
        /// A header names their columns.
        has_header: bool,
    },

    /// The first lines are no ticks in a known format.
    #[error(
        "{}: no ticks recognised ({reason}); tried {tried}; the first line is `{first_line}`; if these are ticks, {}",
        path.display(), NAME_COLUMNS
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Missing part.
        reason: String,
        /// The formats that were tried.
        tried: String,
        /// The first line, shortened.
        first_line: String,
    },

    /// A row is no usable tick, and the reader was told to stop at such rows.
    #[error("{}: line {line}: {kind}: expected {expected}, found `{text}`", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// Line number, or number of the record, from 1.
        line: u64,
        /// Kind of fault.
        kind: RowError,
        /// Expected form of the row.
        expected: String,
        /// The line, shortened.
        text: String,
    },

    /// The clock of the ticks is not known.
    #[error("{}: the times are on the broker's clock, whose zone the file does not name; state it", path.display())]
    UnknownZone {
        /// The file.
        path: PathBuf,
    },

    /// The path of a binary file does not tell its hour.
    #[error(
        "{}: the hour of the ticks is in the path alone: expected SYMBOL/YYYY/MM/DD/HHh_ticks.bi5, with months from 00 to 11",
        path.display()
    )]
    NoHour {
        /// The file.
        path: PathBuf,
    },

    /// Prices in points cannot be read.
    #[error("{}: the price of a point of `{symbol}` is not known; state it, such as 0.00001 for EURUSD", path.display())]
    UnknownPoint {
        /// The file.
        path: PathBuf,
        /// The symbol in its path.
        symbol: String,
    },

    /// The ticks do not have the price that was asked for.
    #[error("{}: the ticks have no price `{price}`: expected one of {found}", path.display())]
    NoPrice {
        /// The file.
        path: PathBuf,
        /// Name of the price asked for.
        price: &'static str,
        /// The prices that there are.
        found: String,
    },

    /// The ticks have no volume, and volumes were asked for.
    #[error("{}: the ticks have no volume; take their number", path.display())]
    NoVolume {
        /// The file.
        path: PathBuf,
    },

    /// The ticks of two files differ in kind.
    #[error(
        "{} ({first_kind}) and {} ({second_kind}) do not go together: the files of one series have one kind of ticks",
        first.display(), second.display()
    )]
    Unlike {
        /// One file.
        first: PathBuf,
        /// Format, price and volume of its ticks.
        first_kind: String,
        /// Another file.
        second: PathBuf,
        /// Format, price and volume of its ticks.
        second_kind: String,
    },

    /// Two files of ticks cover the same time.
    #[error("{} begins at {begins}, before {} ends at {ends}: files of ticks must not overlap; leave one out or cut it", later.display(), earlier.display())]
    Overlapping {
        /// The file that begins first.
        earlier: PathBuf,
        /// The file that begins before `earlier` ends.
        later: PathBuf,
        /// Time of the first tick of `later`.
        begins: String,
        /// Time of the last tick before it.
        ends: String,
    },

    /// There are too few ticks for one bar.
    #[error("not one bar of {rule} is full after {ticks} ticks; state a smaller number")]
    NoFullBar {
        /// Rule of the bars.
        rule: String,
        /// Ticks in all files.
        ticks: u64,
    },
}
