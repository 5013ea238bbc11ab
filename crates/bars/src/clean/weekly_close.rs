//! The clock of a file, inferred from its weekends.
//!
//! Currencies stop trading on Friday at 17:00 in New York, summer and winter, and begin on Sunday
//! at 17:00. A clock on which the last bars of the weeks close at that moment is the right one,
//! whatever the vendor's documentation says. Long bars close up to their own length later on
//! several clocks: of those, the one on which the first bars of the weeks hold the beginning of
//! trade is taken, and then the one with the most closes at the very moment.

use std::ops::RangeInclusive;

use crate::clean::gaps::{Gap, WEEKEND_NS_MAX};
use crate::parse::format_name::FormatName;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS, RowTime, display_utc, listed};
use crate::time::zone::Zone;

/// Friday 17:00 counted from the start of 1970, which was a Thursday.
const FRIDAY_CLOSE_NS: i64 = DAY_NS + 17 * HOUR_NS;
const SUNDAY_OPEN_NS: i64 = FRIDAY_CLOSE_NS + 2 * DAY_NS;
const WEEK_NS: i64 = 7 * DAY_NS;
const TOLERANCE_NS: i64 = 5 * MINUTE_NS;
/// Fewest weeks of a file for its own clock to count beside files of another.
const OWN_WEEKS_MIN: usize = 4;
/// Fewest weeks by which another clock fits better for the clock of bars to be doubted: one may be
/// of a holiday.
const DOUBT_WEEKS_MIN: usize = 2;
/// Weeks in which clocks that change at different times of the year differ.
const YEAR_WEEKS: i64 = 53;
/// Longest weekend between ordinary weeks. A holiday beside it, or an early close, makes it longer.
const ORDINARY_NS_MAX: i64 = 2 * DAY_NS + 3 * HOUR_NS;
/// Shortest weekend of an exchange that trades by day: currencies rest for two days.
const EXCHANGE_NS_MIN: i64 = 2 * DAY_NS + 12 * HOUR_NS;
/// Smallest difference between a wrong clock and the right one. The last trade of a week may be
/// some minutes early.
const CLOCK_ERROR_NS_MIN: i64 = 30 * MINUTE_NS;
/// Weekends between files on their clock: of currencies, an hour longer of metals, or an hour
/// shorter or longer where a clock is moved. Files that begin or end within a week lie further
/// apart.
const BETWEEN_FILES_NS: RangeInclusive<i64> = 2 * DAY_NS - HOUR_NS..=2 * DAY_NS + HOUR_NS + CLOCK_ERROR_NS_MIN;

/// The clock by which a file is read, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ZoneChoice {
    /// The zone.
    pub(crate) zone: Zone,
    /// Why this one, in words.
    pub(crate) why: String,
    /// Reason to doubt the clock, in words.
    pub(crate) warning: Option<String>,
}

/// The weekends seen in one or more files.
#[derive(Clone, Debug)]
pub(crate) struct WeekEnds {
    weekends: Vec<Weekend>,
    base: Timeframe,
    /// True if some time needs a clock.
    need_a_clock: bool,
}

/// The pause between two weeks, on the clock of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weekend {
    /// When the last bar before it closes.
    close_ns: i64,
    /// When the first bar after it opens.
    open_ns: i64,
}

/// Fit of a clock; fields are compared in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClockFit {
    /// Weeks that close on Friday at 17:00 in New York, as far as bars of this length show.
    closes: usize,
    /// Weeks whose first bar holds Sunday 17:00 in New York.
    opens: usize,
    /// Weeks that close at that moment, whatever the bars' length.
    exact: usize,
}

impl WeekEnds {
    pub(crate) fn new(base: Timeframe) -> Self {
        WeekEnds { weekends: Vec::new(), base, need_a_clock: false }
    }

    /// Adds the weekends of one file, whose stamps are `close_delay_ns` before the bars' closes.
    /// Daily bars show no hour.
    pub(crate) fn add(&mut self, stamps: impl Iterator<Item = RowTime>, close_delay_ns: i64) {
        if self.base >= Timeframe::D1 {
            return;
        }
        let mut last = None;
        for next in stamps {
            self.need_a_clock |= matches!(next, RowTime::Wall(_));
            if let (Some(RowTime::Wall(last_ns)), RowTime::Wall(next_ns)) = (last.replace(next), next) {
                self.add_pause(last_ns, next_ns, close_delay_ns);
            }
        }
    }

