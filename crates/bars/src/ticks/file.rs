//! The ticks of one file.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::error::message::shortened;
use crate::error::row_error::RowError;
use crate::error::tick_error::TickError;
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::lines::TextLines;
use crate::place::ObserveBytes;
use crate::ticks::aggregator::Tick;
use crate::ticks::bar_rule::BarRule;
use crate::ticks::bi5::{Bi5Records, Bi5Scale, is_bi5};
use crate::ticks::clock::TickClock;
use crate::ticks::columns::TickColumns;
use crate::ticks::format::TickFormat;
use crate::ticks::layout::{Recognised, TickLayout};
use crate::ticks::options::{TickOptions, TickPrice, TickVolume};
use crate::ticks::row::{TickFault, TickRow};
use crate::time::timestamp::RowTime;
use crate::time::zone::Zone;

/// Most decimals to which prices are rounded; those of longer ones are noise of binary fractions.
const DECIMALS_MAX: usize = 12;
const POWERS: [f64; DECIMALS_MAX + 2] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13];
/// The clock of HistData's ticks, all year.
const HISTDATA_ZONE: &str = "-05:00";

/// Form of the ticks of a file.
#[derive(Clone, Debug)]
pub(crate) enum TickForm {
    /// Rows of text.
    Text(Box<TickLayout>),
    /// Records of an hour.
    Bi5(Bi5Scale),
}

impl TickForm {
    /// Recognises the form of a file; `None` for one without a row.
    ///
    /// # Errors
    /// [`TickError::UnknownFormat`] and those of reading.
    pub(crate) fn recognise(path: &Path, options: &TickOptions) -> Result<Option<Self>> {
        if options.format == Some(TickFormat::Bi5) || (options.format.is_none() && is_bi5(path)) {
            return Bi5Scale::from_path(path, options.point).map(|scale| Some(TickForm::Bi5(scale)));
        }
        let head = TextLines::open(path)?.read_head()?;
        match TickLayout::recognise(&head, options.format) {
            Recognised::Ticks(layout) => Ok(Some(TickForm::Text(layout))),
            Recognised::Empty => Ok(None),
            Recognised::No(reason) => {
                if let Ok(bars) = RowFormat::detect(&head, None, None) {
                    let (format, has_header) = (bars.name.name(), bars.is_named);
                    return Err(TickError::Bars { path: path.to_owned(), format, has_header }.into());
                }
                let first_line = head.first().map_or_else(String::new, |(_, text)| shortened(text));
                let tried = match options.format {
                    Some(format) => format.name().to_owned(),
                    None => TickFormat::ALL.map(TickFormat::name).join(", "),
                };
                Err(TickError::UnknownFormat { path: path.to_owned(), reason, tried, first_line }.into())
            }
        }
    }

    /// The format of the ticks in a file, if it has some.
    pub(crate) fn format_of_file(path: &Path) -> Option<TickFormat> {
        if is_bi5(path) {
            return Some(TickFormat::Bi5);
        }
        let head = TextLines::open(path).and_then(|mut lines| lines.read_head()).ok()?;
        match TickLayout::recognise(&head, None) {
            Recognised::Ticks(layout) => Some(layout.format),
            Recognised::Empty | Recognised::No(_) => None,
        }
    }

    /// The format.
    pub(crate) fn format(&self) -> TickFormat {
        match self {
            TickForm::Text(layout) => layout.format,
            TickForm::Bi5(_) => TickFormat::Bi5,
        }
    }

    fn columns(&self) -> TickColumns {
        match self {
            TickForm::Text(layout) => layout.columns,
            TickForm::Bi5(_) => TickColumns {
                bid: Some(2),
                ask: Some(1),
                volume: Some(3),
                other_volume: Some(4),
                ..TickColumns::default()
            },
        }
    }

    /// True if ticks have a bid and an ask.
    pub(crate) fn has_spread(&self) -> bool {
        let columns = self.columns();
        columns.bid.is_some() && columns.ask.is_some()
    }

    /// The price of its ticks.
    pub(crate) fn price(&self, path: &Path, stated: Option<TickPrice>) -> Result<TickPrice> {
        let columns = self.columns();
        let is_there = |price: &TickPrice| match price {
            TickPrice::Mid => columns.bid.is_some() && columns.ask.is_some(),
            TickPrice::Bid => columns.bid.is_some(),
            TickPrice::Ask => columns.ask.is_some(),
            TickPrice::Last => columns.last.is_some(),
        };
        let mut there = TickPrice::ALL.into_iter().filter(is_there);
        match stated {
            None => Ok(there.next().expect("a layout has prices")),
            Some(price) if is_there(&price) => Ok(price),
            Some(price) => {
                let found = there.map(TickPrice::name).collect::<Vec<_>>().join(", ");
                Err(TickError::NoPrice { path: path.to_owned(), price: price.name(), found }.into())
            }
        }
    }

