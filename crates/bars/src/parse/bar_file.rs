//! One file of bars: its rows as read, before clock and timeframe are known.

use std::path::{Path, PathBuf};

use crate::error::column_fault::ColumnFault;
use crate::error::row_error::{RowError, RowFix};
use crate::error::{Error, Result};
use crate::parse::adjusted_column::AdjustedColumn;
use crate::parse::assumed_volume::AssumedVolume;
use crate::parse::column_order::ColumnOrder;
use crate::parse::date_order::order_of_dates;
use crate::parse::digits::Digits;
use crate::parse::fields::RowFields;
use crate::parse::format::{LaterLine, RowFormat};
use crate::parse::header::{NumberedLine, StackedHeader};
use crate::parse::ledger::RowLedger;
use crate::parse::lines::{TextLines, text_of_line};
use crate::parse::midnight_form::MidnightForm;
use crate::parse::open_close::OpenClose;
use crate::parse::options::{Prices, ReadOptions};
use crate::parse::own_columns::OwnColumns;
use crate::parse::own_zone::OwnZone;
use crate::parse::quiet::QuietTimes;
use crate::parse::row::{BarRow, RowFault};
use crate::parse::row_store::{RowShape, RowStore};
use crate::parse::symbol_column::{SymbolColumn, symbol_in, symbols_of_rows, wanted_rows};
use crate::parse::symbol_rows::{SplitFile, SymbolLines, SymbolRows};
use crate::place::ReadPlace;
use crate::time::timestamp::{DateStyle, RowTime, counted};
use crate::time::zone::Zone;

/// Rows of one file: every minute of 31 years. It bounds the memory that a small compressed file
/// can ask for.
const ROWS_MAX: usize = 1 << 24;
/// Fewest steps in time that show that rows are in no order.
const STEPS_MIN: usize = 20;

/// The rows of one file that can be read, in the order of the file, or backward where it is written
/// newest first.
pub(crate) struct BarFile {
    pub(crate) path: PathBuf,
    pub(crate) format: RowFormat,
    pub(crate) rows: RowStore,
    /// Rows in the file, without header, empty lines and what stands before the header.
    pub(crate) row_count: u64,
    /// Further rows that have empty fields in place of prices: their columns are of one of several
    /// symbols.
    pub(crate) empty_rows: u64,
    /// Lines before the header that are not empty.
    pub(crate) preamble: u64,
    pub(crate) newest_first: bool,
    pub(crate) digits: Digits,
    pub(crate) ledger: RowLedger,
    /// Flat rows without volume, and whether any row has volume.
    pub(crate) quiet_rows: u64,
    pub(crate) has_volume: bool,
    /// Rows with a volume, 0 or above, and rows that say that they have none.
    volume_rows: u64,
    no_volume_rows: u64,
    /// True once a row states an offset from UTC other than 0, and once one states UTC.
    states_offset: bool,
    states_utc: bool,
    /// Times that fillers of a closed market take, once they are dropped.
    pub(crate) quiet: QuietTimes,
    /// Warnings about the file, for people.
    pub(crate) warnings: Vec<String>,
    /// The zone that the file names, and where.
    pub(crate) own_zone: Option<OwnZone>,
    pub(crate) own_columns: OwnColumns,
    header: Vec<u8>,
    column_order: ColumnOrder,
    open_close: OpenClose,
    symbol_column: SymbolColumn,
    /// The symbol whose rows are read, where the others' are passed over.
    wanted_rows: Option<String>,
    /// True if the file has rows of several symbols; `None` while nobody had to know.
    has_several: Option<bool>,
    adjusted_column: Option<AdjustedColumn>,
    assumed_volume: Option<AssumedVolume>,
    /// True if the line that is added is the last of the file and has no end.
    is_without_end: bool,
    /// Fields of the last row that was a bar, or of the header.
    field_count: usize,
    /// How its rows write midnights.
    pub(crate) midnight_form: MidnightForm,
    /// Error of the first row that stops reading, unless the rows together show which column is
    /// wrong.
    stopped: Option<Error>,
}

