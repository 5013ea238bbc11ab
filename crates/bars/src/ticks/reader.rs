use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::error::row_error::{OnError, RowError};
use crate::error::tick_error::TickError;
use crate::error::{Error, Result};
use crate::place::ObserveBytes;
use crate::ticks::aggregator::{Aggregator, Tick, TickBar};
use crate::ticks::file::{TickFile, TickForm, TickStep};
use crate::ticks::format::TickFormat;
use crate::ticks::options::{TickOptions, TickPrice, TickVolume};
use crate::ticks::row::TickFault;
use crate::time::timestamp::display_utc;
use crate::time::zone::Zone;

/// Ticks that were read, and bars that they became.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TickSummary {
    /// Format of the files.
    pub format: TickFormat,
    /// Price of a tick.
    pub price: TickPrice,
    /// Volume of a bar.
    pub volume: TickVolume,
    /// True if ticks have a bid and an ask.
    pub has_spread: bool,
    /// The clock of times without offset.
    pub zone: Zone,
    /// Number of files.
    pub files: usize,
    /// Files without a tick.
    pub files_without_ticks: usize,
    /// Ticks that bars are made from.
    pub ticks: u64,
    /// Rows that are no ticks, by reason.
    pub dropped: Vec<DroppedTicks>,
    /// Bars given.
    pub bars: u64,
    /// Ticks behind the last bar that is full.
    pub unused_ticks: u64,
    /// Time of the first tick, in nanoseconds since 1970 UTC.
    pub first_ns: i64,
    /// Time of the last tick.
    pub last_ns: i64,
    /// Ask less bid, on average over the ticks that have both.
    pub mean_spread: Option<f64>,
}

/// Rows that are no ticks for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedTicks {
    /// The reason.
    pub kind: RowError,
    /// Number of rows.
    pub rows: u64,
    /// File of the first.
    pub path: PathBuf,
    /// Line number, from 1, of the first.
    pub first_line: u64,
    /// Expected form of the first.
    pub expected: String,
}

/// Reads files of ticks in one pass and gives their bars.
pub struct TickBarReader<'a> {
    options: TickOptions,
    observe: ObserveBytes<'a>,
    /// Files that are not read yet, in order of their first tick.
    waiting: VecDeque<WaitingFile>,
    current: Option<TickFile<'a>>,
    /// File of the last tick.
    path: PathBuf,
    symbol: Option<Vec<u8>>,
    aggregator: Aggregator,
    spread_sum: f64,
    spreads: u64,
    summary: TickSummary,
}

struct WaitingFile {
    path: PathBuf,
    form: TickForm,
    zone: Zone,
    /// Time of its first tick; the largest number if it has none.
    first_ns: i64,
}

impl<'a> TickBarReader<'a> {
    /// Recognises the files and puts them in order of their first tick. `observe` gets the number
    /// of bytes of every read after that, and may end the reading.
    ///
    /// # Errors
    /// [`TickError::UnknownFormat`], [`TickError::UnknownZone`], [`TickError::Unlike`],
    /// [`TickError::NoPrice`], [`TickError::NoVolume`], [`TickError::UnknownPoint`],
    /// [`TickError::NoHour`], [`Error::NothingLeft`] for files without a row, and those of reading.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: TickOptions, observe: ObserveBytes<'a>) -> Result<Self> {
        let first_path = paths.first().ok_or(Error::NoFiles)?.as_ref();
        let mut waiting = Vec::new();
        let mut kind: Option<TickKind> = None;
        for path in paths {
            let path = path.as_ref();
            let Some(form) = TickForm::recognise(path, &options)? else { continue };
            let found = TickKind::new(path, &form, &options)?;
            let first_ns = first_tick_ns(path, &form, &found)?.unwrap_or(i64::MAX);
            kind.get_or_insert_with(|| found.clone()).require_like(&found)?;
            waiting.push(WaitingFile { path: path.to_owned(), form, zone: found.zone, first_ns });
        }
        waiting.sort_by_key(|file| file.first_ns);
        let kind = kind.ok_or_else(|| nothing_left(first_path, 0, "there is none".to_owned()))?;
        let summary = TickSummary {
            format: kind.format,
            price: kind.price,
            volume: kind.volume,
            has_spread: kind.has_spread,
            zone: kind.zone,
            files: paths.len(),
            files_without_ticks: paths.len() - waiting.len(),
            ticks: 0,
            dropped: Vec::new(),
            bars: 0,
            unused_ticks: 0,
            first_ns: 0,
            last_ns: i64::MIN,
            mean_spread: None,
        };
        Ok(TickBarReader {
            aggregator: Aggregator::new(options.bars, options.bins.clone(), kind.volume),
            options,
            observe,
            waiting: waiting.into(),
            current: None,
            path: first_path.to_owned(),
            symbol: None,
            spread_sum: 0.0,
            spreads: 0,
            summary,
        })
    }

    /// True if ticks have a bid and an ask.
    pub fn has_spread(&self) -> bool {
        self.summary.has_spread
    }

    /// The next bar, in order of time; `None` after the last. Ticks after the last full bar give
    /// none.
    ///
    /// # Errors
    /// [`TickError::BadRow`] under [`OnError::Fail`], [`TickError::Overlapping`],
    /// [`Error::NothingLeft`] and [`TickError::NoFullBar`] at the end, and those of reading.
    pub fn next_bar(&mut self) -> Result<Option<TickBar>> {
        while let Some(tick) = self.next_tick()? {
            if let Some(bar) = self.aggregator.push(&tick) {
                self.summary.bars += 1;
                return Ok(Some(bar.with_decimal_volume()));
            }
        }
        if self.summary.ticks == 0 {
            let rows = self.summary.dropped.iter().map(|dropped| dropped.rows).sum();
            let first = self.summary.dropped.first();
            let first = first.map_or_else(|| "there is none".to_owned(), DroppedTicks::reason);
            return Err(nothing_left(&self.path, rows, first));
        }
        let last = self.aggregator.finish();
        self.summary.bars += u64::from(last.is_some());
        if self.summary.bars == 0 {
            return Err(TickError::NoFullBar { rule: self.options.bars.to_string(), ticks: self.summary.ticks }.into());
        }
        Ok(last.map(TickBar::with_decimal_volume))
    }

    /// Ticks and bars so far.
    pub fn summary(&self) -> TickSummary {
        TickSummary {
            unused_ticks: self.aggregator.unused_ticks(),
            mean_spread: (self.spreads > 0).then(|| self.spread_sum / self.spreads as f64),
            ..self.summary.clone()
        }
    }

    fn next_tick(&mut self) -> Result<Option<Tick>> {
        loop {
            let Some(file) = &mut self.current else {
                let Some(next) = self.waiting.pop_front() else { return Ok(None) };
                self.current = Some(self.open_file(&next)?);
                self.path = next.path;
                continue;
            };
            match file.next(self.summary.last_ns, &mut self.symbol)? {
                Some(TickStep::Tick(tick)) => {
                    self.count(&tick);
                    return Ok(Some(tick));
                }
                Some(TickStep::Quote) => {}
                Some(TickStep::Fault(fault)) => refuse(file, fault, self.options.on_error, &mut self.summary.dropped)?,
                None => {
                    self.summary.files_without_ticks += usize::from(!file.has_ticks());
                    self.current = None;
                }
            }
        }
    }

    /// Opens a file that must begin after those before it end.
    fn open_file(&self, next: &WaitingFile) -> Result<TickFile<'a>> {
        let last_ns = self.summary.last_ns;
        if next.first_ns < last_ns {
            return Err(TickError::Overlapping {
                earlier: self.path.clone(),
                later: next.path.clone(),
                begins: display_utc(next.first_ns),
                ends: display_utc(last_ns),
            }
            .into());
        }
        TickFile::open(&next.path, &next.form, self.summary.price, next.zone.clone(), self.observe)
    }

    fn count(&mut self, tick: &Tick) {
        let summary = &mut self.summary;
        if summary.ticks == 0 {
            summary.first_ns = tick.time_ns;
        }
        summary.ticks += 1;
        summary.last_ns = tick.time_ns;
        if !tick.spread.is_nan() {
            self.spread_sum += tick.spread;
            self.spreads += 1;
        }
    }
}