    /// The volume of its bars, where ticks have `price`; bars that volumes end need volumes.
    pub(crate) fn volume(&self, path: &Path, price: TickPrice, options: &TickOptions) -> Result<TickVolume> {
        let columns = self.columns();
        let are_bars_of_volume = matches!(options.bars, BarRule::Volume(_));
        let has_volumes = columns.volume.is_some();
        match options.volume {
            Some(TickVolume::Ticks) => Ok(TickVolume::Ticks),
            Some(TickVolume::Sum) if !has_volumes => Err(TickError::NoVolume { path: path.to_owned() }.into()),
            None if are_bars_of_volume && !has_volumes => Err(TickError::NoVolume { path: path.to_owned() }.into()),
            // Quotes of MetaTrader have a column of volumes in which there is none.
            None if !are_bars_of_volume && self.format() == TickFormat::MetaTrader && price != TickPrice::Last => {
                Ok(TickVolume::Ticks)
            }
            _ if has_volumes => Ok(TickVolume::Sum),
            _ => Ok(TickVolume::Ticks),
        }
    }

    /// The clock of its times without offset.
    pub(crate) fn zone(&self, path: &Path, stated: Option<&Zone>) -> Result<Zone> {
        let TickForm::Text(layout) = self else { return Ok(Zone::utc()) };
        match (layout.zone.as_ref().or(stated), layout.format) {
            (Some(zone), _) => Ok(zone.clone()),
            (None, TickFormat::MetaTrader) => Err(TickError::UnknownZone { path: path.to_owned() }.into()),
            (None, TickFormat::HistData) => Ok(HISTDATA_ZONE.parse().expect("an offset is a zone")),
            (None, _) => Ok(Zone::utc()),
        }
    }
}

/// The next row of a file.
#[derive(Debug)]
pub(crate) enum TickStep {
    /// A usable tick.
    Tick(Tick),
    /// A quote without a trade, where ticks are trades.
    Quote,
    /// A row that is no usable tick.
    Fault(TickFault),
}

/// The prices that are known last; NaN where one is not.
#[derive(Clone, Copy, Debug)]
struct KnownPrices {
    bid: f64,
    ask: f64,
    last: f64,
}

/// A file that is read tick by tick.
pub(crate) struct TickFile<'a> {
    path: PathBuf,
    rows: Rows<'a>,
    clock: TickClock,
    price: TickPrice,
    known: KnownPrices,
    /// Most decimals of a price so far.
    decimals: usize,
    /// Number of the last row or record.
    line: u64,
    /// True once a tick was usable.
    has_ticks: bool,
}

enum Rows<'a> {
    Text { lines: TextLines<'a>, layout: Box<TickLayout>, text: Vec<u8> },
    Bi5(Bi5Records),
}