    /// Adds the pause between two bars, whose stamps are `close_delay_ns` before their closes, if
    /// it is a weekend; true if it is. A week that a holiday ended early shows no clock and is left
    /// out.
    pub(crate) fn add_pause(&mut self, last_ns: i64, next_ns: i64, close_delay_ns: i64) -> bool {
        let close_ns = last_ns + close_delay_ns;
        let open_ns = next_ns + close_delay_ns - self.base.duration_ns();
        let pause = Gap { from: close_ns, to: open_ns };
        let is_weekend = (DAY_NS..=WEEKEND_NS_MAX).contains(&pause.duration_ns()) && pause.spans_a_saturday_noon();
        let is_early = pause.duration_ns() > ORDINARY_NS_MAX && pause.begins_on_a_holiday();
        if is_weekend && !is_early {
            self.weekends.push(Weekend { close_ns, open_ns });
        }
        is_weekend
    }

    /// Adds the pause between the last bar of a file and the first of the next, as
    /// [`WeekEnds::add_pause`] does, if it is as long as a weekend of currencies. Daily bars show
    /// no hour.
    pub(crate) fn add_pause_between_files(&mut self, last_ns: i64, next_ns: i64, close_delay_ns: i64) {
        let bar_ns = self.base.duration_ns();
        // Long bars may close and open within the weekend.
        let shortest_ns = BETWEEN_FILES_NS.start() - 2 * (bar_ns - 1);
        let pause_ns = next_ns.saturating_sub(last_ns).saturating_sub(bar_ns);
        if self.base < Timeframe::D1 && (shortest_ns..=*BETWEEN_FILES_NS.end()).contains(&pause_ns) {
            self.add_pause(last_ns, next_ns, close_delay_ns);
        }
    }

    /// Adds the weekends of another file. Those that both have, as they cover the same time, count
    /// once.
    pub(crate) fn extend(&mut self, other: &WeekEnds) {
        let mut new = other.weekends.clone();
        new.retain(|weekend| !self.weekends.contains(weekend));
        self.weekends.extend(new);
        self.need_a_clock |= other.need_a_clock;
    }

    /// Time from Friday 17:00 in New York to the week's close, if the file's clock is `zone`'s.
    fn past_close_ns(zone: &Zone, weekend: &Weekend) -> i64 {
        past_ns(zone, weekend.close_ns, FRIDAY_CLOSE_NS)
    }

    /// True if a week closes on Friday at 17:00 in New York: within a few minutes, or within the
    /// last bar.
    fn closes(&self, zone: &Zone, weekend: &Weekend) -> bool {
        let slack_ns = TOLERANCE_NS.max(self.base.duration_ns() - 1);
        (-TOLERANCE_NS..=slack_ns).contains(&WeekEnds::past_close_ns(zone, weekend))
    }

    fn opens(&self, zone: &Zone, weekend: &Weekend) -> bool {
        let slack_ns = TOLERANCE_NS.max(self.base.duration_ns() - 1);
        (-slack_ns..=TOLERANCE_NS).contains(&past_ns(zone, weekend.open_ns, SUNDAY_OPEN_NS))
    }

    fn fit(&self, zone: &Zone) -> ClockFit {
        let count = |is: &dyn Fn(&Weekend) -> bool| self.weekends.iter().filter(|weekend| is(weekend)).count();
        ClockFit {
            closes: count(&|weekend| self.closes(zone, weekend)),
            opens: count(&|weekend| self.opens(zone, weekend)),
            exact: count(&|weekend| WeekEnds::past_close_ns(zone, weekend).abs() <= TOLERANCE_NS),
        }
    }

    /// Weeks that end on Friday at 17:00 in New York, if the file's clock is `zone`'s.
    fn agreeing(&self, zone: &Zone) -> usize {
        self.fit(zone).closes
    }

