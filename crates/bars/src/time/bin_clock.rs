//! Bins on the wall clock of a zone.
//!
//! ```text
//! New York + 7 hours, H4, Sunday 2018-11-04, clock moved from 9:00 back to 8:00
//! clock   4:00 ........ 8:00 . 9:00|8:00 . 9:00 ........ 12:00
//! bins    [ 4 hours    ][ 5 hours                        ]
//! ```
//!
//! A bin starts when the clock shows a multiple of the timeframe for the first time, or is moved
//! forward over one. A change of the clock by a multiple of the timeframe leaves its bins alone: an
//! hour changes no bin of H1 or shorter.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use crate::time::timeframe::Timeframe;
use crate::time::zone::{ClockChange, Zone};
use crate::unknown_name::UnknownName;

/// Clock at whose multiples of a timeframe bins start, weeks on Mondays: UTC by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BinClock(Option<Arc<Zone>>);

impl BinClock {
    /// True for UTC, which is never changed.
    pub fn is_utc(&self) -> bool {
        self.0.is_none()
    }

    /// The bin of `timeframe` that holds `time_ns`, in nanoseconds since 1970 UTC.
    pub(crate) fn bin(&self, timeframe: Timeframe, time_ns: i64) -> Range<i64> {
        let Some(zone) = &self.0 else { return timeframe.bin(time_ns) };
        let grid = Grid { zone, timeframe };
        grid.start(time_ns)..grid.end(time_ns)
    }

    /// The time at which the clock shows `wall_ns`, both in nanoseconds since 1970.
    pub(crate) fn utc_ns(&self, wall_ns: i64) -> i64 {
        self.0.as_ref().map_or(wall_ns, |zone| zone.utc_ns(wall_ns))
    }

    /// The start of the first bin from `time_ns` on that no change of the clock shortens.
    pub(crate) fn next_whole_bin(&self, timeframe: Timeframe, time_ns: i64) -> i64 {
        let mut bin = self.bin(timeframe, time_ns);
        while bin.start < time_ns || self.is_shortened(timeframe, &bin) {
            bin = self.bin(timeframe, bin.end);
        }
        bin.start
    }

    fn is_shortened(&self, timeframe: Timeframe, bin: &Range<i64>) -> bool {
        let wall_ns = self.0.as_ref().map_or(bin.start, |zone| zone.wall_ns(bin.start));
        let unchanged = timeframe.bin(wall_ns);
        bin.end - bin.start < unchanged.end - unchanged.start
    }
}

impl fmt::Display for BinClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("UTC"),
            Some(zone) => zone.fmt(f),
        }
    }
}

impl FromStr for BinClock {
    type Err = UnknownName;

    /// Reads what [`Zone`] reads.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let zone: Zone = name.parse()?;
        Ok(BinClock((zone != Zone::utc()).then(|| Arc::new(zone))))
    }
}

/// Starts of the bins of one timeframe.
struct Grid<'a> {
    zone: &'a Zone,
    timeframe: Timeframe,
}

