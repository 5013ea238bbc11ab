use std::path::Path;

use crate::error::Error;
use crate::error::column_fault::ColumnFault;
use crate::error::message::shortened;
use crate::parse::columns::BarColumns;
use crate::parse::fields::{Commas, RowFields, says_nothing};
use crate::parse::format_name::{FormatName, TRIED};
use crate::parse::header::{self, DELIMITERS, HeaderLine, NumberedLine, StackedHeader};
use crate::parse::symbol::nearest_first;
use crate::parse::tick_rows::UnnamedTicks;
use crate::time::timestamp::{DateStyle, is_date, parse_date_and_clock};

/// A line after the first rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaterLine {
    /// A row, readable or not.
    Row,
    /// The columns' names once more.
    Header,
}

/// Format of the rows of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowFormat {
    /// The family.
    pub(crate) name: FormatName,
    /// Date style.
    pub(crate) style: DateStyle,
    /// Separator of fields.
    pub(crate) delimiter: u8,
    /// Columns by role.
    pub(crate) columns: BarColumns,
    /// Line number, from 1, of the header, where there is one; of its last line, if it has several.
    pub(crate) header_line: Option<u64>,
    /// Lines of the header.
    pub(crate) header_lines: u64,
    /// True if a header names the columns; else they are told from their positions.
    pub(crate) is_named: bool,
    /// False if the column of symbols has a name that other columns have too: it has symbols where
    /// rows of several share a time.
    pub(crate) has_sure_symbols: bool,
    /// The column that is taken for the adjusted close by its position alone.
    pub(crate) assumed_adjusted: Option<usize>,
}

impl RowFormat {
    /// Recognises the format from the first lines of a file, of the family `wanted` if there is
    /// one; the error names the missing part. Of columns of several symbols those of `symbol` are
    /// read.
    ///
    /// Lines that fit no format are skipped: those before a header are no rows, the others will
    /// be unreadable ones.
    pub(crate) fn detect(
        head: &[NumberedLine],
        wanted: Option<FormatName>,
        symbol: Option<&str>,
    ) -> Result<RowFormat, Unrecognised> {
        if let Some(UnnamedTicks { line, .. }) = UnnamedTicks::find(head) {
            return Err(ticks(&format!("line {line} has a bid, an ask and flags")));
        }
        let families = FormatName::ALL.into_iter().filter(|name| wanted.is_none_or(|wanted| wanted == *name));
        let styles: Vec<(FormatName, DateStyle)> =
            families.flat_map(|name| name.date_styles().into_iter().map(move |style| (name, style))).collect();
        for delimiter in DELIMITERS {
            if let Some(header) = StackedHeader::find(head, delimiter) {
                return RowFormat::detect_stacked(head, &header, delimiter, &styles, symbol);
            }
        }
        for delimiter in DELIMITERS {
            if let Some((_, format)) = RowFormat::detect_delimited(head, delimiter, &styles, Commas::Refused)? {
                return Ok(format);
            }
        }
        for delimiter in DELIMITERS {
            if let Some((line, _)) = RowFormat::detect_delimited(head, delimiter, &styles, Commas::PassedOver)? {
                return Err(Unrecognised::Reason(format!(
                    "line {line} would be a row if its prices had no commas: decimal commas, and commas between thousands, are not read; write prices with a decimal point"
                )));
            }
        }
        let other = wanted.and_then(|_| RowFormat::detect(head, None, symbol).ok());
        let miss = match other {
            Some(other) => Some(format!("its rows are of format {}", other.name)),
            None => DELIMITERS.iter().find_map(|&delimiter| nearest_miss(head, delimiter, &styles)),
        };
        Err(no_row(wanted, miss))
    }

    /// The format, in which a column names no symbols if its numbers are wanted.
    pub(crate) fn for_columns(mut self, head: &[NumberedLine], is_wanted: impl Fn(&[u8]) -> bool) -> RowFormat {
        if symbols_name(head, self.header_line, self.delimiter, &self.columns).is_some_and(is_wanted) {
            self.columns.symbol = None;
        }
        self
    }