    /// The clock that fits best; of several that fit the same, the first: the format's own default
    /// stands in front.
    fn best<'a>(&self, candidates: &'a [Zone]) -> &'a Zone {
        candidates.iter().rev().max_by_key(|zone| self.fit(zone)).expect("every format has candidates")
    }

    /// The clock of one of several files of a format, where every week of the file fits it and
    /// `common`, the clock of all together, misses some: a vendor that changed its clock did so
    /// between two files. ISO timestamps keep their default.
    pub(crate) fn own_choice(&self, format: FormatName, common: &Zone) -> Option<ZoneChoice> {
        let (candidates, weeks) = (candidates(format), self.weekends.len());
        let best = self.best(&candidates);
        let is_own = format != FormatName::Iso
            && weeks >= OWN_WEEKS_MIN
            && self.agreeing(best) == weeks
            && self.agreeing(common) < weeks;
        is_own.then(|| ZoneChoice { zone: best.clone(), why: self.tally(best, &candidates[0]), warning: None })
    }

    /// The clock to read files of a format by.
    pub(crate) fn choose(&self, format: FormatName, stated: Option<&Zone>) -> ZoneChoice {
        self.choose_after(format, stated, None)
    }

    /// As [`WeekEnds::choose`] where files of the format were read by the clock `known` before,
    /// which stays unless the weeks speak for another one.
    pub(crate) fn choose_after(&self, format: FormatName, stated: Option<&Zone>, known: Option<&Zone>) -> ZoneChoice {
        let candidates = candidates(format);
        let (best, default) = (self.best(&candidates), &candidates[0]);
        let fits = 2 * self.agreeing(best) > self.weekends.len();
        match stated {
            Some(stated) => {
                let better = (fits && !self.are_of_an_exchange()).then_some(best);
                self.kept(stated, "as stated", better)
            }
            None if format == FormatName::Iso => {
                let choice = self.kept(default, "the default of timestamps without offset", fits.then_some(best));
                let doubt = || (!fits).then(|| self.unsupported(default, "is assumed", format)).flatten();
                ZoneChoice { warning: choice.warning.clone().or_else(doubt), ..choice }
            }
            None if fits => {
                let warning = self.missed(best).or_else(|| self.too_long_to_tell(best, &candidates));
                let why = self.tally(best, default) + &self.rivals(best, &candidates);
                ZoneChoice { zone: best.clone(), why, warning }
            }
            None => self.undecided(default, known, format),
        }
    }

    /// True if most weekends are as long as those of an exchange that trades by day, whose weeks
    /// show no clock.
    fn are_of_an_exchange(&self) -> bool {
        let is_long = |weekend: &&Weekend| weekend.open_ns - weekend.close_ns >= EXCHANGE_NS_MIN;
        2 * self.weekends.iter().filter(is_long).count() > self.weekends.len()
    }

    /// A doubt about the clock `zone` of bars of `format`, if the ends of several weeks speak for
    /// another one.
    pub(crate) fn doubt(&self, format: FormatName, zone: &Zone) -> Option<String> {
        let candidates = candidates(format);
        let best = self.best(&candidates);
        let (found, better) = (self.fit(zone), self.fit(best));
        let fits = 2 * better.closes > self.weekends.len();
        let is_clear = better.closes >= found.closes + DOUBT_WEEKS_MIN
            || better.closes == found.closes && better.opens >= found.opens + DOUBT_WEEKS_MIN;
        self.kept(zone, "as stated", (fits && is_clear).then_some(best)).warning
    }

    /// True if there are weekends, whose times are in UTC, and most do not begin on Friday at 17:00
    /// in New York: the market is one of other hours, such as that of shares.
    pub(crate) fn close_elsewhere(&self) -> bool {
        !self.weekends.is_empty() && 2 * self.agreeing(&Zone::utc()) <= self.weekends.len()
    }

    /// A doubt about the clock of these weeks, whose times are in UTC, if those of `before` close
    /// on Friday at 17:00 in New York and several of these all at one other hour. Weeks that a
    /// holiday ends early count for none.
    pub(crate) fn doubt_after(&self, before: &WeekEnds) -> Option<String> {
        let (utc, weeks) = (Zone::utc(), self.weekends.len());
        let past_ns = |weekend: &Weekend| WeekEnds::past_close_ns(&utc, weekend);
        let is_missed = |weekend: &&Weekend| {
            weekend.open_ns - weekend.close_ns <= ORDINARY_NS_MAX
                && !self.closes(&utc, weekend)
                && past_ns(weekend).abs() >= CLOCK_ERROR_NS_MIN
        };
        let missed: Vec<&Weekend> = self.weekends.iter().filter(is_missed).collect();
        let first = *missed.first()?;
        let are_alike = missed.iter().all(|weekend| (past_ns(weekend) - past_ns(first)).abs() <= TOLERANCE_NS);
        let is_clear = missed.len() >= DOUBT_WEEKS_MIN && 2 * missed.len() > weeks && are_alike;
        let was_known = 2 * before.agreeing(&utc) > before.weekends.len();
        (is_clear && was_known).then(|| {
            format!(
                "{} of {weeks} weeks of the new bars do not close on Friday at 17:00 in New York, as those before do, but at one other hour ({}): if their times have no offset, check their zone",
                missed.len(),
                shown_in_new_york(first.close_ns)
            )
        })
    }

    /// A zone that stays whatever the weekends say; `fitting` is the one that they speak for.
    fn kept(&self, zone: &Zone, why: &str, fitting: Option<&Zone>) -> ZoneChoice {
        let (found, weeks) = (self.fit(zone), self.weekends.len());
        let warning = fitting.and_then(|better| {
            let ClockFit { closes, opens, .. } = self.fit(better);
            if closes > found.closes {
                return Some(format!(
                    "the bars are read as {zone}, but then only {} of {weeks} weeks close on Friday at 17:00 in New York; as {better} it is {closes}: check the time zone",
                    found.closes
                ));
            }
            // Long bars close alike on several clocks.
            (closes == found.closes && 2 * opens.saturating_sub(found.opens) > weeks).then(|| {
                format!(
                    "the bars are read as {zone}, but then only {} of {weeks} weeks begin on Sunday at 17:00 in New York; as {better} it is {opens}: check the time zone",
                    found.opens
                )
            })
        });
        ZoneChoice { zone: zone.clone(), why: why.to_owned(), warning }
    }

    /// The clocks that fit as well as `chosen` and read times of the year to come otherwise, as the
    /// end of a sentence.
    fn rivals(&self, chosen: &Zone, candidates: &[Zone]) -> String {
        let last_ns = self.weekends.iter().map(|weekend| weekend.close_ns).max().unwrap_or(0);
        let year = (1..=YEAR_WEEKS).map(|week| last_ns + week * WEEK_NS);
        let differs = |other: &Zone| year.clone().any(|wall_ns| chosen.utc_ns(wall_ns) != other.utc_ns(wall_ns));
        let fit = self.fit(chosen);
        let rivals = candidates.iter().filter(|other| self.fit(other) == fit && differs(other));
        let rivals: Vec<String> = rivals.map(ToString::to_string).collect();
        if rivals.is_empty() {
            return String::new();
        }
        format!(
            "; {} fit as well and differ at other times of the year: state the zone if {chosen} is not known to be it",
            listed(&rivals)
        )
    }

    fn tally(&self, chosen: &Zone, default: &Zone) -> String {
        let weeks = self.weekends.len();
        let (found, default_fit) = (self.fit(chosen), self.fit(default));
        let told = format!("{} of {weeks} weeks close on Friday at 17:00 in New York", found.closes);
        if chosen == default {
            return format!("the format's default, and {told}");
        }
        if default_fit.closes == found.closes {
            return format!(
                "{told} and {} begin there on Sunday at 17:00; as {default}, the format's default, {} would begin",
                found.opens, default_fit.opens
            );
        }
        format!("{told}; as {default}, the format's default, {} would", default_fit.closes)
    }

    /// A warning that names the weeks which close at another time.
    fn missed(&self, zone: &Zone) -> Option<String> {
        let missed = self.weekends.iter().filter(|weekend| !self.closes(zone, weekend));
        let missed: Vec<String> = missed.map(|weekend| shown_in_new_york(zone.utc_ns(weekend.close_ns))).collect();
        (!missed.is_empty()).then(|| {
            format!(
                "{} of {} weeks do not close on Friday at 17:00 in New York with the times read as {zone}, the clock that fits best: {}; if they are no holidays, the file's clock is another: state its zone",
                missed.len(),
                self.weekends.len(),
                listed(&missed)
            )
        })
    }

    /// A warning where another clock fits as well and reads other times.
    fn too_long_to_tell(&self, best: &Zone, candidates: &[Zone]) -> Option<String> {
        let reads_otherwise = |other: &Zone| {
            self.weekends.iter().any(|weekend| best.utc_ns(weekend.close_ns) != other.utc_ns(weekend.close_ns))
        };
        let rival = candidates.iter().find(|other| self.fit(other) == self.fit(best) && reads_otherwise(other))?;
        let base = self.base;
        Some(format!(
            "{base} bars are too long to tell {best} from {rival} by the ends of the weeks: {best} is assumed; state the zone"
        ))
    }

    fn undecided(&self, default: &Zone, known: Option<&Zone>, format: FormatName) -> ZoneChoice {
        if self.base >= Timeframe::D1 {
            let why = format!("the format's default: {} bars are told by their dates", self.base);
            return ZoneChoice { zone: default.clone(), why, warning: None };
        }
        let (zone, origin, source) = match known.filter(|known| *known != default) {
            Some(known) => (known, "the clock of before", "is kept from before"),
            None => (default, "the format's default", "is assumed"),
        };
        let why = match self.weekends.len() {
            0 => format!("{origin}: there is no end of a week to tell it from"),
            weeks => format!("{origin}: no known clock fits the ends of the {weeks} weeks"),
        };
        ZoneChoice { zone: zone.clone(), why, warning: self.unsupported(zone, source, format) }
    }

    /// A warning about a clock that no end of a week supports; `source` says where it is from.
    /// Daily bars, and times with their own offset, need none.
    fn unsupported(&self, zone: &Zone, source: &str, format: FormatName) -> Option<String> {
        let found = match self.weekends.len() {
            _ if !self.need_a_clock || self.base >= Timeframe::D1 => return None,
            0 => "there is no end of a week".to_owned(),
            weeks => format!("no known clock fits the ends of the {weeks} weeks"),
        };
        let usual = match format {
            FormatName::MetaTrader => ", which is new-york+7 for most brokers",
            _ => "",
        };
        Some(format!(
            "no evidence supports the clock of this {format} file, {zone}, which {source}: {found}; state its zone{usual}"
        ))
    }
}

