//! The format of a text file of ticks, from its first lines.

use crate::parse::fields::RowFields;
use crate::parse::header::{self, DELIMITERS, HeaderLine, NumberedLine};
use crate::parse::tick_rows::UnnamedTicks;
use crate::ticks::columns::TickColumns;
use crate::ticks::format::TickFormat;
use crate::time::date_order::DateOrder;
use crate::time::numbers::split_digits;
use crate::time::timestamp::{DateStyle, MILLISECOND_NS, RowTime, parse_date_and_clock, parse_stamp};
use crate::time::zone::Zone;

/// Digits of a date, a space, and hours, minutes and seconds, before the milliseconds.
const COMPACT_SECONDS: usize = "20180101 170000".len();

/// Layout of the rows of one file.
#[derive(Clone, Debug)]
pub(crate) struct TickLayout {
    pub(crate) format: TickFormat,
    pub(crate) columns: TickColumns,
    pub(crate) times: TimeForm,
    pub(crate) delimiter: u8,
    /// The header, and its line number from 1.
    pub(crate) header: Option<NumberedLine>,
    /// The zone that the header names.
    pub(crate) zone: Option<Zone>,
}

/// Written form of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// A date and a time of day.
    Style(DateStyle),
    /// `20180101 170000123`, with milliseconds and no point before them.
    CompactMillis,
}

impl TimeForm {
    const ALL: [TimeForm; 6] = [
        TimeForm::Style(DateStyle::Dashed),
        TimeForm::Style(DateStyle::Dotted),
        TimeForm::Style(DateStyle::Compact),
        // Dates with points have the day first. With other separators nothing tells the order.
        TimeForm::Style(DateStyle::YearLast(DateOrder::DayFirst)),
        TimeForm::Style(DateStyle::Epoch),
        TimeForm::CompactMillis,
    ];

    fn parse(self, field: &[u8]) -> Option<RowTime> {
        match self {
            TimeForm::Style(DateStyle::YearLast(_)) if field.contains(&b'/') || field.get(2) == Some(&b'-') => None,
            TimeForm::Style(style) => parse_stamp(field, style),
            TimeForm::CompactMillis => {
                let (seconds, millis) = field.split_at_checked(COMPACT_SECONDS)?;
                let (millis, rest) = split_digits(millis, 3..=3)?;
                let RowTime::Wall(ns) = parse_stamp(seconds, DateStyle::Compact)? else { return None };
                rest.is_empty().then_some(RowTime::Wall(ns + millis * MILLISECOND_NS))
            }
        }
    }
}

/// Result of looking at the first lines of a file.
#[derive(Debug)]
pub(crate) enum Recognised {
    /// Rows of ticks.
    Ticks(Box<TickLayout>),
    /// No row at all.
    Empty,
    /// No ticks, for this reason.
    No(String),
}

impl TickLayout {
    /// Recognises the layout from the first lines of a file, of the format `wanted` if there is
    /// one.
    pub(crate) fn recognise(head: &[NumberedLine], wanted: Option<TickFormat>) -> Recognised {
        let is_wanted = |format: TickFormat| wanted.is_none_or(|wanted| wanted == format);
        if head.iter().all(|(_, text)| text.is_empty()) {
            return Recognised::Empty;
        }
        for delimiter in DELIMITERS {
            let named = head
                .iter()
                .enumerate()
                .find_map(|(place, (_, text))| Some((place, TickColumns::named(&RowFields::split(text, delimiter))?)));
            if let Some((place, columns)) = named {
                let fields = RowFields::split(&head[place].1, delimiter);
                if matches!(header::parse(&fields), Some(HeaderLine::Named(_))) {
                    return Recognised::No(format!("the header in line {} names the prices of bars", head[place].0));
                }
                let format = named_format(&fields, &columns);
                if is_wanted(format) {
                    return with_times(&head[place..], delimiter, columns, format);
                }
            }
        }
        if let Some(found) = UnnamedTicks::find(head).filter(|_| is_wanted(TickFormat::MetaTrader)) {
            return Recognised::Ticks(Box::new(unnamed_metatrader(found)));
        }
        let first = head.iter().find(|(_, text)| !text.is_empty());
        let fields = first.map(|(_, text)| RowFields::split(text, b','));
        let unnamed = fields.and_then(|fields| unnamed_columns(&fields).filter(|(format, ..)| is_wanted(*format)));
        match unnamed {
            Some((format, columns, times)) => Recognised::Ticks(Box::new(TickLayout {
                format,
                columns,
                times,
                delimiter: b',',
                header: None,
                zone: None,
            })),
            None => Recognised::No("no header names a time, and bid and ask or a price".to_owned()),
        }
    }