    /// The format of the rows under a header of several lines.
    fn detect_stacked(
        head: &[NumberedLine],
        header: &StackedHeader,
        delimiter: u8,
        styles: &[(FormatName, DateStyle)],
        symbol: Option<&str>,
    ) -> Result<RowFormat, Unrecognised> {
        let stated = symbol.and_then(|wanted| header.symbols.iter().find(|symbol| symbol.eq_ignore_ascii_case(wanted)));
        let only = || header.symbols.first().filter(|_| header.symbols.len() == 1);
        let Some(symbol) = stated.or_else(only) else {
            let (line, symbols) = (header.symbols_line, header.symbols.clone());
            return Err(Unrecognised::SeveralSymbols { line, symbols, wanted: symbol.map(str::to_owned) });
        };
        let columns = match header.columns_of(symbol) {
            HeaderLine::Named(columns) => columns,
            HeaderLine::Partial { missing } => return Err(partial(header.first_line, missing)),
            HeaderLine::Words | HeaderLine::Ticks => return Err(partial(header.first_line, "open")),
        };
        let rows = head.iter().filter(|(line, _)| *line > header.last_line);
        let fitting = rows.flat_map(|(_, text)| {
            let fields = RowFields::split(text, delimiter);
            // Prices may be empty for long: until the symbol is listed.
            styles.iter().find(|(_, style)| fields.stamp(&columns, *style).is_some())
        });
        let Some(&(name, style)) = fitting.into_iter().next() else { return Err(no_row(None, None)) };
        Ok(RowFormat {
            name,
            style,
            delimiter,
            columns,
            header_line: Some(header.last_line),
            header_lines: header.last_line + 1 - header.first_line,
            is_named: true,
            has_sure_symbols: true,
            assumed_adjusted: None,
        })
    }

    /// The columns that a line further down names, where it is a header; an error for one that
    /// names other columns than those that are read, or not all prices. Column names in another
    /// order would exchange prices.
    pub(crate) fn check_later_line(&self, path: &Path, line: u64, text: &[u8]) -> Result<LaterLine, Error> {
        let fields = RowFields::split(text, self.delimiter);
        let found = match header::parse(&fields) {
            Some(HeaderLine::Named(_)) if header::with_date_apart(&fields).is_some_and(|found| self.reads(&found)) => {
                return Ok(LaterLine::Header);
            }
            None | Some(HeaderLine::Words) => return Ok(LaterLine::Row),
            Some(HeaderLine::Named(found)) if self.reads(&found) => return Ok(LaterLine::Header),
            Some(HeaderLine::Named(_)) => "other columns than the rows above have".to_owned(),
            Some(HeaderLine::Partial { missing }) => format!("some columns, but not `{missing}`"),
            Some(HeaderLine::Ticks) => "bid and ask of ticks".to_owned(),
        };
        Err(Error::columns(path, ColumnFault::AnotherHeader { line, found, text: shortened(text) }))
    }

    /// True for a row of other symbols alone, whose columns stand beside those that are read.
    pub(crate) fn is_of_others(&self, fields: &RowFields<'_>) -> bool {
        let is_empty = |column: usize| fields.get(column).is_some_and(says_nothing);
        self.header_lines > 1 && self.columns.prices().into_iter().all(is_empty)
    }

    /// True if every column that is read is the same. A column that is not read may be anywhere.
    fn reads(&self, named: &BarColumns) -> bool {
        let BarColumns { time, clock, open, high, low, close, adjusted, split, dividend, volume, spread, symbol } =
            self.columns;
        let same = |read: Option<usize>, named: Option<usize>| read.is_none() || read == named;
        [time, open, high, low, close] == [named.time, named.open, named.high, named.low, named.close]
            && clock == named.clock
            && same(adjusted, named.adjusted)
            && same(split, named.split)
            && same(dividend, named.dividend)
            && same(volume, named.volume)
            && same(spread, named.spread)
            && same(symbol, named.symbol)
    }

