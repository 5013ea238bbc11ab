//! The clock of lines that come one by one.

use std::path::{Path, PathBuf};

use crate::clean::order::no_such_time;
use crate::clean::sessions::{LiveWeek, SessionDays, is_at_a_weekend};
use crate::error::{Error, Result};
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::options::ReadOptions;
use crate::parse::own_zone::OwnZone;
use crate::parse::row::{BarRow, RowFault};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, RowTime};
use crate::time::zone::{Occurrence, Zone};

/// Times of rows of `base` bars, whose later rows are not known.
#[derive(Debug)]
pub(super) struct LineClock {
    /// Name of the lines in messages.
    name: PathBuf,
    base: Timeframe,
    /// Time from the opening of a bar to its stamp.
    stamp_delay_ns: i64,
    /// Zone that was stated.
    stated: Option<Zone>,
    /// Zone where neither it nor the lines state one.
    fallback: Option<Zone>,
    /// Zone that the lines name.
    own: Option<OwnZone>,
    /// Open time of the last bar that was known before.
    known_until: Option<i64>,
    /// Longest time by which a day or a week that was known before opens before its own time.
    known_early_ns: i64,
}

impl LineClock {
    /// The clock before the first line.
    pub(super) fn new(name: &Path, options: &ReadOptions, base: Timeframe, known_until: Option<i64>) -> Self {
        LineClock {
            name: name.to_owned(),
            base,
            stamp_delay_ns: options.stamped_at.delay_ns(base),
            stated: options.zone.clone(),
            fallback: options.fallback_zone.clone(),
            own: None,
            known_until,
            known_early_ns: 0,
        }
    }

    /// The clock of bars that follow days or weeks which open up to `early_ns` before their own
    /// time.
    pub(super) fn following_early(self, early_ns: i64) -> Self {
        LineClock { known_early_ns: early_ns, ..self }
    }

    /// Takes the zone that a header names. Returns a remark if it is another one than the fallback,
    /// and none was stated.
    pub(super) fn take_header(&mut self, text: &[u8], format: &RowFormat) -> Option<String> {
        self.own = OwnZone::in_header(text, format);
        let (own, fallback) = self.own.as_ref().zip(self.fallback.as_ref())?;
        (self.stated.is_none() && own.zone != *fallback).then(|| {
            let (name, own) = (self.name.display(), &own.zone);
            format!("{name}: its times are {own}, as the header says, and would be taken for {fallback} without it")
        })
    }

    /// Takes the zone that the time of a row names; all rows have to name one.
    pub(super) fn take_row(&mut self, fields: &RowFields<'_>, format: &RowFormat) -> Result<(), RowFault> {
        OwnZone::take_row(&mut self.own, fields, format)
    }

    /// Time from the opening of a bar to its stamp.
    pub(super) fn stamp_delay_ns(&self) -> i64 {
        self.stamp_delay_ns
    }

    /// When the row's bar opens, behind the last row's bar, which opened at `reached`.
    pub(super) fn open_time(&self, row: &BarRow, reached: Option<i64>) -> Result<Result<i64, RowFault>> {
        if let Some(live) = self.live_week(row, reached) {
            return Ok(Ok(live.start));
        }
        if let Some(open_time) = self.session_open(row) {
            return Ok(Ok(open_time));
        }
        let utc_ns = match row.stamp {
            RowTime::Utc(ns) => Ok(ns),
            RowTime::Wall(ns) => self.utc_ns(ns, self.zone(row)?, reached),
        };
        Ok(utc_ns.map(|utc_ns| utc_ns - self.stamp_delay_ns))
    }

