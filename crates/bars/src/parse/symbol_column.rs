//! A column of symbols, by which a file has rows of one symbol or of several.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::error::column_fault::ColumnFault;
use crate::error::{Error, Result};
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::header::{NumberedLine, has_role};
use crate::parse::lines::TextLines;
use crate::parse::symbol::{is_name_of, nearest_first, pair_without_ending};
use crate::time::timestamp::RowTime;

/// Most symbols that a message lists.
const SYMBOLS_MAX: usize = 64;
/// Most symbols of a file. A column with more is none of symbols.
pub(crate) const SPLIT_MAX: usize = 1 << 16;
/// Times of a file that are kept to find rows of one time: some 40 MB.
const TIMES_MAX: usize = 1 << 20;

/// The symbols whose rows a file has, in the order of their first rows, if there are several. None
/// for a file that cannot be read: reading its bars gives the error; or whose column of symbols has
/// a name that is wanted for its numbers.
pub(crate) fn symbols_of_rows(path: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<String> {
    named_symbols(path, is_wanted).map(|(symbols, format)| symbols.several(&format)).unwrap_or_default()
}

/// The symbols whose rows a file has, as [`symbols_of_rows`] gives them, and also one alone in a
/// column that surely has symbols.
pub(crate) fn symbols_in_rows(path: &Path) -> Vec<String> {
    named_symbols(path, |_| false).map(|(symbols, format)| symbols.all(&format)).unwrap_or_default()
}

/// The texts in the column of symbols of a file, and its format; `None` where it has no such column
/// or cannot be read.
fn named_symbols(path: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Option<(FileSymbols, RowFormat)> {
    let mut lines = TextLines::open(path).ok()?;
    let head = lines.read_head().ok()?;
    let format = RowFormat::detect(&head, None, None).ok()?.for_columns(&head, is_wanted);
    format.columns.symbol?;
    let mut symbols = FileSymbols::default();
    let mut add = |text: &[u8]| symbols.add(&RowFields::split(text, format.delimiter), &format);
    head.iter().filter(|(line, _)| Some(*line) > format.header_line).for_each(|(_, text)| add(text));
    let mut text = Vec::new();
    while lines.read_into(&mut text).ok()?.is_some() {
        add(&text);
    }
    Some((symbols, format))
}

/// Symbols that the rows of a file name.
#[derive(Default)]
pub(crate) struct FileSymbols {
    /// Places in `names`.
    known: HashMap<Vec<u8>, usize>,
    /// The symbols in the order of their first rows.
    names: Vec<String>,
    /// The symbol of the last row, and its place.
    last: Vec<u8>,
    last_place: usize,
    shared_times: SharedTimes,
}

impl FileSymbols {
    /// Takes a row into account.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, format: &RowFormat) {
        let Some(found) = symbol_in(fields, format) else { return };
        // Neighbouring rows are often of one symbol.
        if found != self.last {
            // A header that is repeated, or a line of words, names no symbol.
            let close = format.columns.close;
            let is_row = fields.number(close).is_some() || fields.get(close).is_some_and(<[u8]>::is_empty);
            if !is_row || self.known.len() > SPLIT_MAX {
                return;
            }
            self.last = found.to_vec();
            self.last_place = *self.known.entry(self.last.clone()).or_insert(self.names.len());
            if self.last_place == self.names.len() {
                self.names.push(String::from_utf8_lossy(found).into_owned());
            }
        }
        if !format.has_sure_symbols {
            self.shared_times.add(self.last_place, fields, format);
        }
    }

    /// The symbols, if there are several and the column is one of symbols; else none.
    pub(crate) fn several(self, format: &RowFormat) -> Vec<String> {
        let are_symbols = format.has_sure_symbols || self.shared_times.is_found;
        let is_split = are_symbols && (2..=SPLIT_MAX).contains(&self.names.len());
        if is_split { self.names } else { Vec::new() }
    }

    /// The symbols, also one alone if the column surely is one of symbols.
    fn all(self, format: &RowFormat) -> Vec<String> {
        match format.has_sure_symbols && self.names.len() == 1 {
            true => self.names,
            false => self.several(format),
        }
    }
}

/// Search for two rows of one time with different texts in a column: they are bars of two
/// instruments, while a company that was renamed has one row of each time.
#[derive(Debug, Default)]
pub(crate) struct SharedTimes {
    /// Place of the text of the first row of each time; empty once two rows were found.
    places: HashMap<i64, usize>,
    /// True once two such rows were added.
    pub(crate) is_found: bool,
}

impl SharedTimes {
    /// Takes a row into account, whose text is the `place`-th of the column.
    pub(crate) fn add(&mut self, place: usize, fields: &RowFields<'_>, format: &RowFormat) {
        if self.is_found {
            return;
        }
        let Some(time) = fields.stamp(&format.columns, format.style).map(RowTime::ns) else { return };
        match self.places.get(&time).copied() {
            Some(known) if known != place => {
                self.places = HashMap::new();
                self.is_found = true;
            }
            None if self.places.len() < TIMES_MAX => {
                self.places.insert(time, place);
            }
            _ => {}
        }
    }
}

/// The symbol whose rows are read of a file that may have rows of several: `symbol`, if it is one
/// of those, else the only one that is the same in upper or lower case, else the only one that is
/// this currency pair with the ending of a broker. `None` where all rows are read: they are of one
/// symbol, whatever name it has there, or [`SymbolColumn::check`] refuses them.
pub(crate) fn wanted_rows(
    path: &Path,
    format: &RowFormat,
    head: &[NumberedLine],
    symbol: Option<&str>,
) -> Option<String> {
    let symbol = symbol.filter(|_| format.columns.symbol.is_some())?;
    let mut rows = head.iter().filter(|(line, _)| Some(*line) > format.header_line);
    let first = rows.find_map(|(_, text)| symbol_in(&RowFields::split(text, format.delimiter), format));
    if format.has_sure_symbols && first == Some(symbol.as_bytes()) {
        return Some(symbol.to_owned());
    }
    wanted_symbol(&symbols_of_rows(path, |_| false), symbol).map(str::to_owned)
}

/// The one of the `symbols` of a file whose rows are read for `symbol`: itself, else the only one
/// that is the same in upper or lower case, else the only one that is this currency pair with the
/// ending of a broker.
pub fn wanted_symbol<'s>(symbols: &'s [String], symbol: &str) -> Option<&'s str> {
    let only = |is_form: &dyn Fn(&str) -> bool| {
        let mut forms = symbols.iter().map(String::as_str).filter(|own| is_form(own));
        let only = forms.next()?;
        forms.next().is_none().then_some(only)
    };
    only(&|own| own == symbol)
        .or_else(|| only(&|own| own.eq_ignore_ascii_case(symbol)))
        .or_else(|| only(&|own| pair_without_ending(own).as_deref() == Some(symbol)))
}