    /// The number of the first line that fits, and the format in which it does.
    fn detect_delimited(
        head: &[(u64, Vec<u8>)],
        delimiter: u8,
        styles: &[(FormatName, DateStyle)],
        commas: Commas,
    ) -> Result<Option<(u64, RowFormat)>, Unrecognised> {
        let (mut header, mut date_apart) = (None, None);
        for (line, text) in head {
            let fields = RowFields::split(text, delimiter);
            match header::parse(&fields) {
                Some(HeaderLine::Partial { missing }) => {
                    return Err(partial(*line, missing));
                }
                Some(HeaderLine::Ticks) => {
                    return Err(ticks(&format!("the header in line {line} names bid and ask")));
                }
                Some(found) => {
                    header = Some((*line, found));
                    date_apart = header::with_date_apart(&fields);
                }
                None => {}
            }
            let named = match header {
                Some((_, HeaderLine::Named(columns))) => Some(columns),
                _ => None,
            };
            let fitting_with = |apart: Option<BarColumns>| {
                styles.iter().find_map(|&(name, style)| {
                    let columns = apart.or(named).or_else(|| by_position(&fields, style))?;
                    fields.fit(&columns, style, commas).then_some((name, style, columns))
                })
            };
            let fitting = fitting_with(None).or_else(|| fitting_with(Some(date_apart?)));
            if let Some((name, style, mut columns)) = fitting {
                columns.symbol = columns.symbol.filter(|&column| !has_fractions(head, delimiter, column));
                let header_line = header.map(|(line, _)| line);
                let assumed_adjusted = columns.adjusted.filter(|_| named.is_none());
                let is_named = named.is_some();
                let name_of_symbols = symbols_name(head, header_line, delimiter, &columns);
                let has_sure_symbols = name_of_symbols.is_none_or(header::surely_has_symbols);
                let format = RowFormat {
                    name,
                    style,
                    delimiter,
                    columns,
                    header_line,
                    header_lines: 1,
                    is_named,
                    has_sure_symbols,
                    assumed_adjusted,
                };
                return Ok(Some((*line, format)));
            }
        }
        Ok(None)
    }
}

/// The name of the column of symbols in the header; `None` without one of both.
fn symbols_name<'a>(
    head: &'a [NumberedLine],
    header_line: Option<u64>,
    delimiter: u8,
    columns: &BarColumns,
) -> Option<&'a [u8]> {
    let (column, header_line) = columns.symbol.zip(header_line)?;
    let (_, names) = head.iter().find(|(line, _)| *line == header_line)?;
    RowFields::split(names, delimiter).get(column)
}

/// True if a column has numbers with fractions, which name no symbols: a feature may be called
/// `stock`.
fn has_fractions(head: &[NumberedLine], delimiter: u8, column: usize) -> bool {
    let mut numbers = head.iter().filter_map(|(_, text)| RowFields::split(text, delimiter).number(column));
    numbers.any(|number| number.is_finite() && number.fract() != 0.0)
}

/// Why the first lines of a file are no bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unrecognised {
    /// They fit no format.
    Reason(String),
    /// Each symbol has its own columns, and none of them was stated.
    SeveralSymbols {
        /// Line number, from 1, of the symbols.
        line: u64,
        /// The symbols.
        symbols: Vec<String>,
        /// Another symbol that was stated.
        wanted: Option<String>,
    },
}

impl Unrecognised {
    /// The error of the file at `path`.
    pub(crate) fn into_error(self, path: &Path, head: &[NumberedLine]) -> Error {
        let reason = match self {
            Unrecognised::SeveralSymbols { line, symbols, wanted: None } => {
                return Error::columns(path, ColumnFault::SymbolColumns { line, symbols });
            }
            Unrecognised::SeveralSymbols { symbols, wanted: Some(symbol), .. } => {
                let symbols = nearest_first(&symbol, symbols);
                return Error::columns(path, ColumnFault::NoSuchSymbol { symbol, column: None, symbols });
            }
            Unrecognised::Reason(reason) => reason,
        };
        let path = path.to_owned();
        if head.iter().all(|(_, text)| text.is_empty()) {
            Error::NoRows { path, found: "the file is empty" }
        } else if is_header_alone(head) {
            Error::NoRows { path, found: "the file has a header and no row" }
        } else {
            let first_line = head.first().map_or_else(String::new, |(_, text)| shortened(text));
            Error::UnknownFormat { path, reason, tried: TRIED, first_line }
        }
    }
}

/// True if the only line is a header.
pub(crate) fn is_header_alone(head: &[NumberedLine]) -> bool {
    let mut lines = head.iter().filter(|(_, text)| !text.is_empty());
    let (Some((_, text)), None) = (lines.next(), lines.next()) else { return false };
    let parsed = |delimiter| header::parse(&RowFields::split(text, delimiter));
    DELIMITERS.into_iter().any(|delimiter| matches!(parsed(delimiter), Some(HeaderLine::Named(_))))
}

fn partial(line: u64, missing: &str) -> Unrecognised {
    Unrecognised::Reason(format!("the header in line {line} names some columns, but not `{missing}`"))
}

/// The refusal of ticks, which `sign` shows.
fn ticks(sign: &str) -> Unrecognised {
    Unrecognised::Reason(format!("{sign}: these are ticks, not bars; export bars, with open, high, low and close"))
}

