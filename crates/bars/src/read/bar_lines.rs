use std::path::{Path, PathBuf};

use crate::bars::Bar;
use crate::clean::fillers::{FillerFinder, KnownRun};
use crate::clean::midnights::{Midnights, remark};
use crate::clean::spacing::Spacings;
use crate::error::message::shortened;
use crate::error::row_error::{OnError, RowError, RowFix};
use crate::error::{Error, Result};
use crate::parse::adjusted_column::AdjustedColumn;
use crate::parse::adjustment::Adjustments;
use crate::parse::assumed_volume::AssumedVolume;
use crate::parse::bar_file::{choose_prices, may_be_cut};
use crate::parse::fields::RowFields;
use crate::parse::format::{LaterLine, RowFormat, Unrecognised, is_header_alone};
use crate::parse::ledger::RowLedger;
use crate::parse::midnight_form::MidnightForm;
use crate::parse::open_close::OpenClose;
use crate::parse::options::{ReadOptions, Repeats};
use crate::parse::own_columns::OwnColumns;
use crate::parse::row::{BarRow, RowFault};
use crate::parse::symbol::is_name_of;
use crate::parse::symbol_column::{SharedTimes, SymbolColumn, symbol_in, symbols_of_rows};
use crate::read::bar_doubts::{BarDoubts, KnownBars};
use crate::read::by_timeframe::date_taken_for_midnight;
use crate::read::line_clock::LineClock;
use crate::read::summary::ReadSummary;
use crate::time::date_order::split_named_month;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, DateStyle, RowTime, display_duration, display_utc};

/// Most lines without a recognised format before an error.
const HEAD_LINES_MAX: usize = 8;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bars from lines of text as they arrive.
///
/// Lines are read as [`read()`](crate::read()) reads those of a file, except that later rows are
/// not known when a row becomes a bar. So the bars' timeframe must be stated, and so must the zone
/// of timestamps without offset and the order of day and month. Of rows out of order or of one time
/// the first stays; noise of binary fractions is not rounded off, and an outlying time is taken for
/// a hole. Spreads must be in units of the price.
#[derive(Debug)]
pub struct BarLines {
    name: PathBuf,
    /// File of the lines, if they are of one.
    file: Option<PathBuf>,
    options: ReadOptions,
    base: Timeframe,
    format: Option<RowFormat>,
    adjusted_column: Option<AdjustedColumn>,
    assumed_volume: Option<AssumedVolume>,
    /// Distances of neighbouring bars, which show if open and close are exchanged.
    open_close: OpenClose,
    symbol_column: SymbolColumn,
    /// Rows that show if a column such as `company` has symbols.
    shared_times: SharedTimes,
    clock: LineClock,
    own_columns: OwnColumns,
    /// True once all further columns had a value.
    have_values: bool,
    /// True once a row had a volume.
    has_volume: bool,
    /// True if a bar that was known before had a volume.
    had_volume: bool,
    /// True if rows without a volume are refused.
    needs_volume: bool,
    fillers: FillerFinder,
    /// The end of the bars that were known before, until the first row.
    known_run: Option<KnownRun>,
    /// Fillers behind it, which are no bars.
    known_fillers: i64,
    header: Vec<u8>,
    /// Lines that came before the format was known.
    head: Vec<(u64, Vec<u8>)>,
    /// Lines so far.
    count: u64,
    /// Bars up to this open time are known already.
    known_until: Option<i64>,
    /// Rows of bars that were known already.
    passed_over: u64,
    /// Midnights of the rows of days that were known before.
    known_midnights: Option<Midnights>,
    /// Description of the adjusted close that rows behind the known bars must have.
    expected_adjusted: Option<String>,
    /// Times of the rows of days so far; their midnights in the place of times of day.
    day_stamps: Vec<RowTime>,
    doubts: BarDoubts,
    warnings: Vec<String>,
    /// Open time of the last row's bar, known before or not.
    reached: Option<i64>,
    /// Distances of the rows so far; `None` once two were as far apart as bars of `base`.
    spacings: Option<Spacings>,
    /// The last bar's open time and row.
    last: Option<(i64, BarRow)>,
    /// Number of the line that is the last one and has no end.
    unfinished_line: Option<u64>,
    /// Fields of the last row, or of the header.
    field_count: usize,
    /// How the rows write midnights.
    midnight_form: MidnightForm,
    /// Bars of dates alone, which wait for a row with a time of day, and their lines.
    waiting: Vec<(u64, Bar)>,
    ledger: RowLedger,
    complaints: Vec<String>,
    notes: Vec<String>,
    /// True once a note has told of a row that was put at the midnight of its day.
    has_told_of_midnights: bool,
    has_passed_symbol: bool,
    has_told_symbol: bool,
}