impl BarFile {
    /// Reads a file, whose format is recognised or stated. The rows of one of several symbols are
    /// taken from `symbols` where it has them.
    pub(crate) fn read(
        path: &Path,
        options: &ReadOptions,
        symbols: &SymbolRows,
        place: &ReadPlace<'_>,
    ) -> Result<Self> {
        let FileText { head, format, mut rest, wanted_rows, has_several } =
            FileText::open(path, options, symbols, place)?;
        let mut source = BarFile {
            path: path.to_owned(),
            format,
            rows: RowStore::new(
                place.rows(),
                RowShape {
                    are_adjusted: format.columns.adjusted.is_some(),
                    columns: options.columns.clone(),
                    targets: options.targets(),
                    has_label_end: options.label_end_column.is_some(),
                },
            ),
            row_count: 0,
            empty_rows: 0,
            preamble: 0,
            newest_first: false,
            digits: Digits::default(),
            ledger: RowLedger::new(path.to_owned(), options.on_error),
            quiet_rows: 0,
            has_volume: false,
            volume_rows: 0,
            no_volume_rows: 0,
            states_offset: false,
            states_utc: false,
            quiet: QuietTimes::default(),
            warnings: Vec::new(),
            own_zone: None,
            own_columns: OwnColumns::without_header(options.own_columns()),
            header: Vec::new(),
            column_order: ColumnOrder::default(),
            open_close: OpenClose::default(),
            symbol_column: SymbolColumn::default(),
            wanted_rows,
            has_several,
            adjusted_column: AdjustedColumn::from_format(&format),
            assumed_volume: AssumedVolume::new(&format),
            is_without_end: false,
            field_count: 0,
            midnight_form: MidnightForm::default(),
            stopped: None,
        };
        for (place, (line, text)) in head.iter().enumerate() {
            source.is_without_end = place + 1 == head.len() && !rest.has_end();
            source.add(*line, text)?;
        }
        let mut text = Vec::new();
        while let Some(line) = rest.read_into(&mut text)? {
            source.is_without_end = !rest.has_end();
            source.add(line, &text)?;
        }
        let has_symbols = source.format.has_sure_symbols
            || source.symbol_column.has_several() && !symbols_of_rows(path, |_| false).is_empty();
        if has_symbols {
            source.symbol_column.check(path, &source.header, &source.format, options.symbol.as_deref())?;
        }
        if let Some(column) = source.adjusted_column {
            column.check(path, &source.format)?;
        }
        if let Some(column) = source.assumed_volume {
            column.check(path, &source.format)?;
        }
        source.column_order.check(path, &source.format)?;
        source.open_close.check(path, &source.format)?;
        source.warnings.extend(source.open_close.warning(path, &source.format));
        source.warnings.extend(source.other_name(options.symbol.as_deref()));
        if let Some(error) = source.stopped.take() {
            return Err(error);
        }
        if source.row_count == 0 && source.empty_rows > 0 {
            let rows = counted(source.empty_rows, "row", "rows");
            let path = path.display();
            source.warnings.push(format!("{path} has no bar of it: {rows} without prices (a failed download?)"));
        }
        source.settle_volumes()?;
        source.settle_offsets()?;
        source.denoise()?;
        source.put_oldest_first()?;
        source.rows.check()?;
        Ok(source)
    }

    /// A warning if the rows that are read name another symbol than the `stated` one.
    fn other_name(&self, stated: Option<&str>) -> Option<String> {
        let (found, stated) = self.wanted_rows.as_deref().zip(stated).filter(|(found, stated)| found != stated)?;
        Some(format!("{}: rows of {found} are taken for those of {stated}", self.path.display()))
    }

    /// Drops the further columns of the rows.
    pub(crate) fn forget_columns(&mut self) -> Result<()> {
        if self.rows.width() > 0 {
            self.rows = self.rows.without_columns()?;
            self.own_columns = OwnColumns::default();
        }
        Ok(())
    }

    fn add(&mut self, line: u64, text: &[u8]) -> Result<()> {
        match self.format.header_line {
            Some(header_line) if line + self.format.header_lines <= header_line => {
                self.preamble += u64::from(!text.is_empty());
            }
            Some(header_line) if line < header_line => {}
            Some(header_line) if line == header_line => {
                self.header = text.to_vec();
                self.field_count = RowFields::split(text, self.format.delimiter).len();
                self.own_zone = OwnZone::in_header(text, &self.format);
                self.own_columns = OwnColumns::in_header(text, &self.format, self.own_columns.wanted());
            }
            // Concatenated files repeat their header.
            Some(_) if text == self.header => {}
            _ if text.is_empty() => {}
            _ => return self.add_row(line, text),
        }
        Ok(())
    }