impl<'a> TickFile<'a> {
    pub(crate) fn open(
        path: &Path,
        form: &TickForm,
        price: TickPrice,
        zone: Zone,
        observe: ObserveBytes<'a>,
    ) -> Result<Self> {
        let rows = match form {
            TickForm::Bi5(scale) => Rows::Bi5(Bi5Records::open(path, *scale, observe)?),
            TickForm::Text(layout) => {
                Rows::Text { lines: TextLines::observed(path, observe)?, layout: layout.clone(), text: Vec::new() }
            }
        };
        Ok(TickFile {
            path: path.to_owned(),
            rows,
            clock: TickClock::new(zone),
            price,
            known: KnownPrices { bid: f64::NAN, ask: f64::NAN, last: f64::NAN },
            decimals: 0,
            line: 0,
            has_ticks: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True once a tick was usable.
    pub(crate) fn has_ticks(&self) -> bool {
        self.has_ticks
    }

    /// Number of the last row or record, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Text of the last row, shortened.
    pub(crate) fn text(&self) -> String {
        match &self.rows {
            Rows::Text { text, .. } => shortened(text),
            Rows::Bi5(records) => records.text(),
        }
    }

    /// The next row, for a tick from `after_ns` on; `None` after the last. `symbol` is that of the
    /// rows so far.
    pub(crate) fn next(&mut self, after_ns: i64, symbol: &mut Option<Vec<u8>>) -> Result<Option<TickStep>> {
        let row = match &mut self.rows {
            Rows::Bi5(records) => {
                let Some((number, row)) = records.next() else { return Ok(None) };
                self.line = number;
                row
            }
            Rows::Text { lines, layout, text } => loop {
                let Some(line) = lines.read_into(text)? else { return Ok(None) };
                let header = layout.header.as_ref();
                if text.is_empty() || header.is_some_and(|(header_line, _)| line <= *header_line) {
                    continue;
                }
                self.line = line;
                let fields = RowFields::split(text, layout.delimiter);
                let row = one_symbol(&fields, layout, symbol).and_then(|()| TickRow::parse(&fields, layout));
                // Files that were put one behind the other.
                if row.is_err() && header.is_some_and(|(_, header)| header == text) {
                    continue;
                }
                break row;
            },
        };
        let has_end = if let Rows::Text { lines, .. } = &self.rows { lines.has_end() } else { true };
        let step = row.and_then(|row| self.tick(&row, after_ns));
        let fault = |fault: TickFault| if has_end { fault } else { fault.without_end_of_line() };
        Ok(Some(step.unwrap_or_else(|found| TickStep::Fault(fault(found)))))
    }

    /// The tick of a row.
    fn tick(&mut self, row: &TickRow, after_ns: i64) -> Result<TickStep, TickFault> {
        let keeps_prices = matches!(&self.rows, Rows::Text { layout, .. } if layout.keeps_prices());
        self.decimals = self.decimals.max(row.decimals);
        let known = match keeps_prices {
            true => KnownPrices {
                bid: or_known(row.bid, self.known.bid),
                ask: or_known(row.ask, self.known.ask),
                last: or_known(row.last, self.known.last),
            },
            false => KnownPrices { bid: row.bid, ask: row.ask, last: row.last },
        };
        self.known = known;
        if self.price == TickPrice::Last && row.last.is_nan() && (row.volume.is_nan() || row.volume == 0.0) {
            return Ok(TickStep::Quote);
        }
        let time_ns = self.time_ns(row.time, after_ns)?;
        let price = self.checked_price(known, keeps_prices)?;
        let volume = if row.volume.is_nan() { 0.0 } else { row.volume };
        if !(volume >= 0.0 && volume.is_finite()) {
            return Err(TickFault::new(RowError::Inconsistent, "a volume not below 0"));
        }
        self.has_ticks = true;
        let spread = if known.bid > 0.0 && known.ask >= known.bid { known.ask - known.bid } else { f64::NAN };
        Ok(TickStep::Tick(Tick { time_ns, price, spread: rounded(spread, self.decimals), volume }))
    }

    fn time_ns(&mut self, time: RowTime, after_ns: i64) -> Result<i64, TickFault> {
        let time_ns = match time {
            RowTime::Utc(time_ns) => time_ns,
            RowTime::Wall(wall_ns) => self
                .clock
                .utc_ns(wall_ns, after_ns)
                .ok_or_else(|| TickFault::new(RowError::NoSuchTime, "a time that the clock of the file shows"))?,
        };
        match time_ns < after_ns {
            true => Err(TickFault::new(RowError::Backward, "a time not before that of the tick above")),
            false => Ok(time_ns),
        }
    }

    fn checked_price(&self, known: KnownPrices, keeps_prices: bool) -> Result<f64, TickFault> {
        let (KnownPrices { bid, ask, last }, decimals) = (known, self.decimals);
        let needed = match self.price {
            TickPrice::Mid => [bid, ask],
            TickPrice::Bid => [bid, bid],
            TickPrice::Ask => [ask, ask],
            TickPrice::Last => [last, last],
        };
        if needed.iter().any(|price| price.is_nan()) {
            // A price that has not changed was given before the file begins.
            let kind = if keeps_prices { RowError::WarmUp } else { RowError::Unreadable };
            return Err(TickFault::new(kind, format!("a price ({})", self.price)));
        }
        if !needed.iter().all(|price| *price > 0.0 && price.is_finite()) {
            return Err(TickFault::new(RowError::Inconsistent, "prices above 0"));
        }
        if self.price != TickPrice::Last && ask > 0.0 && ask < bid {
            let expected = format!("an ask not below the bid, found {ask:.decimals$} below {bid:.decimals$}");
            return Err(TickFault::new(RowError::Inconsistent, expected));
        }
        match self.price {
            // Half a digit more than both have.
            TickPrice::Mid => Ok(rounded(bid + (ask - bid) / 2.0, self.decimals + 1)),
            _ => Ok(needed[0]),
        }
    }
}

fn or_known(price: f64, known: f64) -> f64 {
    if price.is_nan() { known } else { price }
}

/// The number without the noise of binary fractions beyond `decimals`.
fn rounded(number: f64, decimals: usize) -> f64 {
    match POWERS.get(decimals) {
        Some(power) => (number * power).round() / power,
        None => number,
    }
}

/// Refuses a row of another symbol than that of the rows before.
fn one_symbol(fields: &RowFields<'_>, layout: &TickLayout, symbol: &mut Option<Vec<u8>>) -> Result<(), TickFault> {
    let Some(column) = layout.columns.symbol else { return Ok(()) };
    let found = fields.get(column).unwrap_or_default();
    match symbol {
        None => *symbol = Some(found.to_owned()),
        Some(symbol) if symbol != found => {
            let expected = format!("the symbol {} as in the rows before", shortened(symbol));
            return Err(TickFault::new(RowError::Unreadable, expected));
        }
        Some(_) => {}
    }
    Ok(())
}