/// The symbol that a row names.
pub(crate) fn symbol_in<'a>(fields: &RowFields<'a>, format: &RowFormat) -> Option<&'a [u8]> {
    fields.get(format.columns.symbol?).filter(|symbol| !symbol.is_empty())
}

/// A column without a known name that may be one of symbols.
#[derive(Debug)]
pub(crate) struct LikelySymbols {
    /// Its place.
    column: usize,
    /// Its name in the header.
    pub(crate) name: String,
    /// The texts in it, in the order of their first rows.
    pub(crate) texts: Vec<String>,
    known: HashSet<Vec<u8>>,
    rows: usize,
}

/// Most texts of a column that may be one of symbols.
const LIKELY_MAX: usize = 1 << 10;

impl LikelySymbols {
    /// The first column of the file at `path` whose texts are several and come again.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        let mut lines = TextLines::open(path).ok()?;
        let head = lines.read_head().ok()?;
        let format = RowFormat::detect(&head, None, None).ok()?;
        if !format.is_named || format.header_lines > 1 || format.columns.symbol.is_some() {
            return None;
        }
        let (_, header) = head.iter().find(|(line, _)| Some(*line) == format.header_line)?;
        let names = RowFields::split(header, format.delimiter);
        let columns = names.iter().enumerate().filter(|(_, name)| !name.is_empty() && !has_role(name));
        let mut columns: Vec<LikelySymbols> = columns
            .map(|(column, name)| {
                let name = String::from_utf8_lossy(name).into_owned();
                LikelySymbols { column, name, texts: Vec::new(), known: HashSet::new(), rows: 0 }
            })
            .collect();
        let add = |columns: &mut Vec<LikelySymbols>, text: &[u8]| {
            let fields = RowFields::split(text, format.delimiter);
            if fields.number(format.columns.close).is_some() {
                columns.retain_mut(|column| column.add(&fields));
            }
        };
        let rows = head.iter().filter(|(line, _)| Some(*line) > format.header_line);
        rows.for_each(|(_, text)| add(&mut columns, text));
        let mut text = Vec::new();
        // Of most files no column is left after the first rows.
        while !columns.is_empty() && lines.read_into(&mut text).ok()?.is_some() {
            add(&mut columns, &text);
        }
        columns.into_iter().find(|column| column.texts.len() > 1 && column.rows >= 2 * column.texts.len())
    }

    /// Takes a row into account; false if its field is no symbol.
    fn add(&mut self, fields: &RowFields<'_>) -> bool {
        let Some(text) = fields.get(self.column).filter(|text| !text.is_empty()) else { return true };
        self.rows += 1;
        if !self.known.contains(text) {
            self.known.insert(text.to_vec());
            self.texts.push(String::from_utf8_lossy(text).into_owned());
        }
        fields.number(self.column).is_none() && self.texts.len() <= LIKELY_MAX
    }
}