    fn add_row(&mut self, line: u64, text: &[u8]) -> Result<()> {
        if self.rows.len() == ROWS_MAX {
            return Err(Error::TooManyRows { path: self.path.clone(), rows_max: ROWS_MAX });
        }
        let fields = RowFields::split(text, self.format.delimiter);
        if self.format.is_of_others(&fields) {
            self.empty_rows += 1;
            return Ok(());
        }
        if SymbolColumn::is_of_others(self.wanted_rows.as_deref().map(str::as_bytes), &fields, &self.format) {
            return Ok(());
        }
        let row = BarRow::parse(&fields, &self.format, line)
            .and_then(|mut row| self.own_columns.read_into(&mut row, &fields, self.format.style).map(|()| row));
        let row = row.and_then(|row| OwnZone::take_row(&mut self.own_zone, &fields, &self.format).map(|()| row));
        let row = match row {
            Ok(_) if self.lacks_symbol(&fields) => Err(RowFault::without_symbol()),
            row => row,
        };
        let is_unreadable = row.as_ref().is_err_and(|fault| fault.kind == RowError::Unreadable);
        if is_unreadable && self.format.check_later_line(&self.path, line, text)? == LaterLine::Header {
            return Ok(());
        }
        self.row_count += 1;
        if row.is_ok() {
            self.symbol_column.add(&fields, &self.format, line);
        }
        if let Some(column) = &mut self.assumed_volume {
            column.add(&fields, &self.format, line);
        }
        let is_no_adjusted_close =
            self.adjusted_column.as_mut().is_some_and(|column| column.add(&fields, &self.format, line));
        let misfits = row.as_ref().is_ok_and(|row| self.column_order.add(row)) || is_no_adjusted_close;
        let row = row.and_then(|row| self.checked(row));
        let is_cut = row.is_err()
            && self.is_without_end
            && may_be_cut(&fields, self.field_count, &self.format, &self.own_columns, line);
        match row.map_err(|fault| if is_cut { fault.without_end_of_line() } else { fault }) {
            Ok(row) => {
                self.field_count = fields.len();
                self.midnight_form.add(&row, &fields, &self.format);
                self.digits.add(&fields, &self.format.columns);
                self.open_close.add(&row);
                self.volume_rows += u64::from(!row.volume.is_nan());
                self.no_volume_rows += u64::from(row.volume.is_nan());
                self.quiet_rows += u64::from(row.is_quiet());
                self.has_volume |= row.volume > 0.0;
                self.states_offset |= row.east_ns.is_some_and(|east_ns| east_ns != 0);
                self.states_utc |= row.stamp.is_utc() && row.east_ns.is_none();
                self.rows.push(&row)
            }
            // The other rows show if the columns are wrong rather than this row.
            Err(fault) => match self.ledger.refuse(line, fault, |_| text.to_vec()) {
                Err(error) if self.stopped.is_some() || misfits => {
                    self.stopped.get_or_insert(error);
                    Ok(())
                }
                counted => counted,
            },
        }
    }

    /// True for a row that names no symbol, among rows of several.
    fn lacks_symbol(&mut self, fields: &RowFields<'_>) -> bool {
        let BarFile { path, format, wanted_rows, has_several, .. } = self;
        wanted_rows.is_some()
            && symbol_in(fields, format).is_none()
            && *has_several.get_or_insert_with(|| !symbols_of_rows(path, |_| false).is_empty())
    }

    /// Takes rows that say that they have no volume as they are where no row has one, and refuses
    /// them otherwise.
    fn settle_volumes(&mut self) -> Result<()> {
        if self.no_volume_rows == 0 {
            return Ok(());
        }
        if self.volume_rows == 0 {
            self.warnings.push(format!(
                "{} has no volume: its column of volumes has nothing but -1, NaN, dashes or empty fields",
                self.path.display()
            ));
            self.quiet_rows = 0;
            let quiet_rows = &mut self.quiet_rows;
            return self.rows.update(|row| {
                row.volume = 0.0;
                *quiet_rows += u64::from(row.is_quiet());
            });
        }
        let mut refused = Vec::new();
        for (index, row) in self.rows.iter().enumerate().filter(|(_, row)| row.volume.is_nan()) {
            let fault = row.check().expect_err("NaN is no volume");
            self.ledger.refuse(row.line, fault, |path| text_of_line(path, row.line))?;
            refused.push(index..index + 1);
        }
        self.rows = self.rows.without(&refused)?;
        Ok(())
    }