fn no_row(wanted: Option<FormatName>, miss: Option<String>) -> Unrecognised {
    let timestamp = wanted.map_or("a timestamp".to_owned(), |name| format!("a timestamp of format {name}"));
    let miss = miss.map_or_else(String::new, |miss| format!("; {miss}"));
    Unrecognised::Reason(format!(
        "no line has {timestamp} and four prices{miss}; where columns are in another order, write a header above them that names each, such as `time,open,high,low,close` for bars, or `time,bid,ask` for ticks, which `ticks` reads"
    ))
}

/// The first line that is nearly a row, and the field that keeps it from being one.
fn nearest_miss(head: &[NumberedLine], delimiter: u8, styles: &[(FormatName, DateStyle)]) -> Option<String> {
    let mut named = None;
    head.iter().find_map(|(line, text)| {
        let fields = RowFields::split(text, delimiter);
        if let Some(found) = header::parse(&fields) {
            named = if let HeaderLine::Named(columns) = found { Some(columns) } else { None };
            return None;
        }
        let is_number = |column: usize| fields.number(column).is_some();
        let has_time = |columns: &BarColumns| styles.iter().any(|(_, style)| fields.stamp(columns, *style).is_some());
        let columns = match named {
            Some(columns) if columns.prices().into_iter().all(|column| column < fields.len()) => columns,
            Some(_) => return None,
            None => {
                styles.iter().find_map(|(_, style)| by_position(&fields, *style).filter(has_time)).or_else(|| {
                    let columns = BarColumns { open: 1, high: 2, low: 3, close: 4, ..BarColumns::NONE };
                    columns.prices().into_iter().all(is_number).then_some(columns)
                })?
            }
        };
        let shown = |column: usize| format!("field {}, `{}`", column + 1, shortened(fields.get(column).unwrap_or(b"")));
        if !has_time(&columns) {
            return Some(format!("line {line}: {}, is no time in a known form", shown(columns.time)));
        }
        let prices = columns.prices().into_iter().zip(["open", "high", "low", "close"]);
        let (column, name) = prices.into_iter().find(|(column, _)| !is_number(*column))?;
        Some(format!("line {line}: {}, is no number for {name}", shown(column)))
    })
}