    /// When a daily or weekly bar opens that follows bars of sessions, which open at midnights.
    fn session_open(&self, row: &BarRow) -> Option<i64> {
        let has_sessions = matches!(self.base, Timeframe::D1 | Timeframe::W1);
        self.known_until.filter(|known| has_sessions && known % DAY_NS == 0)?;
        let open = row.stamp.ns() - self.stamp_delay_ns;
        // An afternoon in UTC is of the next day on some clocks.
        let is_told = self.known_early_ns > 0 && open.rem_euclid(DAY_NS) >= DAY_NS / 2;
        let date = row.stated_day().filter(|_| is_told || row.is_at_stated_midnight()).map(RowTime::ns);
        // A Saturday's midnight in the East is a Friday's close in New York.
        if let Some(date) = date.filter(|date| !is_at_a_weekend(date.div_euclid(DAY_NS))) {
            return Some(date - self.stamp_delay_ns);
        }
        let days = if self.is_early_as_known(row) { SessionDays::SameDay } else { SessionDays::for_one(open) };
        days.open_time(open)
    }

    /// True if the date of a row's time begins no longer before it than known days opened before
    /// theirs: the rows of both may be closes of their days. A clock may be moved by an hour.
    fn is_early_as_known(&self, row: &BarRow) -> bool {
        let utc_ns = match row.stamp {
            RowTime::Utc(ns) => Some(ns),
            RowTime::Wall(ns) => self.zone(row).ok().map(|zone| zone.utc_ns(ns)),
        };
        let open = row.stamp.ns() - self.stamp_delay_ns;
        let early_ns = utc_ns.map(|utc_ns| utc_ns - self.stamp_delay_ns - (open - open.rem_euclid(DAY_NS)));
        self.known_early_ns > 0 && early_ns.is_some_and(|early_ns| early_ns <= self.known_early_ns + HOUR_NS)
    }

    /// The week within which a row is stamped, where the bars so far are of Mondays before it. The
    /// last row's bar opened at `reached`.
    pub(super) fn live_week(&self, row: &BarRow, reached: Option<i64>) -> Option<LiveWeek> {
        let is_monday = |time: i64| Timeframe::W1.bin(time).start == time;
        let before = reached.or(self.known_until).filter(|&time| self.base == Timeframe::W1 && is_monday(time))?;
        let day = self.session_open(row)?;
        let start = Timeframe::W1.bin(day).start;
        (before < start && start < day).then_some(LiveWeek { stamp: row.stamp, day, start })
    }

    /// Zone of a row without offset.
    pub(super) fn zone(&self, row: &BarRow) -> Result<&Zone> {
        let own = |is_wanted: fn(&&OwnZone) -> bool| self.own.as_ref().filter(is_wanted).map(|own| &own.zone);
        let stated = own(|own| own.is_in_rows()).or(self.stated.as_ref()).or_else(|| own(|_| true));
        stated.or(self.fallback.as_ref()).ok_or_else(|| {
            let (line, name) = (row.line, self.name.display());
            let value = format!("not stated, and line {line} of {name} has a time without offset");
            let expected = "the clock of the timestamps, such as UTC or America/New_York";
            Error::Invalid { key: "zone", value, expected }
        })
    }

    /// Instant at which the zone's clock shows the time `wall_ns` of a row, behind the last row's
    /// bar, which opened at `reached`.
    fn utc_ns(&self, wall_ns: i64, zone: &Zone, reached: Option<i64>) -> Result<i64, RowFault> {
        match zone.occurrence(wall_ns) {
            Occurrence::Once(utc_ns) => Ok(utc_ns),
            Occurrence::Twice(first, second) => {
                let last = reached.or(self.known_until).map(|last| last + self.stamp_delay_ns);
                let is_second = last.is_some_and(|last| self.is_second_pass(zone, last, first, second));
                Ok(if is_second { second } else { first })
            }
            Occurrence::Never { unmoved } if self.base >= Timeframe::D1 => Ok(unmoved),
            Occurrence::Never { .. } => Err(no_such_time(zone)),
        }
    }

    /// True if a row, whose time the clock shows at the instants `first` and `second`, belongs to
    /// the second: the last row, stamped at `last`, did already, or this one goes back from it by
    /// more than half the clock change.
    fn is_second_pass(&self, zone: &Zone, last: i64, first: i64, second: i64) -> bool {
        let was_in_it = matches!(zone.occurrence(zone.wall_ns(last)), Occurrence::Twice(_, later) if later == last);
        let goes_back = 2 * (last - first + self.base.duration_ns()) >= second - first;
        first <= last && last < second && (was_in_it || goes_back)
    }
}