    /// Takes +00:00 for London's clock in winter where other rows state its offset of summer, and
    /// all rows the one that it has at their times.
    fn settle_offsets(&mut self) -> Result<()> {
        if !(self.states_offset && self.states_utc) {
            return Ok(());
        }
        let london: Zone = "Europe/London".parse().expect("the zone is known");
        let is_of_london = |row: BarRow| match row.stamp {
            RowTime::Utc(ns) => london.wall_ns(ns) - ns == row.east_ns.unwrap_or_default(),
            RowTime::Wall(_) => true,
        };
        if !self.rows.iter().all(is_of_london) {
            return Ok(());
        }
        self.rows.update(|row| row.east_ns = row.east_ns.or(row.stamp.is_utc().then_some(0)))
    }

    fn checked(&mut self, row: BarRow) -> Result<BarRow, RowFault> {
        if let Some(with_zero) = row.without_volume() {
            // The row waits with a volume of NaN until the others show if the file has volumes.
            return self.checked(with_zero).map(|fixed| BarRow { volume: f64::NAN, ..fixed });
        }
        let Err(fault) = row.check() else { return Ok(row) };
        let Some((row, fix)) = row.fixed().filter(|_| self.ledger.repairs()) else { return Err(fault) };
        self.ledger.fix(row.line, fix);
        Ok(row)
    }

    /// Rounds the noise off the prices, where repairs are wanted. Adjusted prices have no digits to
    /// round to.
    fn denoise(&mut self) -> Result<()> {
        let BarFile { rows, ledger, digits, format, .. } = self;
        if !ledger.repairs() || !digits.are_noisy() || format.columns.adjusted.is_some() {
            return Ok(());
        }
        rows.update(|row| {
            if digits.denoise(row) {
                ledger.fix(row.line, RowFix::Rounded);
            }
        })
    }

    /// Some vendors write the newest bar first; that is an order and not an error. A few rows out
    /// of it do not hide it. Rows of which more than two in five leave either order have none.
    fn put_oldest_first(&mut self) -> Result<()> {
        let (mut forward, mut backward, mut last) = (0_usize, 0_usize, None);
        for stamp in self.rows.stamps().map(RowTime::ns) {
            if let Some(last) = last.replace(stamp) {
                forward += usize::from(stamp > last);
                backward += usize::from(stamp < last);
            }
        }
        let steps = forward + backward;
        if steps >= STEPS_MIN && 5 * forward.min(backward) > 2 * steps {
            return Err(Error::Unsorted { path: self.path.clone(), backward, steps, column: self.time_column() });
        }
        self.newest_first = backward > forward;
        if self.newest_first {
            self.rows.reverse();
        }
        Ok(())
    }

    /// Names of the columns of times, or their places where they have none.
    fn time_column(&self) -> String {
        let names = RowFields::split(&self.header, self.format.delimiter);
        let name = |column: usize| match names.get(column).filter(|name| !name.is_empty()) {
            Some(name) => format!("`{}`", String::from_utf8_lossy(name)),
            None => format!("field {}", column + 1),
        };
        let columns = [Some(self.format.columns.time), self.format.columns.clock];
        columns.into_iter().flatten().map(name).collect::<Vec<_>>().join(" and ")
    }
}

/// The symbols whose columns stand beside each other in a file, if there are several. None for a
/// file that cannot be read: reading its bars gives the error.
pub(crate) fn symbols_of_columns(path: &Path) -> Vec<String> {
    let head = TextLines::open(path).and_then(|mut lines| lines.read_head()).unwrap_or_default();
    StackedHeader::in_any(&head).map(|header| header.symbols).filter(|symbols| symbols.len() > 1).unwrap_or_default()
}

/// The text of a file, and how to read it.
struct FileText<'a> {
    /// The first lines.
    head: Vec<NumberedLine>,
    format: RowFormat,
    rest: RestOfLines<'a>,
    /// The symbol whose rows are read, where the others' are passed over.
    wanted_rows: Option<String>,
    /// True if the rows are of several symbols; `None` where that is not known.
    has_several: Option<bool>,
}