impl BarLines {
    /// A reader of bars of `base`, which messages call `name`. Bars that open at `known_until`
    /// or before are skipped.
    pub fn new(name: &Path, options: &ReadOptions, base: Timeframe, known_until: Option<i64>) -> Self {
        BarLines {
            name: name.to_owned(),
            file: None,
            options: options.clone(),
            base,
            format: None,
            adjusted_column: None,
            assumed_volume: None,
            open_close: OpenClose::default(),
            symbol_column: SymbolColumn::default(),
            shared_times: SharedTimes::default(),
            clock: LineClock::new(name, options, base, known_until),
            own_columns: OwnColumns::default(),
            have_values: false,
            has_volume: false,
            had_volume: false,
            needs_volume: false,
            fillers: FillerFinder::new(base),
            known_run: None,
            known_fillers: 0,
            header: Vec::new(),
            head: Vec::new(),
            count: 0,
            known_until,
            passed_over: 0,
            known_midnights: None,
            expected_adjusted: None,
            day_stamps: Vec::new(),
            doubts: BarDoubts::new(base, options.symbol.as_deref()),
            warnings: Vec::new(),
            reached: None,
            spacings: Some(Spacings::default()),
            last: None,
            unfinished_line: None,
            field_count: 0,
            midnight_form: MidnightForm::default(),
            waiting: Vec::new(),
            ledger: RowLedger::new(name.to_owned(), options.on_error),
            complaints: Vec::new(),
            notes: Vec::new(),
            has_told_of_midnights: false,
            has_passed_symbol: false,
            has_told_symbol: false,
        }
    }

    /// The reader, which warns of the first row that is another bar than the `known` one of its
    /// time, and of days without bars, where the `known` ones have no such pause.
    #[must_use]
    pub fn comparing_with(self, known: KnownBars) -> Self {
        // A row has shown already what it goes on with.
        let known_run = known.quiet_run(self.base).filter(|_| self.reached.is_none());
        BarLines { known_run, doubts: self.doubts.comparing_with(known), ..self }
    }

    /// The reader of the bars that follow those of `summary`. A row of days that carries a time of
    /// day is that of its date where nearly all rows of theirs were midnights, or closes of their
    /// days. Fillers with which they end go on. Behind adjusted prices, quoted ones are refused.
    #[must_use]
    pub fn following(self, summary: &ReadSummary) -> Self {
        let had_volume = self.had_volume || summary.bars.without_volume < summary.bars.all;
        let (known_midnights, known_fillers) = (summary.midnights.clone(), summary.last_fillers);
        let adjusted = summary.files.last().and_then(|file| file.adjusted.as_ref());
        let expected_adjusted = adjusted.and_then(Adjustments::expected_behind);
        let clock = self.clock.following_early(summary.early_ns);
        BarLines { clock, known_midnights, expected_adjusted, known_fillers, had_volume, ..self }
    }

    /// The reader of bars that follow others with a volume. Flat ones without a volume fill time at
    /// which the market is closed after an hour.
    #[must_use]
    pub fn following_volumes(self) -> Self {
        BarLines { had_volume: true, ..self }
    }

    /// The reader of the lines of `file`, whose rows show if a column such as `company` names
    /// several instruments.
    #[must_use]
    pub fn in_file(self, file: &Path) -> Self {
        BarLines { file: Some(file.to_owned()), ..self }
    }

    /// The reader, which refuses rows without a volume: features are computed from it.
    #[must_use]
    pub fn requiring_volume(self) -> Self {
        BarLines { needs_volume: true, ..self }
    }