/// Stops at a row that is no tick, or counts it. What stands before the first price is no fault.
fn refuse(file: &TickFile<'_>, fault: TickFault, on_error: OnError, dropped: &mut Vec<DroppedTicks>) -> Result<()> {
    let TickFault { kind, expected } = fault;
    let (path, line) = (file.path().to_owned(), file.line());
    if on_error == OnError::Fail && kind != RowError::WarmUp {
        return Err(TickError::BadRow { path, line, kind, expected, text: file.text() }.into());
    }
    match dropped.iter_mut().find(|dropped| dropped.kind == kind) {
        Some(dropped) => dropped.rows += 1,
        None => dropped.push(DroppedTicks { kind, rows: 1, path, first_line: line, expected }),
    }
    Ok(())
}

fn nothing_left(path: &Path, rows: u64, first: String) -> Error {
    Error::NothingLeft { path: path.to_owned(), rows, first }
}

impl DroppedTicks {
    fn reason(&self) -> String {
        format!("line {}, {}, expected {}", self.first_line, self.kind, self.expected)
    }
}

/// Properties in which the files of one series are alike.
#[derive(Clone)]
struct TickKind {
    path: PathBuf,
    format: TickFormat,
    price: TickPrice,
    volume: TickVolume,
    has_spread: bool,
    zone: Zone,
}

impl TickKind {
    fn new(path: &Path, form: &TickForm, options: &TickOptions) -> Result<Self> {
        let price = form.price(path, options.price)?;
        Ok(TickKind {
            path: path.to_owned(),
            format: form.format(),
            price,
            volume: form.volume(path, price, options)?,
            has_spread: form.has_spread(),
            zone: form.zone(path, options.zone.as_ref())?,
        })
    }

    fn require_like(&self, other: &TickKind) -> Result<()> {
        let words = |kind: &TickKind| {
            let spread = if kind.has_spread { "bid and ask" } else { "no bid and ask" };
            format!("{} with {spread}, price {}, volume {}", kind.format, kind.price, kind.volume)
        };
        let (found, expected) = (words(other), words(self));
        match found == expected {
            true => Ok(()),
            false => Err(TickError::Unlike {
                first: self.path.clone(),
                first_kind: expected,
                second: other.path.clone(),
                second_kind: found,
            }
            .into()),
        }
    }
}

/// Time of the first usable tick of a file.
fn first_tick_ns(path: &Path, form: &TickForm, kind: &TickKind) -> Result<Option<i64>> {
    let mut file = TickFile::open(path, form, kind.price, kind.zone.clone(), &|_| ControlFlow::Continue(()))?;
    while let Some(step) = file.next(i64::MIN, &mut None)? {
        if let TickStep::Tick(tick) = step {
            return Ok(Some(tick.time_ns));
        }
    }
    Ok(None)
}