/// The lines after the first ones.
enum RestOfLines<'a> {
    /// All lines.
    All(TextLines<'a>),
    /// Lines that may be rows of one symbol.
    Symbol(Box<SymbolLines<'a>>),
}

impl<'a> FileText<'a> {
    /// Opens a file, or the rows of a symbol in `symbols` if the format is that by which they were
    /// sorted.
    fn open(path: &Path, options: &ReadOptions, symbols: &'a SymbolRows, place: &ReadPlace<'a>) -> Result<Self> {
        let symbol = options.symbol.as_deref();
        if let (Some(symbol), Some(split)) = (symbol, symbols.file(path))
            && split.has(symbol)
            && detect(path, &split.head, options)? == split.format
        {
            let head = split.head.clone();
            let format = settled(path, split.format, options, Some(split))?;
            let rest = RestOfLines::Symbol(Box::new(split.lines(symbol, place.observe)?));
            let wanted_rows = Some(symbol.to_owned());
            return Ok(FileText { head, format, rest, wanted_rows, has_several: Some(true) });
        }
        let mut lines = TextLines::observed(path, place.observe)?;
        let head = lines.read_head()?;
        let format = settled(path, detect(path, &head, options)?, options, None)?;
        let wanted_rows = wanted_rows(path, &format, &head, symbol);
        Ok(FileText { head, format, rest: RestOfLines::All(lines), wanted_rows, has_several: None })
    }
}

impl RestOfLines<'_> {
    /// Puts the next line into `text`, and gives its number in the file; `None` after the last.
    fn read_into(&mut self, text: &mut Vec<u8>) -> Result<Option<u64>> {
        match self {
            RestOfLines::All(lines) => lines.read_into(text),
            RestOfLines::Symbol(lines) => lines.read_into(text),
        }
    }

    /// False if the last line that was read ends with the file, without an end of its own.
    fn has_end(&self) -> bool {
        match self {
            RestOfLines::All(lines) => lines.has_end(),
            RestOfLines::Symbol(_) => true,
        }
    }
}

fn detect(path: &Path, head: &[NumberedLine], options: &ReadOptions) -> Result<RowFormat> {
    RowFormat::detect(head, options.format, options.symbol.as_deref())
        .map(|format| format.for_columns(head, |name| options.wants(name)))
        .map_err(|unrecognised| unrecognised.into_error(path, head))
}

/// The format with the order of its dates and the prices that are read.
fn settled(path: &Path, mut format: RowFormat, options: &ReadOptions, split: Option<&SplitFile>) -> Result<RowFormat> {
    if format.has_year_last() {
        let order = match (options.date_order, split) {
            (Some(order), _) => order,
            (None, Some(split)) => split.dates.order(path)?,
            (None, None) => order_of_dates(path, &format)?,
        };
        format.style = DateStyle::YearLast(order);
    }
    choose_prices(path, &mut format, options.prices)?;
    Ok(format)
}

/// True if a faulty row has fewer fields than the `field_count` of the one before or of the header,
/// or would be a bar with another last field.
pub(crate) fn may_be_cut(
    fields: &RowFields<'_>,
    field_count: usize,
    format: &RowFormat,
    own_columns: &OwnColumns,
    line: u64,
) -> bool {
    if fields.len() < field_count {
        return true;
    }
    let whole = fields.ending_as(format.columns.open);
    let row = BarRow::parse(&whole, format, line).and_then(|mut row| {
        own_columns.read_into(&mut row, &whole, format.style)?;
        row.without_volume().unwrap_or(row).check()
    });
    row.is_ok()
}

/// Drops the column of adjusted closes if prices are read as quoted.
pub(crate) fn choose_prices(path: &Path, format: &mut RowFormat, prices: Prices) -> Result<()> {
    match prices {
        Prices::AsQuoted => format.columns.adjusted = None,
        Prices::Adjusted if format.columns.adjusted.is_none() => {
            return Err(Error::columns(path, ColumnFault::NoAdjustedClose));
        }
        Prices::AdjustedIfGiven | Prices::Adjusted => {}
    }
    Ok(())
}