    /// Takes the next line, with or without its end. Returns its bars in order of time: none for a
    /// line that is no row, else one, or several if the line reveals the format of those before it,
    /// or that a date alone before it is a midnight.
    ///
    /// # Errors
    /// [`Error::BadRow`] under [`OnError::Fail`]; [`Error::UnknownFormat`] once enough lines came;
    /// [`Error::UnknownDateOrder`], [`Error::Columns`]; [`Error::OtherTimeframe`] where the rows
    /// are evidently of another one, and [`Error::LongerBars`]; [`Error::Invalid`] where a
    /// timestamp needs a zone and none was stated.
    pub fn push(&mut self, line: &[u8]) -> Result<Vec<Bar>> {
        self.count += 1;
        // Files that were joined have the mark of each.
        let text = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii_end();
        if let Some(format) = self.format {
            return self.rows(&format, self.count, text);
        }
        self.head.push((self.count, text.to_vec()));
        match self.detect() {
            Ok(format) => self.begin(format),
            Err(reason) if self.head.len() >= HEAD_LINES_MAX => Err(reason.into_error(&self.name, &self.head)),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Takes the last line, which has no end, as in a file that is still being written. A fault of
    /// it that may be that of a part of a row is [`RowError::Unfinished`].
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_without_end(&mut self, line: &[u8]) -> Result<Vec<Bar>> {
        self.unfinished_line = Some(self.count + 1);
        self.push(line)
    }

    /// Fails if lines came and none of them revealed their format, or the times of all are dates
    /// alone.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`]; [`Error::BadRow`] for a header and a part of a row;
    /// [`Error::LongerBars`].
    pub fn finish(&self) -> Result<()> {
        if let Some((line, _)) = self.waiting.first().filter(|_| !self.midnight_form.has_times_of_day) {
            return Err(Error::dates_alone(&self.name, *line, self.base));
        }
        match self.detect() {
            Err(reason) if self.format.is_none() && self.head.iter().any(|(_, text)| !text.is_empty()) => {
                Err(self.unfinished_first_row().unwrap_or_else(|| reason.into_error(&self.name, &self.head)))
            }
            _ => Ok(()),
        }
    }

    /// The error of a last line without an end that follows a header alone and is no row.
    fn unfinished_first_row(&self) -> Option<Error> {
        let ((line, text), before) = self.head.split_last()?;
        let is_cut = self.unfinished_line == Some(*line) && !text.is_empty() && is_header_alone(before);
        is_cut.then(|| {
            let fault = RowFault::unreadable("a row with the columns of the header".to_owned());
            let RowFault { kind, expected } = fault.without_end_of_line();
            Error::BadRow { path: self.name.clone(), line: *line, kind, expected, text: shortened(text) }
        })
    }

    /// Faults of the rows dropped since the last call, a sentence each.
    pub fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Remarks on rows since the last call that are no faults, a sentence each.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Doubts about the bars since the last call, a sentence each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The last of the bars known before, where a row since the last call has more of it: it was
    /// unfinished.
    pub fn take_finished_bar(&mut self) -> Option<Bar> {
        self.doubts.take_finished_bar()
    }

    /// True if `bar`, from [`take_finished_bar`](Self::take_finished_bar), has the prices that were
    /// known: its volume alone is more.
    pub fn has_known_prices(&self, bar: &Bar) -> bool {
        self.doubts.has_known_prices(bar)
    }

    /// Rows of bars that were known before.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    fn detect(&self) -> Result<RowFormat, Unrecognised> {
        RowFormat::detect(&self.head, self.options.format, self.options.symbol.as_deref())
    }

    /// Reads what came before the format was known.
    fn begin(&mut self, mut format: RowFormat) -> Result<Vec<Bar>> {
        let names_a_month = |(_, text): &(u64, Vec<u8>)| {
            let fields = RowFields::split(text, format.delimiter);
            fields.get(format.columns.time).and_then(split_named_month).is_some()
        };
        if format.has_year_last() && !self.head.iter().any(names_a_month) {
            let found = "a stream of bars does not show which";
            let example = self.head.last().map_or_else(String::new, |(_, text)| shortened(text));
            let unknown = Error::UnknownDateOrder { path: self.name.clone(), example, found };
            format.style = DateStyle::YearLast(self.options.date_order.ok_or(unknown)?);
        }
        format = format.for_columns(&self.head, |name| self.options.wants(name));
        if format.columns.symbol.is_some() && !format.has_sure_symbols {
            let symbols = self.file.as_deref().map(|file| symbols_of_rows(file, |name| self.options.wants(name)));
            format.has_sure_symbols = symbols.is_some_and(|symbols| !symbols.is_empty());
        }
        choose_prices(&self.name, &mut format, self.options.prices)?;
        self.adjusted_column = AdjustedColumn::from_format(&format);
        self.assumed_volume = AssumedVolume::new(&format);
        self.format = Some(format);
        if format.header_line.is_none() {
            OwnColumns::without_header(self.options.own_columns()).check(&self.name)?;
        }
        let mut bars = Vec::new();
        for (line, text) in std::mem::take(&mut self.head) {
            match format.header_line {
                Some(header_line) if line < header_line => {}
                Some(header_line) if line == header_line => {
                    self.field_count = RowFields::split(&text, format.delimiter).len();
                    self.notes.extend(self.clock.take_header(&text, &format));
                    self.own_columns = OwnColumns::in_header(&text, &format, self.options.own_columns());
                    self.own_columns.check(&self.name)?;
                    self.header = text;
                }
                _ => bars.extend(self.rows(&format, line, &text)?),
            }
        }
        Ok(bars)
    }

    /// The bars of one line. Among bars that are shorter than a day, that of a date alone waits for
    /// a row with a time of day, unless it is the next one behind those that were known before.
    fn rows(&mut self, format: &RowFormat, line: u64, text: &[u8]) -> Result<Vec<Bar>> {
        let dates = self.midnight_form.dates;
        let bar = self.row(format, line, text)?;
        let is_first_date = dates == 0 && self.midnight_form.dates == 1;
        if self.base < Timeframe::D1 && is_first_date && bar.is_some() {
            self.warn(Some(date_taken_for_midnight(line, self.base)));
        }
        let next = self.known_until.map(|known_until| known_until + self.base.duration_ns());
        let goes_on = |bar: &Bar| next.is_some_and(|next| bar.open_time <= next);
        if self.midnight_form.has_times_of_day || self.base >= Timeframe::D1 || bar.as_ref().is_some_and(goes_on) {
            let waiting = std::mem::take(&mut self.waiting);
            return Ok(waiting.into_iter().map(|(_, bar)| bar).chain(bar).collect());
        }
        self.waiting.extend(bar.map(|bar| (line, bar)));
        Ok(Vec::new())
    }

    /// The bar of one line; `None` if it has none or it was known before.
    fn row(&mut self, format: &RowFormat, line: u64, text: &[u8]) -> Result<Option<Bar>> {
        if text.is_empty() || (format.header_line.is_some() && text == self.header) {
            return Ok(None);
        }
        let fields = RowFields::split(text, format.delimiter);
        // The column may have another name for a symbol that is alone: once it has this one, other
        // rows are others'.
        let wanted = self.options.symbol.as_deref().filter(|symbol| self.symbol_column.has(symbol));
        if format.is_of_others(&fields) || SymbolColumn::is_of_others(wanted.map(str::as_bytes), &fields, format) {
            return Ok(None);
        }
        let named = self.options.symbol.as_deref().zip(symbol_in(&fields, format));
        let named = named.filter(|(own, found)| own.as_bytes() != *found);
        let named = named.map(|(own, found)| (own, String::from_utf8_lossy(found)));
        if let Some((own, found)) = named {
            // A column such as `company` may have another name of the instrument.
            if format.has_sure_symbols && !is_name_of(own, &found) {
                if !std::mem::replace(&mut self.has_passed_symbol, true) {
                    self.notes.push(format!("rows of other symbols than {own}, such as {found}, are passed over"));
                }
                return Ok(None);
            }
            if !std::mem::replace(&mut self.has_told_symbol, true) {
                let name = self.name.display();
                self.warnings.push(format!("{name}: rows of {found} are taken for those of {own}"));
            }
        }
        if let Some(column) = &mut self.adjusted_column {
            column.add(&fields, format, line);
            column.check(&self.name, format)?;
        }
        if let Some(column) = &mut self.assumed_volume {
            column.add(&fields, format, line);
            column.check(&self.name, format)?;
        }
        let row = BarRow::parse(&fields, format, line)
            .and_then(|mut row| self.own_columns.read_into(&mut row, &fields, format.style).map(|()| row));
        let row = row.and_then(|row| self.clock.take_row(&fields, format).map(|()| row));
        let is_unreadable = row.as_ref().is_err_and(|fault| fault.kind == RowError::Unreadable);
        if is_unreadable && format.check_later_line(&self.name, line, text)? == LaterLine::Header {
            return Ok(None);
        }
        if row.is_ok() {
            self.symbol_column.add(&fields, format, line);
            if !format.has_sure_symbols
                && let Some(place) = self.symbol_column.place(&fields, format)
            {
                self.shared_times.add(place, &fields, format);
            }
            // Once the column has had the symbol, it has symbols, and rows before were of others.
            let own = self.options.symbol.as_deref().filter(|own| self.symbol_column.has(own));
            let has_others = own.is_some_and(|own| self.symbol_column.has_other_than(own));
            if format.has_sure_symbols || self.shared_times.is_found || has_others {
                self.symbol_column.check(&self.name, &self.header, format, None)?;
            }
        }
        let row = row.and_then(|row| self.checked(row, format));
        let is_cut = row.is_err()
            && self.unfinished_line == Some(line)
            && may_be_cut(&fields, self.field_count, format, &self.own_columns, line);
        let row = row.map_err(|fault| if is_cut { fault.without_end_of_line() } else { fault });
        let row = row.map(|row| self.on_its_day(row));
        if let Ok(row) = &row {
            self.field_count = fields.len();
            self.check_time_of_day(row, &fields, format)?;
            self.check_open_close(row, format)?;
        }
        let have_volume = self.has_volume || self.had_volume;
        if let Ok(row) = &row
            && let Some(known) = self.known_run.take()
            && let Ok(open_time) = self.clock.open_time(row, self.reached)?
        {
            self.fillers.go_on(known, self.known_fillers, row.stamp, open_time);
        }
        if row.as_ref().is_ok_and(|row| self.fillers.add(row, have_volume)) {
            self.ledger.drop_row(line, RowError::Filler);
            return Ok(None);
        }
        let timed = match row {
            Ok(row) => match self.clock.open_time(&row, self.reached)? {
                Ok(open_time) => {
                    if let Some(live) = self.clock.live_week(&row, self.reached) {
                        self.notes.push(format!("{}: line {line} is {}", self.name.display(), live.remark()));
                    }
                    self.check_spacing(open_time)?;
                    self.check_clock(&row, format)?;
                    self.placed(open_time, row)
                }
                Err(fault) => Err(fault),
            },
            Err(fault) => Err(fault),
        };
        match timed {
            Ok(bar) => Ok(bar),
            Err(fault) => self.refuse(line, fault, text).map(|()| None),
        }
    }

    /// Refuses columns without names once the bars show that open and close are exchanged. They are
    /// looked at whenever their number has doubled.
    fn check_open_close(&mut self, row: &BarRow, format: &RowFormat) -> Result<()> {
        let before = self.open_close.pairs();
        self.open_close.add(row);
        let pairs = self.open_close.pairs();
        if pairs == before || !pairs.is_power_of_two() {
            return Ok(());
        }
        self.open_close.check(&self.name, format)
    }

    /// Refuses dates alone of two days among bars that are shorter than a day, and dates alone
    /// beside midnights that have a time of day. Behind other rows with one a date is a midnight.
    fn check_time_of_day(&mut self, row: &BarRow, fields: &RowFields<'_>, format: &RowFormat) -> Result<()> {
        let is_date = self.midnight_form.add(row, fields, format);
        if self.base >= Timeframe::D1 {
            return Ok(());
        }
        let MidnightForm { first_date, has_times_of_day, has_written_midnights, .. } = self.midnight_form;
        let waiting = self.waiting.first().map(|(line, _)| *line);
        if has_written_midnights && let Some(line) = is_date.then_some(row.line).or(waiting) {
            self.waiting.clear();
            return Err(Error::date_beside_midnights(&self.name, line, self.base));
        }
        let is_of_first_day = first_date.is_none_or(|(date, _)| date == row.stamp);
        match has_times_of_day || is_of_first_day {
            true => Ok(()),
            false => Err(Error::dates_alone(&self.name, row.line, self.base)),
        }
    }

    /// Refuses bars that are evidently of another timeframe, as long as no two were as far apart as
    /// those of `base`.
    fn check_spacing(&mut self, open_time: i64) -> Result<()> {
        let (Some(spacings), Some(reached)) = (&mut self.spacings, self.reached) else { return Ok(()) };
        let spacing_ns = open_time - reached;
        if spacing_ns == self.base.duration_ns() {
            self.spacings = None;
            return Ok(());
        }
        spacings.count(spacing_ns, 1);
        let base = self.base;
        let longer = spacings.evidently_longer(base).map(Timeframe::duration_ns);
        let Some(spacing_ns) = longer.or_else(|| spacings.evidently_shorter(base)) else { return Ok(()) };
        let spacing = display_duration(spacing_ns);
        Err(Error::OtherTimeframe { path: self.name.clone(), spacing, base })
    }

    /// Warns once several weeks of the rows end as on another clock than the one they are read by.
    fn check_clock(&mut self, row: &BarRow, format: &RowFormat) -> Result<()> {
        let RowTime::Wall(wall_ns) = row.stamp else { return Ok(()) };
        let close_delay_ns = self.base.duration_ns() - self.clock.stamp_delay_ns();
        if self.doubts.ends_week(wall_ns, close_delay_ns) {
            let zone = self.clock.zone(row)?.clone();
            let doubt = self.doubts.clock(format.name, &zone);
            self.warn(doubt);
        }
        Ok(())
    }

    /// Keeps a doubt about the bars.
    fn warn(&mut self, doubt: Option<String>) {
        let name = self.name.display();
        self.warnings.extend(doubt.map(|doubt| format!("{name}: {doubt}")));
    }

    fn checked(&mut self, row: BarRow, format: &RowFormat) -> Result<BarRow, RowFault> {
        // What a row without prices lacks is not its volume.
        let lacks_volume = row.volume.is_nan() || format.columns.volume.is_none();
        if self.needs_volume && lacks_volume && row.close.is_finite() {
            let expected = "a volume, from which features are computed".to_owned();
            return Err(RowFault { kind: RowError::NoValue, expected });
        }
        // A row without volume is a bar as long as no row has one.
        let row = row.without_volume().filter(|_| !self.has_volume).unwrap_or(row);
        self.has_volume |= row.volume > 0.0;
        let Err(fault) = row.check() else { return Ok(row) };
        let (row, fix): (BarRow, RowFix) = row.fixed().filter(|_| self.ledger.repairs()).ok_or(fault)?;
        self.ledger.fix(row.line, fix);
        Ok(row)
    }

    /// The row at the midnight of its day, where it carries a time of day and nearly all rows of
    /// days before it are midnights.
    fn on_its_day(&mut self, row: BarRow) -> BarRow {
        if self.base != Timeframe::D1 {
            return row;
        }
        let stamp = match self.midnight(&row) {
            Some(midnight) => {
                if !row.is_at_stated_midnight() && !self.has_told_of_midnights {
                    let first = remark(&self.name, row.line, row.stamp, midnight);
                    self.notes.push(format!("{first}; later rows with a time of day become days in the same way"));
                    self.has_told_of_midnights = true;
                }
                midnight
            }
            None => row.stamp,
        };
        self.day_stamps.push(stamp);
        BarRow { stamp, ..row }
    }

    fn midnight(&self, row: &BarRow) -> Option<RowTime> {
        let is_as_usual =
            |last: &RowTime| last.is_on_the_clock_of(row.stamp) && (row.stamp.ns() - last.ns()).rem_euclid(DAY_NS) == 0;
        if self.day_stamps.last().is_some_and(is_as_usual) {
            return None;
        }
        let states_day = row.stated_day().is_some();
        let can_tell = |stamp: &RowTime| states_day || stamp.is_on_the_clock_of(row.stamp);
        let own = Midnights::told_by(|| self.day_stamps.iter().copied().filter(can_tell));
        let known = self.known_midnights.as_ref();
        // The bars before tell sessions better than a few rows do.
        if let Some(midnight) = known.and_then(|known| known.at_stated_date(row)) {
            return Some(midnight);
        }
        let told = own.as_ref().or(known)?;
        let last = self.reached.or(self.known_until);
        let repeats_last = |date: i64| {
            self.last.as_ref().is_some_and(|(open_time, last)| *open_time == date && last.has_prices_of(row))
        };
        let is_repeat = |date: i64| repeats_last(date) || self.doubts.is_repeat(&row.bar(date));
        told.before_row(row, self.clock.zone(row).ok()).or_else(|| told.date_of_close(row, last?, is_repeat))
    }

    /// The bar of a row that comes after all others; `None` for a bar that was known before.
    fn placed(&mut self, open_time: i64, row: BarRow) -> Result<Option<Bar>, RowFault> {
        if self.known_until.is_some_and(|known_until| open_time <= known_until) {
            self.passed_over += 1;
            self.reached = Some(open_time);
            // Of several rows of a time one alone is the known bar.
            if self.options.repeats == Repeats::Refuse {
                let doubt = self.doubts.known_bar(&row.bar(open_time), row.line);
                self.warn(doubt);
            }
            return Ok(None);
        }
        let is_quoted = self.format.is_some_and(|format| format.columns.adjusted.is_none());
        if let Some(expected) = self.expected_adjusted.as_ref().filter(|_| is_quoted) {
            return Err(RowFault { kind: RowError::NoValue, expected: expected.clone() });
        }
        match &self.last {
            Some((last, earlier)) if *last == open_time && earlier.is_copy_of(&row) => {
                let expected = format!("a row of its own (line {} says the same)", earlier.line);
                return Err(RowFault { kind: RowError::Copy, expected });
            }
            Some((last, earlier)) if *last == open_time => {
                let time = display_utc(open_time);
                let line = earlier.line;
                let expected = format!("one row for the bar that opens at {time}, and line {line} is another");
                return Err(RowFault { kind: RowError::Duplicate, expected });
            }
            Some((last, _)) if open_time < *last => {
                let (found, last) = (display_utc(open_time), display_utc(*last));
                let expected = format!("a bar that opens after {last} (this one would open at {found})");
                return Err(RowFault { kind: RowError::Backward, expected });
            }
            _ => {}
        }
        row.check_columns(&self.options.columns, &mut self.have_values)?;
        let bar = row.bar(open_time);
        let is_first = self.last.is_none() && self.passed_over == 0;
        if is_first && self.format.is_some_and(|format| format.columns.adjusted.is_some()) {
            let doubt = self.doubts.common_bars(open_time);
            self.warn(doubt);
        }
        let earlier = self.earlier_open_time();
        for doubt in [self.doubts.pause(open_time, earlier), self.doubts.scale(&bar, earlier)] {
            self.warn(doubt);
        }
        if self.needs_volume {
            let doubt = self.doubts.volume(&bar);
            self.warn(doubt);
        }
        (self.reached, self.last) = (Some(open_time), Some((open_time, row)));
        Ok(Some(bar))
    }

    /// When the last bar opens, known before or not.
    fn earlier_open_time(&self) -> Option<i64> {
        self.last.as_ref().map(|(open_time, _)| *open_time).or(self.known_until)
    }

    fn refuse(&mut self, line: u64, fault: RowFault, text: &[u8]) -> Result<()> {
        let RowFault { kind, expected } = &fault;
        let is_chosen_between = *kind == RowError::Duplicate && self.options.repeats != Repeats::Refuse;
        if is_chosen_between || matches!(kind, RowError::Copy | RowError::WarmUp) {
            self.ledger.drop_row(line, *kind);
            return Ok(());
        }
        if self.options.on_error != OnError::Fail {
            let (name, text) = (self.name.display(), shortened(text));
            let complaint = format!("{name}: line {line}: {kind}: expected {expected}, found `{text}`; dropped");
            self.complaints.push(complaint);
        }
        self.ledger.refuse(line, fault, |_| text.to_vec())
    }
}

#[cfg(test)]
mod tests;
