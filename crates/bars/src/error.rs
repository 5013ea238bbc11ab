pub(crate) mod bar_difference;
pub(crate) mod column_fault;
pub(crate) mod excluded;
pub(crate) mod function_fault;
pub(crate) mod look_ahead;
pub(crate) mod message;
pub(crate) mod row_error;
pub(crate) mod tick_error;

use std::io;
use std::path::{Path, PathBuf};

use crate::error::bar_difference::BarDifference;
use crate::error::column_fault::ColumnFault;
use crate::error::excluded::{Excluded, ExcludedLines};
use crate::error::function_fault::FunctionFault;
use crate::error::look_ahead::LookAhead;
use crate::error::message::{BarShortage, LongestOf, Shortages};
use crate::error::row_error::RowError;
use crate::error::tick_error::TickError;
use crate::time::timeframe::Timeframe;
use crate::unknown_name::UnknownName;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors between a CSV file and an aligned series. Each says where, what was expected and what to
/// do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no regular file at the path.
    #[error("{}: expected a file of bars, found {kind}", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// Kind of file system object found, and the remedy.
        kind: &'static str,
    },

    /// The file cannot be opened.
    #[error("{}: cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },

    /// The file breaks off or cannot be decompressed.
    #[error("{}: cannot be read after line {line}: {source}; is the file complete?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Last line that was read.
        line: u64,
        /// Error of the system.
        source: io::Error,
    },

    /// A temporary file of bars cannot be written or read.
    #[error("{}: cannot {action} this temporary file: {source}", path.display())]
    Spool {
        /// The file.
        path: PathBuf,
        /// Step that failed, such as `write`.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },

    /// A function of the user cannot be a feature of these bars.
    #[error("{function}: {instrument}, {timeframe}: {fault}")]
    Function {
        /// Name of the function.
        function: String,
        /// The instrument.
        instrument: String,
        /// Timeframe of the bars that it was called with.
        timeframe: Timeframe,
        /// Reason.
        fault: Box<FunctionFault>,
    },

    /// The observer ended the work.
    #[error("interrupted")]
    Interrupted,

    /// The file has ticks, from which bars must be made first.
    #[error("{}: these are ticks ({format}), not bars", path.display())]
    Ticks {
        /// The file.
        path: PathBuf,
        /// Name of the ticks' format.
        format: &'static str,
    },

    /// Ticks are defective, or do not have what bars are to be made of.
    #[error(transparent)]
    Tick(#[from] TickError),

    /// No known layout fits the first lines.
    #[error("{}: no bars recognised ({reason}); tried {tried}; the first line is `{first_line}`", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Missing part.
        reason: String,
        /// The layouts that were tried.
        tried: &'static str,
        /// The first line, shortened.
        first_line: String,
    },

    /// A row cannot be used, and the reader was told to stop at such rows.
    #[error("{}: line {line}: {kind}: expected {expected}, found `{text}`", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: u64,
        /// Kind of kind.
        kind: RowError,
        /// Expected form of the row.
        expected: String,
        /// The line, shortened.
        text: String,
    },

    /// Rows repeat the times of others, and are bars of a longer timeframe.
    #[error(
        "{}: {rows} rows have the time of another row, the first in line {line}, and close as {longer} bars: bars of {base} and {longer} are mixed; keep those of one timeframe",
        path.display()
    )]
    TwoTimeframes {
        /// The file.
        path: PathBuf,
        /// Line number, from 1, of the first row of such a time.
        line: u64,
        /// The shorter timeframe.
        base: Timeframe,
        /// The longer one.
        longer: Timeframe,
        /// Rows with the time of another one.
        rows: usize,
    },

    /// The rows go back in time as often as forward.
    #[error(
        "{}: the rows are in no order of time: {backward} of {steps} are earlier than the row before them; sort them by {column}, oldest first",
        path.display()
    )]
    Unsorted {
        /// The file.
        path: PathBuf,
        /// Rows that are earlier than the row before them.
        backward: usize,
        /// Rows that follow another one of another time.
        steps: usize,
        /// Column of times, in words.
        column: String,
    },

    /// The columns or a header of the file cannot be used.
    #[error("{}: {fault}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// Reason.
        fault: Box<ColumnFault>,
    },

    /// The order of day and month cannot be told from the dates.
    #[error(
        "{}: in dates such as `{example}` either the day or the month comes first, and {found}; state which",
        path.display()
    )]
    UnknownDateOrder {
        /// The file.
        path: PathBuf,
        /// One of its dates.
        example: String,
        /// Order of day and month found in the dates.
        found: &'static str,
    },

    /// The file has more rows than any recording of minutes in one file.
    #[error("{}: there are more than {rows_max} rows; cut the file into several", path.display())]
    TooManyRows {
        /// The file.
        path: PathBuf,
        /// The most that are read.
        rows_max: usize,
    },

    /// The files of bid and ask do not belong together.
    #[error("{} and {} are not bid and ask of the same bars: {found}", bid.display(), ask.display())]
    UnlikeSides {
        /// The first file of the bid.
        bid: PathBuf,
        /// The first file of the ask.
        ask: PathBuf,
        /// Difference.
        found: String,
    },

    /// The ask is below the bid, and the reader was told to stop at such bars.
    #[error(
        "{} and {}: the bar that opens at {open_time} closes with the ask {ask} below the bid {bid}",
        bid_path.display(), ask_path.display()
    )]
    Crossed {
        /// The first file of the bid.
        bid_path: PathBuf,
        /// The first file of the ask.
        ask_path: PathBuf,
        /// When the bar opens.
        open_time: String,
        /// Close of the bid.
        bid: f64,
        /// Close of the ask.
        ask: f64,
    },

    /// A number in the column of weights is none.
    #[error(
        "{instrument}: the bar that opens at {open_time} has the weight {weight} in the column {column}; expected a number from 0 on"
    )]
    Weight {
        /// The column.
        column: String,
        /// The instrument.
        instrument: String,
        /// When the bar opens.
        open_time: String,
        /// The number.
        weight: f64,
    },

    /// The file has no rows.
    #[error("{}: there are no bars: {found}", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
        /// Contents in place of rows.
        found: &'static str,
    },

    /// No row of the input could be used.
    #[error("{}: nothing is left: none of {rows} rows can be used; first: {first}", path.display())]
    NothingLeft {
        /// The first file.
        path: PathBuf,
        /// Rows seen in all files.
        rows: u64,
        /// Why the first of them was dropped.
        first: String,
    },

    /// The columns of one of several symbols have no prices.
    #[error(
        "{symbol}: {}: all {rows} rows are empty (a failed download?): download them again, or leave its columns out",
        path.display()
    )]
    EmptyColumns {
        /// The first file.
        path: PathBuf,
        /// The symbol.
        symbol: String,
        /// Rows of all files.
        rows: u64,
    },

    /// No file was named.
    #[error("no file of bars was named; name at least one")]
    NoFiles,

    /// Two files cover the same time.
    #[error("{} begins at {begins}, before {} ends at {ends}: the files of one symbol must not overlap; leave one out or cut it", later.display(), earlier.display())]
    Overlap {
        /// The file that begins first.
        earlier: PathBuf,
        /// The file that begins before `earlier` ends.
        later: PathBuf,
        /// Open time of the first bar of `later`.
        begins: String,
        /// Open time of the last bar of `earlier`.
        ends: String,
    },

    /// Two files have different bars of one time.
    #[error("{}: line {line}: this bar of {time} is another one than {} has ({difference}); the files of one symbol must agree where they overlap: leave one out or cut it", path.display(), other.display())]
    UnlikeBars {
        /// The file that is named later.
        path: PathBuf,
        /// Line number, from 1, of its bar.
        line: u64,
        /// Open time of the bar.
        time: String,
        /// The file that is named first.
        other: PathBuf,
        /// The first field that differs.
        difference: Box<BarDifference>,
    },

    /// The files' names stand for different symbols.
    #[error("{} holds {first_symbol} and {} holds {second_symbol}: a series has one symbol; name it if they are the same", first.display(), second.display())]
    MixedSymbols {
        /// One file.
        first: PathBuf,
        /// Its symbol.
        first_symbol: String,
        /// Another file.
        second: PathBuf,
        /// Its symbol.
        second_symbol: String,
    },

    /// Two symbols of a file differ in the case of letters alone.
    #[error("{}: the symbols {one} and {other} differ in the case of letters alone, and count as one instrument: rename one of them, or state the one to read", path.display())]
    LikeSymbols {
        /// The file.
        path: PathBuf,
        /// The symbol that comes first.
        one: String,
        /// The other one.
        other: String,
    },

    /// A file's name does not fit the pattern that the symbol is taken from.
    #[error("{}: its name does not fit `{pattern}`, from which the symbol is to be taken; leave the file out, or give a pattern with {{}} for the symbol and * for anything else", path.display())]
    UnlikeName {
        /// The file.
        path: PathBuf,
        /// The pattern.
        pattern: String,
    },

    /// A folder has no files of bars.
    #[error("{}: there are no files of bars in the folder; expected names that end in .csv, .tsv or .txt, perhaps with .gz, in .zip or in .parquet; folders within it are not read", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },

    /// Several instruments cannot be used.
    #[error("{} of {instruments} instruments cannot be used:\n  {}", failed.len(), ExcludedLines(failed))]
    Several {
        /// Number of all instruments.
        instruments: usize,
        /// Files that cannot be used, and why.
        failed: Vec<Excluded>,
    },

    /// The size of a pip is not known for the symbol, or for several.
    #[error(
        "the pip size of `{symbol}` is not known; take log returns as targets, which need none, or give the size, such as 0.0001 for EURUSD, 0.1 for XAUUSD, 1 for BTCUSD or 0.01 for a share"
    )]
    UnknownPipSize {
        /// The symbol, or several with "`, `" between them.
        symbol: String,
    },

    /// A name is not one of the known ones.
    #[error(transparent)]
    UnknownName(#[from] UnknownName),

    /// The duration of the bars cannot be told from their spacing.
    #[error(
        "the bars' timeframe cannot be inferred: {found} (bars of a number of ticks or of a volume have none, and are not read); state it, such as M1"
    )]
    UnknownBase {
        /// Spacing of the bars.
        found: String,
    },

    /// The stated base timeframe does not occur in the data.
    #[error(
        "the bars were stated to be {stated}, but no two of them are {stated} apart (the closest are {closest} apart): each would be taken as closed before it is; state the true timeframe"
    )]
    WrongBase {
        /// Stated timeframe.
        stated: Timeframe,
        /// The smallest distance between two bars.
        closest: String,
    },

    /// Bars are of months.
    #[error(
        "{found}: bars of months cannot be read, as a month has no fixed length; those of MN1 are made of bars of a day or shorter: give these, and MN1 among the timeframes"
    )]
    MonthlyBase {
        /// Evidence.
        found: String,
    },

    /// Bars that arrive are of another timeframe than those before them.
    #[error("{}: its bars are {spacing} apart, and bars of {base} are followed: give those", path.display())]
    OtherTimeframe {
        /// Name of the bars' source.
        path: PathBuf,
        /// Distance between neighbouring bars.
        spacing: String,
        /// Expected timeframe.
        base: Timeframe,
    },

    /// Bars are shorter than stated, and no file has others.
    #[error(
        "{}: {found}, and its bars were stated to be {stated}: each would be taken as closed after it is; state the true timeframe, or leave the file out",
        path.display()
    )]
    ShorterBars {
        /// The file.
        path: PathBuf,
        /// Evidence that its bars are shorter.
        found: String,
        /// Stated timeframe.
        stated: Timeframe,
    },

    /// Bars are longer than those among which they stand.
    #[error(
        "{}: line {line}: {found}, among bars of {base}, which would have later prices: {fix}",
        path.display()
    )]
    LongerBars {
        /// The file.
        path: PathBuf,
        /// Line number, from 1, of the first of its rows.
        line: u64,
        /// Evidence that its bars are longer.
        found: &'static str,
        /// Timeframe of the others.
        base: Timeframe,
        /// Advice.
        fix: &'static str,
    },

    /// Longer bars cannot be made from the given ones.
    #[error(
        "{timeframe} bars cannot be made from {base} bars: its length must be a multiple of theirs; leave {timeframe} out of the timeframes"
    )]
    NotAMultiple {
        /// The timeframe asked for.
        timeframe: Timeframe,
        /// The timeframe of the bars.
        base: Timeframe,
    },

    /// A bar straddles two bins of a longer timeframe.
    #[error(
        "the {base} bar that opens at {open_time} lies in two {timeframe} bins, which start at multiples of {timeframe} on the clock {clock}, weeks on Mondays: it would bring later prices into the first; check the time zone of the file and the clock of bins, or leave {timeframe} out"
    )]
    Straddles {
        /// The timeframe asked for.
        timeframe: Timeframe,
        /// The timeframe of the bars.
        base: Timeframe,
        /// The clock of the bins.
        clock: String,
        /// When the first such bar opens.
        open_time: String,
    },

    /// Bars of a longer timeframe cannot take the place of those that the shorter bars make.
    #[error("{instrument}: its own {timeframe} bars {fault}; check the time zone of the files and the clock of bins")]
    OwnBars {
        /// The instrument.
        instrument: String,
        /// Timeframe of the bars.
        timeframe: Timeframe,
        /// Fault of their times.
        fault: String,
    },

    /// A value of the specification is out of range.
    #[error("{key} is {value}: expected {expected}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Allowed values.
        expected: &'static str,
    },

    /// An instrument has not enough bars for one sample.
    #[error(
        "{instrument}: too few bars for one sample{}: before the last {horizon} base bars, which are its future, {} with the warm-up of the features; give more data, a shorter horizon, shorter windows or fewer timeframes, or features that look back less far{}",
        LongestOf { segments: *segments, longest: *longest },
        Shortages(shortages),
        if *segments > 1 { ", or span longer holes" } else { "" }
    )]
    TooShort {
        /// The instrument.
        instrument: String,
        /// Length of the horizon in base bars.
        horizon: usize,
        /// Number of its segments.
        segments: usize,
        /// Number of base bars in the longest of them.
        longest: usize,
        /// Missing bars of the longest recording: one entry a timeframe, shortest first.
        shortages: Vec<BarShortage>,
    },

    /// An instrument has too few bars before the time up to which scalers are fitted.
    #[error(
        "{instrument}: it begins too late: only {bars} of its {timeframe} bars, the warm-up of the features aside, close in the training span, which ends at {trained_until}, and its scaling is fitted on at least {needed} there; leave {instrument} out, give more of its past, end the training span later, or do not scale"
    )]
    TooFewToFit {
        /// The instrument.
        instrument: String,
        /// The timeframe that lacks bars.
        timeframe: Timeframe,
        /// Bars that there are.
        bars: usize,
        /// Bars needed: one window.
        needed: usize,
        /// Time of the last sample of the training span.
        trained_until: String,
    },

    /// The scalers given are not those of the series.
    #[error(
        "the scalers given hold {found}, expected {expected}; take those of the data that the model was trained on"
    )]
    Scalers {
        /// Content of the file.
        found: String,
        /// Content that the series needs.
        expected: String,
    },

    /// No sample stands at the time that a proof is asked for.
    #[error("{instrument}: there is no sample at {time}; ask for a time at which one stands, under the same spec")]
    NoSample {
        /// The instrument.
        instrument: String,
        /// The time.
        time: String,
    },

    /// A proof failed.
    #[error("{0}; do not train on this data")]
    LookAhead(Box<LookAhead>),
}