/// Symbols that the rows of a file name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolColumn {
    symbols: Vec<String>,
    /// Line number, from 1, of the first row of a second symbol.
    second_line: u64,
}

impl SymbolColumn {
    /// True for a row of another symbol than `wanted`. One that names none is everybody's: where
    /// there are several symbols it is unreadable for each.
    pub(crate) fn is_of_others(wanted: Option<&[u8]>, fields: &RowFields<'_>, format: &RowFormat) -> bool {
        wanted.zip(symbol_in(fields, format)).is_some_and(|(wanted, found)| found != wanted)
    }

    /// True once rows with different texts were added.
    pub(crate) fn has_several(&self) -> bool {
        self.symbols.len() > 1
    }

    /// True once a row of `symbol` was added.
    pub(crate) fn has(&self, symbol: &str) -> bool {
        self.symbols.iter().any(|known| known == symbol)
    }

    /// True once a row of another instrument than `symbol` was added.
    pub(crate) fn has_other_than(&self, symbol: &str) -> bool {
        self.symbols.iter().any(|known| !is_name_of(symbol, known))
    }

    /// Takes a row into account.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, format: &RowFormat, line: u64) {
        let Some(symbol) = symbol_in(fields, format) else { return };
        let is_known = self.symbols.iter().any(|known| known.as_bytes() == symbol);
        if is_known || self.symbols.len() == SYMBOLS_MAX {
            return;
        }
        self.symbols.push(String::from_utf8_lossy(symbol).into_owned());
        if self.symbols.len() == 2 {
            self.second_line = line;
        }
    }

    /// Place of a row's symbol among those that were added.
    pub(crate) fn place(&self, fields: &RowFields<'_>, format: &RowFormat) -> Option<usize> {
        let symbol = symbol_in(fields, format)?;
        self.symbols.iter().position(|known| known.as_bytes() == symbol)
    }

    /// Refuses rows of several symbols, of which none is `wanted`.
    pub(crate) fn check(&self, path: &Path, header: &[u8], format: &RowFormat, wanted: Option<&str>) -> Result<()> {
        if !self.has_several() {
            return Ok(());
        }
        let names = RowFields::split(header, format.delimiter);
        let name = format.columns.symbol.and_then(|column| names.get(column)).unwrap_or(b"symbol");
        let column = String::from_utf8_lossy(name).into_owned();
        let all =
            wanted.map(|symbol| (symbol, symbols_of_rows(path, |_| false))).filter(|(_, symbols)| !symbols.is_empty());
        if let Some((symbol, symbols)) = all {
            let (symbol, symbols) = (symbol.to_owned(), nearest_first(symbol, symbols));
            return Err(Error::columns(path, ColumnFault::NoSuchSymbol { symbol, column: Some(column), symbols }));
        }
        let fault = ColumnFault::SymbolRows { line: self.second_line, column, symbols: self.symbols.clone() };
        Err(Error::columns(path, fault))
    }
}