/// Time from a moment of the week, counted from the start of 1970 in New York, until the clock of
/// `zone` shows `wall_ns`.
fn past_ns(zone: &Zone, wall_ns: i64, moment_ns: i64) -> i64 {
    let past_ns = new_york().wall_ns(zone.utc_ns(wall_ns)) - moment_ns;
    (past_ns + WEEK_NS / 2).rem_euclid(WEEK_NS) - WEEK_NS / 2
}

/// Date and hour in New York.
fn shown_in_new_york(utc_ns: i64) -> String {
    let shown = display_utc(new_york().wall_ns(utc_ns));
    format!("{} at {}", &shown[..10], &shown[11..16])
}

fn new_york() -> Zone {
    zone_named("America/New_York")
}

/// The clocks that files of a format are known to be written by, its documented default first.
fn candidates(format: FormatName) -> Vec<Zone> {
    let names: &[&str] = match format {
        FormatName::HistData => &["-05:00", "America/New_York", "UTC", "london-5"],
        FormatName::MetaTrader | FormatName::Iso | FormatName::YearLast | FormatName::Epoch => {
            &["UTC", "new-york+7", "+02:00", "+03:00", "America/New_York", "-05:00", "london+2", "london+1", "london+0"]
        }
    };
    names.iter().map(|name| zone_named(name)).collect()
}