impl Grid<'_> {
    /// The last start up to `time_ns`.
    fn start(&self, time_ns: i64) -> i64 {
        let ahead_ns = self.zone.wall_ns(time_ns) - time_ns;
        let start = self.timeframe.bin(time_ns + ahead_ns).start - ahead_ns;
        let Some(change) = self.zone.last_change(time_ns) else { return start };
        if start >= self.first_after(&change) {
            start
        } else if self.starts_at(&change) {
            change.at
        } else {
            self.start(change.at - 1)
        }
    }

    /// The first start after `time_ns`.
    fn end(&self, time_ns: i64) -> i64 {
        let ahead_ns = self.zone.wall_ns(time_ns) - time_ns;
        let first = self.zone.last_change(time_ns).map_or(i64::MIN, |change| self.first_after(&change));
        // The first multiple that is neither in the past nor was shown before the clock went back.
        let last_shown = time_ns.max(first.saturating_sub(1));
        let end = self.timeframe.bin(last_shown + ahead_ns).end - ahead_ns;
        match self.zone.next_change(time_ns) {
            Some(change) if end >= change.at => {
                let starts = if self.moves(&change) { self.starts_at(&change) } else { end == change.at };
                if starts { change.at } else { self.end(change.at) }
            }
            _ => end,
        }
    }

    /// True if a change of the clock moves the bins.
    fn moves(&self, change: &ClockChange) -> bool {
        change.back_ns() % self.timeframe.duration_ns() != 0
    }

    /// When the clock shows new times after a change: later if it was moved back.
    fn first_after(&self, change: &ClockChange) -> i64 {
        change.at + if self.moves(change) { change.back_ns().max(0) } else { 0 }
    }

    /// True if the clock is moved forward over the start of a bin, or onto it.
    fn starts_at(&self, change: &ClockChange) -> bool {
        let bin = |wall_ns: i64| self.timeframe.bin(wall_ns).start;
        let (before, after) = (change.at - 1 + change.before_ns, change.at + change.after_ns);
        self.moves(change) && bin(after) > bin(before)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::time::timestamp::{HOUR_NS, MINUTE_NS, display_utc};

    pub(crate) const TIMEFRAMES: [Timeframe; 10] = [
        Timeframe::M5,
        Timeframe::M20,
        Timeframe::M30,
        Timeframe::H1,
        Timeframe::H2,
        Timeframe::H3,
        Timeframe::H4,
        Timeframe::H8,
        Timeframe::D1,
        Timeframe::W1,
    ];

    /// Weeks around a change of clocks, minute by minute.
    pub(crate) struct Weeks {
        pub(crate) clock: BinClock,
        /// The first minute, since 1970 UTC.
        pub(crate) first: i64,
        /// The clock at each minute, in minutes since 1970.
        wall: Vec<i64>,
        /// Minutes by which the clock is moved; 0 for no change.
        moved: i64,
    }

    impl Weeks {
        /// Five weeks around `day`, with the clock of `zone` and `hours` more.
        fn new(name: &str, zone: &str, hours: i64, day: &str) -> Self {
            let zone = TimeZone::get(zone).unwrap();
            let middle = format!("{day}T00:00Z").parse::<Timestamp>().unwrap().as_second() / 60;
            let first = middle - 17 * 1_440;
            let wall = |minute: i64| {
                let offset = zone.to_offset(Timestamp::from_second(minute * 60).unwrap());
                minute + i64::from(offset.seconds()) / 60 + hours * 60
            };
            let wall: Vec<i64> = (first..first + 35 * 1_440).map(wall).collect();
            let moved = wall[wall.len() - 1] - wall[0] - (wall.len() as i64 - 1);
            Weeks { clock: name.parse().unwrap(), first, wall, moved }
        }

        /// The minutes at which the bins of `timeframe` start, by going through all minutes.
        pub(crate) fn starts(&self, timeframe: Timeframe) -> Vec<i64> {
            let minutes = timeframe.duration_ns() / MINUTE_NS;
            let origin = if timeframe == Timeframe::W1 { 4 * 1_440 } else { 0 };
            let is_fixed = self.moved % minutes == 0;
            let mut latest = i64::MIN;
            let mut starts = Vec::new();
            for (place, &wall) in self.wall.iter().enumerate() {
                let is_start = match is_fixed {
                    true => (wall - origin) % minutes == 0,
                    false => (wall - origin).div_euclid(minutes) > latest,
                };
                latest = latest.max((wall - origin).div_euclid(minutes));
                if is_start {
                    starts.push(self.first + place as i64);
                }
            }
            // The weeks begin within a bin.
            if !is_fixed {
                starts.remove(0);
            }
            starts
        }
    }

    pub(crate) static WEEKS: LazyLock<Vec<Weeks>> = LazyLock::new(|| {
        let new_york = ["2018-03-11", "2018-11-04"];
        let zones = [
            ("new-york+7", "America/New_York", 7, new_york),
            ("new-york+2", "America/New_York", 2, new_york),
            ("new-york-3", "America/New_York", -3, new_york),
            ("America/New_York", "America/New_York", 0, new_york),
            ("Europe/London", "Europe/London", 0, ["2018-03-25", "2018-10-28"]),
            ("london-5", "Europe/London", -5, ["2018-03-25", "2018-10-28"]),
            // At midnight; by half an hour; one minute after midnight; never.
            ("America/Sao_Paulo", "America/Sao_Paulo", 0, ["2018-11-04", "2018-02-18"]),
            ("Australia/Lord_Howe", "Australia/Lord_Howe", 0, ["2018-04-01", "2018-10-07"]),
            ("America/St_Johns", "America/St_Johns", 0, ["2010-03-14", "2010-11-07"]),
            ("Asia/Kolkata", "Asia/Kolkata", 0, ["2018-03-25", "2018-10-28"]),
        ];
        let weeks = |(name, zone, hours, days): (&str, &str, i64, [&str; 2])| {
            days.map(|day| Weeks::new(name, zone, hours, day))
        };
        zones.into_iter().flat_map(weeks).collect()
    });

    #[test]
    fn every_minute_lies_in_the_bin_that_a_search_finds() {
        for week in WEEKS.iter() {
            for timeframe in TIMEFRAMES {
                let (starts, clock) = (week.starts(timeframe), &week.clock);
                assert!(starts.len() > 4);
                let middle = week.first + 17 * 1_440;
                // Short bins are many: those of three days.
                let is_near = |start: i64| timeframe >= Timeframe::H1 || (middle - start).abs() < 2_160;
                for pair in starts.windows(2).filter(|pair| is_near(pair[0])) {
                    let expected = pair[0] * MINUTE_NS..pair[1] * MINUTE_NS;
                    let step = (pair[1] - pair[0]).div_euclid(97).max(1) as usize;
                    for minute in (pair[0]..pair[1]).step_by(step).chain([pair[1] - 1]) {
                        let (time, last) = (minute * MINUTE_NS, minute * MINUTE_NS + MINUTE_NS - 1);
                        assert_eq!(
                            (clock.bin(timeframe, time), clock.bin(timeframe, last)),
                            (expected.clone(), expected.clone()),
                            "{clock} {timeframe} {}",
                            display_utc(time)
                        );
                    }
                }
            }
        }
    }

    /// Lengths in hours of the bins of a day of change, and of the day itself.
    #[test]
    fn bins_are_an_hour_longer_or_shorter_where_the_clock_is_changed() {
        let at = |text: &str| {
            let time: Timestamp = text.parse().unwrap();
            i64::try_from(time.as_nanosecond()).unwrap()
        };
        let hours = |clock: &str, timeframe: Timeframe, time: &str| {
            let bin = clock.parse::<BinClock>().unwrap().bin(timeframe, at(time));
            (display_utc(bin.start), (bin.end - bin.start) / HOUR_NS)
        };
        for (clock, timeframe, time, start, length) in [
            // Closes at 17:00 in New York, in winter and in summer.
            ("new-york+7", Timeframe::D1, "2018-01-05T12:00Z", "2018-01-04T22:00:00Z", 24),
            ("new-york+7", Timeframe::D1, "2018-07-05T12:00Z", "2018-07-04T21:00:00Z", 24),
            ("new-york+7", Timeframe::D1, "2018-03-11T12:00Z", "2018-03-10T22:00:00Z", 23),
            ("new-york+7", Timeframe::D1, "2018-11-04T12:00Z", "2018-11-03T21:00:00Z", 25),
            ("new-york+7", Timeframe::H4, "2018-03-11T07:00Z", "2018-03-11T06:00:00Z", 3),
            ("new-york+7", Timeframe::H4, "2018-11-04T06:30Z", "2018-11-04T05:00:00Z", 5),
            ("new-york+7", Timeframe::H1, "2018-11-04T05:30Z", "2018-11-04T05:00:00Z", 1),
            ("new-york+7", Timeframe::H1, "2018-11-04T06:30Z", "2018-11-04T06:00:00Z", 1),
            ("new-york+7", Timeframe::W1, "2018-11-04T06:30Z", "2018-10-28T21:00:00Z", 7 * 24 + 1),
            ("Europe/London", Timeframe::W1, "2018-03-20T00:00Z", "2018-03-19T00:00:00Z", 7 * 24 - 1),
            ("new-york+7", Timeframe::H2, "2018-11-04T06:30Z", "2018-11-04T05:00:00Z", 3),
            ("new-york+7", Timeframe::MN1, "2018-11-15T00:00Z", "2018-10-31T21:00:00Z", 30 * 24 + 1),
            ("new-york+7", Timeframe::MN1, "2018-03-31T20:59Z", "2018-02-28T22:00:00Z", 31 * 24 - 1),
            ("UTC", Timeframe::MN1, "2016-02-29T23:59Z", "2016-02-01T00:00:00Z", 29 * 24),
            ("UTC", Timeframe::H4, "2018-11-04T06:30Z", "2018-11-04T04:00:00Z", 4),
        ] {
            assert_eq!(hours(clock, timeframe, time), (start.to_owned(), length), "{clock} {timeframe} {time}");
        }
        let broker: BinClock = "new-york+7".parse().unwrap();
        // The day of 23 hours is none.
        let sunday = at("2018-03-10T22:00Z");
        assert_eq!(broker.next_whole_bin(Timeframe::D1, sunday), at("2018-03-11T21:00Z"));
        assert_eq!(broker.next_whole_bin(Timeframe::D1, sunday - 1), at("2018-03-11T21:00Z"));
        assert_eq!(broker.next_whole_bin(Timeframe::H1, sunday), sunday);
        // February is short by the calendar alone, and March by the clock.
        assert_eq!(broker.next_whole_bin(Timeframe::MN1, at("2018-01-31T22:00Z")), at("2018-01-31T22:00Z"));
        assert_eq!(broker.next_whole_bin(Timeframe::MN1, at("2018-02-01T00:00Z")), at("2018-03-31T21:00Z"));
    }

    #[test]
    fn clocks_are_those_of_zones() {
        assert_eq!("utc".parse(), Ok(BinClock::default()));
        for name in ["UTC", "-05:00", "new-york+7", "Europe/London"] {
            assert_eq!(name.parse::<BinClock>().unwrap().to_string(), name);
        }
        let error = "exchange".parse::<BinClock>().unwrap_err().to_string();
        assert!(error.starts_with("unknown time zone `exchange`: expected UTC, an offset such as"), "{error}");
    }
}