/// The columns of a row without names: time, perhaps a clock apart, open, high, low, close, perhaps
/// volume.
fn by_position(fields: &RowFields<'_>, style: DateStyle) -> Option<BarColumns> {
    let (first, second) = (fields.get(0)?, fields.get(1)?);
    let apart = parse_date_and_clock(first, second, style).is_some();
    let open = if apart { 2 } else { 1 };
    // A date alone and six numbers or more are Yahoo's: the fifth is the adjusted close, and the
    // sixth the volume. All rows together tell whether it is one.
    let yahoo = !apart && fields.len() >= 7 && is_date(first, style);
    let volume = if yahoo { 6 } else { open + 4 };
    Some(BarColumns {
        time: 0,
        clock: apart.then_some(1),
        open,
        high: open + 1,
        low: open + 2,
        close: open + 3,
        adjusted: yahoo.then_some(5),
        split: None,
        dividend: None,
        volume: (volume < fields.len()).then_some(volume),
        spread: None,
        symbol: None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detect(text: &str) -> Result<RowFormat, String> {
        let head: Vec<(u64, Vec<u8>)> = (1..).zip(text.lines().map(|line| line.as_bytes().to_vec())).collect();
        reason(RowFormat::detect(&head, None, None))
    }

    fn reason(found: Result<RowFormat, Unrecognised>) -> Result<RowFormat, String> {
        found.map_err(|error| match error {
            Unrecognised::Reason(reason) => reason,
            Unrecognised::SeveralSymbols { symbols, .. } => panic!("{symbols:?}"),
        })
    }

    #[test]
    fn formats_are_recognised_from_their_first_lines() {
        use FormatName::{Epoch, HistData, Iso, MetaTrader, YearLast};
        // Text, family, delimiter, column of the open, of the volume, line of the header.
        let cases = [
            ("20180101 170000;1.2;1.3;1.1;1.2;0", HistData, b';', 1, Some(5), None),
            ("2018.01.01,17:00,1.2,1.3,1.1,1.2,7", MetaTrader, b',', 2, Some(6), None),
            ("\"2018.01.01,17:00,1.2,1.3,1.1,1.2,7\"", MetaTrader, b',', 2, Some(6), None),
            ("2018.01.01 17:00:00,1.2,1.3,1.1,1.2", MetaTrader, b',', 1, None, None),
            (
                "<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\n2018.01.01\t1.2\t1.3\t1.1\t1.2\t7",
                MetaTrader,
                b'\t',
                1,
                Some(5),
                Some(1),
            ),
            (
                "date\ttime\topen\thigh\tlow\tclose\ttickvolume\n2018.06.01\t00:00:00\t1.1\t1.1\t1.1\t1.1\t8",
                MetaTrader,
                b'\t',
                2,
                Some(6),
                Some(1),
            ),
            ("timestamp,open,high,low,close\n2013-02-01 00:00:00+00:00,91,91,91,91", Iso, b',', 1, None, Some(1)),
            ("2016-06-27,67.4,67.6,66.4,67.1,64.0,180700", Iso, b',', 1, Some(6), None),
            ("-(2018-10-12 12:00,1,1,1,1,9\n2018-10-12 12:15,1,1,1,1,9", Iso, b',', 1, Some(5), None),
            ("kell;a;b;c;d\n2018-10-12 12:15;1;1;1;1;9", Iso, b';', 1, Some(5), Some(1)),
            (
                "Gmt time,Open,High,Low,Close,Volume\n13.01.2018 22:00:00.000,1,1,1,1,9",
                YearLast,
                b',',
                1,
                Some(5),
                Some(1),
            ),
            ("1/31/2018 5:00 PM,1,1,1,1,9", YearLast, b',', 1, Some(5), None),
            ("1/31/2018,17:00,1,1,1,1,9", YearLast, b',', 2, Some(6), None),
            ("1517418000000,1,1,1,1,9,1517418059999", Epoch, b',', 1, Some(5), None),
            ("https://example.org\nunix,date,open,high,low,close\n1517418000,x,1,1,1,1", Epoch, b',', 2, None, Some(2)),
            ("time,open,high,low,close,Volume\n1517418000,1,1,1,1,9", Epoch, b',', 1, Some(5), Some(1)),
            ("close;volume;date;open;high;low\n1;7;20180102;1;1;1", HistData, b';', 3, Some(1), Some(1)),
        ];
        for (text, name, delimiter, open, volume, header_line) in cases {
            let format = detect(text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
            assert_eq!((format.name, format.delimiter, format.header_line), (name, delimiter, header_line), "{text}");
            assert_eq!((format.columns.open, format.columns.volume), (open, volume), "{text}");
        }
    }

    // Each number of a feature was an instrument.
    #[test]
    fn a_column_of_numbers_with_fractions_names_no_symbols() {
        for (values, expected) in [
            (["3", "2.5"], None),
            (["AAPL", "NAN"], Some(5)),
            (["10107.0", "10108.0"], Some(5)),
            (["inf", "7203"], Some(5)),
        ] {
            let [first, second] = values;
            let text =
                format!("date,open,high,low,close,stock\n2018-01-02,1,1,1,1,{first}\n2018-01-03,1,1,1,1,{second}\n");
            assert_eq!(detect(&text).unwrap().columns.symbol, expected, "{text}");
        }
    }

    #[test]
    fn what_fits_nothing_is_refused() {
        for text in ["", "{\nError Message\n}", "a,b,c,d,e", "2018-01-01,1,1,1", "1,2,3,4,5", "01/02/18,1,1,1,1"] {
            assert!(detect(text).unwrap_err().contains("timestamp and four prices"), "{text}");
        }
        for text in [
            "Date,Open,High,Low,Close\n2018-01-01,\"1,1789\",\"1,1790\",\"1,1788\",\"1,1789\"",
            "#\n2018-01-01 17:00;1,1789;1,179;1,1788;1,1789;5",
        ] {
            let reason = detect(text).unwrap_err();
            assert!(reason.contains("line 2 would be a row") && reason.contains("decimal commas"), "{reason}");
        }
        let partial = detect("Date,Last,Open,High,Low\n2018-01-01,1,1,1,1").unwrap_err();
        assert_eq!(partial, "the header in line 1 names some columns, but not `close`");
        let head = [(1, b"20180101 170000;1.2;1.3;1.1;1.2;0".to_vec())];
        assert!(RowFormat::detect(&head, Some(FormatName::HistData), None).is_ok());
        let iso = reason(RowFormat::detect(&head, Some(FormatName::Iso), None));
        assert!(iso.unwrap_err().contains("a timestamp of format iso and"));
    }

    proptest! {
        #[test]
        fn never_panics(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)) {
            let head: Vec<(u64, Vec<u8>)> = (1..).zip(lines).collect();
            let _ = RowFormat::detect(&head, None, None);
        }
    }
}