impl Error {
    /// The refusal of a file for its columns.
    pub(crate) fn columns(path: &Path, fault: ColumnFault) -> Self {
        Error::Columns { path: path.to_owned(), fault: Box::new(fault) }
    }

    /// The refusal of a row, in `line`, that has no time of day among shorter bars of `base`.
    pub(crate) fn dates_alone(path: &Path, line: u64, base: Timeframe) -> Self {
        let found = "a date without a time of day is that of a bar of a day or longer";
        let fix =
            "leave the file out, write the times of day, or name it after the timeframe of its bars, as EURUSD_D1.csv";
        Error::LongerBars { path: path.to_owned(), line, found, base, fix }
    }

    /// The refusal of a row, in `line`, that has no time of day among bars of `base` of which those
    /// at midnight have one.
    pub(crate) fn date_beside_midnights(path: &Path, line: u64, base: Timeframe) -> Self {
        let found = "a date alone, where other midnights have a time of day, is that of a bar of a day or longer";
        let fix = "leave the row out, or write its time of day";
        Error::LongerBars { path: path.to_owned(), line, found, base, fix }
    }

    /// Reason why a function of the user cannot be a feature, if it is that.
    pub fn function_fault(&self) -> Option<&FunctionFault> {
        if let Error::Function { fault, .. } = self { Some(fault) } else { None }
    }

    /// The one file that is at fault.
    fn path(&self) -> Option<&Path> {
        match self {
            Error::Open { path, .. }
            | Error::Read { path, .. }
            | Error::UnknownFormat { path, .. }
            | Error::Ticks { path, .. }
            | Error::BadRow { path, .. }
            | Error::TwoTimeframes { path, .. }
            | Error::Unsorted { path, .. }
            | Error::Columns { path, .. }
            | Error::LikeSymbols { path, .. }
            | Error::UnknownDateOrder { path, .. }
            | Error::TooManyRows { path, .. }
            | Error::ShorterBars { path, .. }
            | Error::LongerBars { path, .. }
            | Error::OtherTimeframe { path, .. }
            | Error::NoRows { path, .. }
            | Error::EmptyColumns { path, .. }
            | Error::NothingLeft { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The message without the file's name in front, nor the symbol before that.
    fn without_path(&self) -> String {
        let text = self.to_string();
        let symbol = if let Error::EmptyColumns { symbol, .. } = self { format!("{symbol}: ") } else { String::new() };
        let path = self.path().map(|path| format!("{symbol}{}: ", path.display()));
        path.and_then(|path| text.strip_prefix(&path).map(str::to_owned)).unwrap_or(text)
    }
}