fn zone_named(name: &str) -> Zone {
    name.parse().expect("the names in this file are known")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Midnight of a Friday in 2018 or 2019.
    const FRIDAY_2018_NS: i64 = 17_536 * DAY_NS;
    const FRIDAY_2019_NS: i64 = 17_900 * DAY_NS;

    /// Weekends that begin on Friday 17:00 in New York and end on Sunday 17:00, as bars of `base`
    /// on `zone`'s clock show them.
    fn weekends(zone: &str, base: Timeframe, first_friday_ns: i64, count: i64) -> WeekEnds {
        let (new_york, written_by, bar_ns) = (new_york(), zone_named(zone), base.duration_ns());
        let mut ends = WeekEnds::new(base);
        for week in 0..count {
            let wall = |ns: i64| written_by.wall_ns(new_york.utc_ns(first_friday_ns + ns + week * WEEK_NS));
            let (last_ns, first_ns) = (wall(17 * HOUR_NS) - 1, wall(2 * DAY_NS + 17 * HOUR_NS));
            let open = |ns: i64| RowTime::Wall(ns.div_euclid(bar_ns) * bar_ns);
            ends.add([open(last_ns), open(first_ns)].into_iter(), bar_ns);
        }
        ends
    }

    /// Weeks of minutes that close on these days of December 2020 and January 2021, counted from
    /// Friday 2020-12-11, at 17:00 in New York.
    fn weeks_of_a_winter(zone: &str, closing_days: &[i64]) -> WeekEnds {
        const FRIDAY_2020_NS: i64 = 18_607 * DAY_NS;
        let (new_york, written_by) = (new_york(), zone_named(zone));
        let mut ends = WeekEnds::new(Timeframe::M1);
        for day in closing_days {
            let sunday = day.div_euclid(7) * 7 + if day.rem_euclid(7) == 6 { 9 } else { 2 };
            let wall = |day: i64| written_by.wall_ns(new_york.utc_ns(FRIDAY_2020_NS + day * DAY_NS + 17 * HOUR_NS));
            let stamps = [wall(*day) - MINUTE_NS, wall(sunday)];
            ends.add(stamps.map(RowTime::Wall).into_iter(), MINUTE_NS);
        }
        ends
    }

    /// The same from a week of 2018 on, of minutes.
    fn weeks(zone: &str, first_week: i64, count: i64) -> WeekEnds {
        weekends(zone, Timeframe::M1, FRIDAY_2018_NS + first_week * WEEK_NS, count)
    }

    // The weeks of a file that was given twice were counted twice.
    #[test]
    fn weeks_that_two_files_have_count_once() {
        let mut both = weeks("new-york+7", 20, 4);
        both.extend(&weeks("new-york+7", 22, 4));
        let why = both.choose(FormatName::MetaTrader, None).why;
        assert!(why.starts_with("6 of 6 weeks close on Friday"), "{why}");
    }

    // Four weeks of a broker, two of which Christmas Day and New Year's Day ended on Thursday, were
    // read as UTC.
    #[test]
    fn weeks_that_a_holiday_ends_early_have_no_vote() {
        let cases: [(&[i64], &str, &str); 4] = [
            (&[0, 7, 13, 20], "new-york+7", "2 of 2 weeks close on Friday"),
            (&[7, 13, 20], "new-york+7", "1 of 1 weeks close on Friday"),
            (&[13, 20], "UTC", "the format's default: there is no end of a week"),
            // Thursdays before ordinary Fridays.
            (&[-1, 0, 6, 7], "UTC", "the format's default: no known clock fits the ends of the 4 weeks"),
        ];
        for (closing_days, expected, why) in cases {
            let choice = weeks_of_a_winter("new-york+7", closing_days).choose(FormatName::MetaTrader, None);
            assert_eq!(choice.zone.to_string(), expected, "{closing_days:?}: {}", choice.why);
            assert!(choice.why.starts_with(why), "{closing_days:?}: {}", choice.why);
            assert_eq!(choice.warning.is_some(), expected == "UTC", "{closing_days:?}: {:?}", choice.warning);
        }
    }

    // New bars whose weeks fit no clock moved those of before to UTC.
    #[test]
    fn a_known_clock_stays_where_no_clock_fits() {
        let known = zone_named("new-york+7");
        let cases: [(&[i64], &str, &str, &str); 3] = [
            (&[], "UTC", "new-york+7", "the clock of before: there is no end of a week"),
            (&[-1, 0, 6, 7], "new-york+7", "new-york+7", "the clock of before: no known clock fits the ends of the 4"),
            (&[0, 7], "+03:00", "+03:00", "2 of 2 weeks close on Friday"),
        ];
        for (closing_days, written_by, expected, why) in cases {
            let mut ends = weeks_of_a_winter(written_by, closing_days);
            ends.need_a_clock = true;
            let choice = ends.choose_after(FormatName::MetaTrader, None, Some(&known));
            assert_eq!(choice.zone.to_string(), expected, "{closing_days:?}");
            assert!(choice.why.starts_with(why), "{closing_days:?}: {}", choice.why);
            let is_noted =
                choice.warning.is_some_and(|warning| warning.contains("new-york+7, which is kept from before"));
            assert_eq!(is_noted, expected == "new-york+7", "{closing_days:?}");
        }
    }

    // 16:00 in New York is 17:00 there in summer by the clock -05:00.
    #[test]
    fn a_stated_clock_of_shares_is_not_doubted() {
        let mut ends = WeekEnds::new(Timeframe::M1);
        for week in 20..28 {
            let friday_ns = FRIDAY_2018_NS + week * WEEK_NS;
            let times = [16 * HOUR_NS - MINUTE_NS, 3 * DAY_NS + 9 * HOUR_NS + HOUR_NS / 2];
            ends.add(times.map(|ns| RowTime::Wall(friday_ns + ns)).into_iter(), MINUTE_NS);
        }
        assert_eq!(ends.choose(FormatName::Iso, Some(&new_york())).warning, None);
    }

    #[test]
    fn the_clock_is_told_from_the_closes() {
        use FormatName::{HistData, Iso, MetaTrader};
        // Clock that wrote the file, first week, weeks, format, clock that is found.
        let cases = [
            ("America/New_York", 0, 52, HistData, "America/New_York"),
            ("-05:00", 0, 8, HistData, "-05:00"),
            ("America/New_York", 0, 8, HistData, "-05:00"), // equal in winter: the documented default
            ("new-york+7", 0, 52, MetaTrader, "new-york+7"),
            ("new-york+7", 20, 4, MetaTrader, "new-york+7"),
            ("+02:00", 0, 8, MetaTrader, "new-york+7"),
            ("UTC", 20, 4, MetaTrader, "UTC"),
            ("Asia/Tokyo", 0, 52, MetaTrader, "UTC"),
            ("new-york+7", 0, 52, Iso, "UTC"),
        ];
        for (written_by, first_week, count, format, expected) in cases {
            let choice = weeks(written_by, first_week, count).choose(format, None);
            assert_eq!(choice.zone.to_string(), expected, "{written_by} {format}: {}", choice.why);
        }
        assert_eq!(
            weeks("America/New_York", 0, 52).choose(HistData, None).why,
            "52 of 52 weeks close on Friday at 17:00 in New York; as -05:00, the format's default, 18 would"
        );
    }

    /// `megabatch ingest EURUSD_H4.csv` of a broker said "51 of 51 weeks close on Friday" and read
    /// the times as UTC.
    #[test]
    fn the_clock_of_long_bars_is_told_from_both_sides_of_the_weekend() {
        use FormatName::{HistData, Iso, MetaTrader};
        let cases = [
            ("new-york+7", MetaTrader, "new-york+7"),
            ("UTC", MetaTrader, "UTC"),
            ("+02:00", MetaTrader, "+02:00"),
            ("london+2", MetaTrader, "london+2"),
            ("America/New_York", HistData, "America/New_York"),
            ("-05:00", HistData, "-05:00"),
            ("london-5", HistData, "london-5"),
            ("UTC", HistData, "UTC"),
        ];
        for base in [Timeframe::M15, Timeframe::H1, Timeframe::H4] {
            for (written_by, format, expected) in cases {
                let choice = weekends(written_by, base, FRIDAY_2019_NS, 51).choose(format, None);
                assert_eq!(choice.zone.to_string(), expected, "{written_by} {format} {base}: {}", choice.why);
            }
        }
        let broker = weekends("new-york+7", Timeframe::H4, FRIDAY_2019_NS, 51);
        let why = broker.choose(MetaTrader, None).why;
        let expected = "51 of 51 weeks close on Friday at 17:00 in New York and 51 begin there on Sunday at 17:00; as UTC, the \
                        format's default, 0 would begin";
        assert_eq!(why, expected);
        let warning = broker.choose(Iso, None).warning.unwrap();
        assert!(
            warning.contains("only 0 of 51 weeks begin on Sunday") && warning.contains("new-york+7 it is 51"),
            "{warning}"
        );
        assert_eq!(weekends("UTC", Timeframe::H4, FRIDAY_2019_NS, 51).choose(Iso, None).warning, None);
    }

    /// HistData's files of 2019 change clocks with London: "48 of 52 weeks" stood there as if that
    /// were agreement, and the bars of four weeks were an hour early.
    #[test]
    fn clocks_that_change_on_european_dates_are_found() {
        use FormatName::HistData;
        let year = weekends("london-5", Timeframe::M1, FRIDAY_2019_NS, 52);
        assert_eq!(year.agreeing(&zone_named("America/New_York")), 48);
        let choice = year.choose(HistData, None);
        assert_eq!((choice.zone.to_string().as_str(), choice.warning), ("london-5", None));
        // A file of the year before, whose clock is New York's, beside it: of three weeks there
        // London's clock says otherwise.
        let before = weeks("America/New_York", 0, 52);
        let mut both = before.clone();
        both.extend(&year);
        let common = both.choose(HistData, None);
        assert_eq!((common.zone.to_string().as_str(), both.agreeing(&common.zone)), ("london-5", 101));
        assert_eq!(before.own_choice(HistData, &common.zone).unwrap().zone.to_string(), "America/New_York");
        assert_eq!(year.own_choice(HistData, &common.zone), None);
        // Three weeks show no clock of their own.
        let few = weekends("america/new_york", Timeframe::M1, FRIDAY_2018_NS + 10 * WEEK_NS, 3);
        assert_eq!(few.own_choice(HistData, &common.zone), None);
    }

    /// `megabatch ingest` of a broker's winter chose one of three clocks without a word.
    #[test]
    fn clocks_that_differ_in_summer_alone_are_named() {
        use FormatName::{HistData, MetaTrader};
        let told = |zone: &str, count: i64, format: FormatName| weeks(zone, 0, count).choose(format, None).why;
        assert_eq!(
            told("new-york+7", 8, MetaTrader),
            "8 of 8 weeks close on Friday at 17:00 in New York; as UTC, the format's default, 0 would; +02:00, london+2 fit as \
             well and differ at other times of the year: state the zone if new-york+7 is not known to be it"
        );
        // A week that ends early left them out.
        let mut early = weeks("new-york+7", 0, 8);
        early.weekends[3].close_ns -= HOUR_NS;
        let ZoneChoice { why, warning, .. } = early.choose(MetaTrader, None);
        assert!(why.contains("7 of 8 weeks") && why.contains("; +02:00, london+2 fit as well"), "{why}");
        assert!(warning.is_some_and(|warning| warning.starts_with("1 of 8 weeks do not close")));
        let winter = told("-05:00", 8, HistData);
        assert!(winter.contains("; America/New_York, london-5 fit as well and differ"), "{winter}");
        for (zone, format) in [("new-york+7", MetaTrader), ("America/New_York", HistData)] {
            let year = told(zone, 52, format);
            assert!(!year.contains("fit as well"), "{year}");
        }
    }

    #[test]
    fn a_clock_is_doubted_by_several_weeks() {
        let winter = weeks("+02:00", 0, 8);
        for (summer_weeks, clock, expected) in [
            (0, "new-york+7", None),
            (1, "new-york+7", None),
            (2, "new-york+7", Some("only 8 of 10 weeks close on Friday at 17:00 in New York; as +02:00 it is 10")),
            (2, "+02:00", None),
        ] {
            let mut ends = winter.clone();
            ends.extend(&weeks("+02:00", 20, summer_weeks));
            let doubt = ends.doubt(FormatName::MetaTrader, &zone_named(clock));
            assert_eq!(doubt.is_some(), expected.is_some(), "{summer_weeks} {clock}: {doubt:?}");
            assert!(expected.is_none_or(|text| doubt.is_some_and(|doubt| doubt.contains(text))), "{clock}");
        }
        assert_eq!(WeekEnds::new(Timeframe::M1).doubt(FormatName::MetaTrader, &Zone::utc()), None);
    }

    /// The last trades of quiet weeks were taken for those of another clock.
    #[test]
    fn later_weeks_are_doubted_where_they_close_at_another_hour() {
        let before = weeks("UTC", 0, 8);
        for (early_ns, is_doubted) in [(0, false), (8 * MINUTE_NS, false), (HOUR_NS, true)] {
            let mut later = weeks("UTC", 20, 3);
            later.weekends.iter_mut().for_each(|weekend| weekend.close_ns -= early_ns);
            assert_eq!(later.doubt_after(&before).is_some(), is_doubted, "{early_ns}");
        }
    }

    #[test]
    fn weeks_that_close_at_another_time_are_named() {
        // Both changes of a clock that no candidate has: one that changes with New York's, two
        // weeks late.
        let mut year = weekends("America/New_York", Timeframe::M1, FRIDAY_2019_NS, 52);
        for place in [10, 44] {
            year.weekends[place].close_ns -= HOUR_NS;
        }
        let warning = year.choose(FormatName::HistData, None).warning.unwrap();
        assert!(
            warning.starts_with(
                "2 of 52 weeks do not close on Friday at 17:00 in New York with the times read as America/New_York"
            ) && warning.contains(": 2019-03-15 at 16:00, 2019-11-08 at 16:00; ")
                && warning.contains("state its zone"),
            "{warning}"
        );
    }

    #[test]
    fn daily_bars_need_no_clock() {
        let day = |day: i64| RowTime::Wall(day * DAY_NS);
        let rows: Vec<RowTime> = (0..365).filter(|day| !matches!(day % 7, 2 | 3)).map(day).collect();
        let mut ends = WeekEnds::new(Timeframe::D1);
        ends.add(rows.into_iter(), DAY_NS);
        let ZoneChoice { why, warning, .. } = ends.choose(FormatName::MetaTrader, None);
        assert_eq!((why.as_str(), warning), ("the format's default: D1 bars are told by their dates", None));
    }

    #[test]
    fn a_clock_that_disagrees_with_the_closes_is_warned_of() {
        let utc = Zone::utc();
        let year = weeks("new-york+7", 0, 52);
        for stated in [Some(&utc), None] {
            let choice = year.choose(FormatName::Iso, stated);
            assert_eq!(choice.zone, utc);
            let warning = choice.warning.unwrap();
            assert!(warning.contains("only 0 of 52 weeks") && warning.contains("new-york+7 it is 52"), "{warning}");
        }
        let right = zone_named("new-york+7");
        assert_eq!(year.choose(FormatName::MetaTrader, Some(&right)).warning, None);
        assert_eq!(WeekEnds::new(Timeframe::M1).choose(FormatName::HistData, Some(&utc)).warning, None);
        assert!(weeks("Asia/Tokyo", 0, 52).choose(FormatName::MetaTrader, None).warning.is_some());
    }
}