    /// The time of a row.
    pub(crate) fn time(&self, fields: &RowFields<'_>) -> Option<RowTime> {
        time_of(fields, &self.columns, self.times)
    }

    /// True if an empty price is that of the row before.
    pub(crate) fn keeps_prices(&self) -> bool {
        self.format == TickFormat::MetaTrader
    }
}

fn time_of(fields: &RowFields<'_>, columns: &TickColumns, times: TimeForm) -> Option<RowTime> {
    let time = fields.get(columns.time)?;
    match (columns.clock, times) {
        (None, times) => times.parse(time),
        (Some(clock), TimeForm::Style(style)) => parse_date_and_clock(time, fields.get(clock)?, style),
        (Some(_), TimeForm::CompactMillis) => None,
    }
}

fn named_format(fields: &RowFields<'_>, columns: &TickColumns) -> TickFormat {
    let is_bracketed = fields.get(columns.time).is_some_and(|name| name.starts_with(b"<"));
    if is_bracketed && columns.bid.is_some() {
        TickFormat::MetaTrader
    } else if columns.has_volumes_of_sides() {
        TickFormat::Dukascopy
    } else {
        TickFormat::Csv
    }
}

/// The layout of rows under the header in the first line of `head`.
fn with_times(head: &[NumberedLine], delimiter: u8, columns: TickColumns, format: TickFormat) -> Recognised {
    let (header, rows) = head.split_first().expect("the header is there");
    let mut rows = rows.iter().filter(|(_, text)| !text.is_empty());
    let Some((line, first)) = rows.next() else { return Recognised::Empty };
    let times = std::iter::once(first).chain(rows.map(|(_, text)| text)).find_map(|text| {
        let fields = RowFields::split(text, delimiter);
        TimeForm::ALL.into_iter().find(|times| time_of(&fields, &columns, *times).is_some())
    });
    let zone = header::zone(&RowFields::split(&header.1, delimiter));
    match times {
        Some(times) => {
            let header = Some(header.clone());
            Recognised::Ticks(Box::new(TickLayout { format, columns, times, delimiter, header, zone }))
        }
        None => Recognised::No(format!("line {line} and those below have no time in a known form")),
    }
}

/// The layout of MetaTrader's rows where no header names their columns.
fn unnamed_metatrader(found: UnnamedTicks<'_>) -> TickLayout {
    let UnnamedTicks { delimiter, header, .. } = found;
    let prices = TickColumns { bid: Some(2), ask: Some(3), last: Some(4), ..TickColumns::default() };
    TickLayout {
        format: TickFormat::MetaTrader,
        columns: TickColumns { time: 0, clock: Some(1), volume: Some(5), ..prices },
        times: TimeForm::Style(DateStyle::Dotted),
        delimiter,
        header: header.cloned(),
        zone: None,
    }
}

/// The format, columns and times of a row without a header.
fn unnamed_columns(fields: &RowFields<'_>) -> Option<(TickFormat, TickColumns, TimeForm)> {
    let is_number = |column: usize| fields.number(column).is_some();
    let fits = |times: TimeForm, column: usize| fields.get(column).is_some_and(|field| times.parse(field).is_some());
    let is_flag = |column: usize| {
        fields
            .get(column)
            .is_some_and(|field| [b"true".as_slice(), b"false"].iter().any(|flag| field.eq_ignore_ascii_case(flag)))
    };
    let compact = TimeForm::Style(DateStyle::Compact);
    let epoch = TimeForm::Style(DateStyle::Epoch);
    let sides = |first: usize| is_number(first) && is_number(first + 1);
    let has_symbol = fields.get(0).is_some_and(|field| field.contains(&b'/') && field[0].is_ascii_alphabetic());
    if (3..=4).contains(&fields.len()) && fits(TimeForm::CompactMillis, 0) && sides(1) {
        let columns = TickColumns { bid: Some(1), ask: Some(2), ..TickColumns::default() };
        return Some((TickFormat::HistData, columns, TimeForm::CompactMillis));
    }
    if fields.len() == 4 && has_symbol && fits(compact, 1) && sides(2) {
        let columns = TickColumns { symbol: Some(0), time: 1, bid: Some(2), ask: Some(3), ..TickColumns::default() };
        return Some((TickFormat::TrueFx, columns, compact));
    }
    // Single trades have a quote quantity before the time, aggregated ones a first and a last one.
    let time = [4, 5].into_iter().find(|&time| fits(epoch, time) && is_flag(time + 1))?;
    let columns = TickColumns { time, last: Some(1), volume: Some(2), ..TickColumns::default() };
    (is_number(0) && sides(1)).then_some((TickFormat::Binance, columns, epoch))
}
