//! Which clock a file was written by, told from when its weeks end.
//!
//! Currencies stop trading on Friday at 17:00 in New York, summer and winter. A clock on which the last bars of the weeks
//! close at that moment is the right one, whatever the vendor's documentation says.

use crate::format_name::FormatName;
use crate::row::Row;
use crate::timeframe::Timeframe;
use crate::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS, Stamp};
use crate::zone::Zone;

/// Friday 17:00 counted from the start of 1970, which was a Thursday.
const FRIDAY_CLOSE_NS: i64 = DAY_NS + 17 * HOUR_NS;
const WEEK_NS: i64 = 7 * DAY_NS;
const TOLERANCE_NS: i64 = 5 * MINUTE_NS;

/// The clock by which a file is read, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ZoneChoice {
    /// The zone.
    pub(crate) zone: Zone,
    /// Why this one, in words.
    pub(crate) why: String,
    /// What speaks against it, in words.
    pub(crate) warning: Option<String>,
}

/// The ends of weeks seen in one or more files.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeekEnds {
    /// Wall-clock times at which the last bar before a pause of a day or more closes.
    closes_ns: Vec<i64>,
    /// How far around Friday 17:00 such a bar may close: its own length, and no less than a few minutes.
    slack_ns: i64,
}

impl WeekEnds {
    pub(crate) fn new(base: Timeframe) -> Self {
        WeekEnds { closes_ns: Vec::new(), slack_ns: TOLERANCE_NS.max(base.duration_ns() - 1) }
    }

    /// Adds the week ends of one file, whose stamps are `close_delay_ns` before the bars' closes.
    pub(crate) fn add(&mut self, rows: &[Row], close_delay_ns: i64) {
        for pair in rows.windows(2) {
            if let (Stamp::Wall(last_ns), Stamp::Wall(next_ns)) = (pair[0].stamp, pair[1].stamp)
                && next_ns - last_ns >= DAY_NS
            {
                self.closes_ns.push(last_ns + close_delay_ns);
            }
        }
    }

    /// How many weeks end on Friday at 17:00 in New York, if the file's clock is `zone`'s.
    fn agreeing(&self, zone: &Zone) -> usize {
        let new_york = zone_named("America/New_York");
        let agrees = |close_ns: &&i64| {
            let past_close_ns = new_york.wall_ns(zone.utc_ns(**close_ns)) - FRIDAY_CLOSE_NS;
            let centred_ns = (past_close_ns + WEEK_NS / 2).rem_euclid(WEEK_NS) - WEEK_NS / 2;
            (-TOLERANCE_NS..=self.slack_ns).contains(&centred_ns)
        };
        self.closes_ns.iter().filter(agrees).count()
    }

    /// The clock to read files of a format by.
    pub(crate) fn choose(&self, format: FormatName, stated: Option<&Zone>) -> ZoneChoice {
        let candidates = candidates(format);
        let scores: Vec<usize> = candidates.iter().map(|zone| self.agreeing(zone)).collect();
        // Of equal scores the first: the format's own default stands in front.
        let best = (0..scores.len()).rev().max_by_key(|&k| scores[k]).expect("every format has candidates");
        let fits = 2 * scores[best] > self.closes_ns.len();
        let (best_zone, default) = (&candidates[best], &candidates[0]);
        match stated {
            Some(stated) => self.kept(stated, "as stated", fits.then_some(best_zone)),
            None if format == FormatName::Iso => {
                self.kept(default, "the default of timestamps without offset", fits.then_some(best_zone))
            }
            None if fits => ZoneChoice { zone: best_zone.clone(), why: self.tally(best_zone, default), warning: None },
            None => self.undecided(default, format),
        }
    }

    /// A zone that stays whatever the closes say; `fitting` is the one that they speak for.
    fn kept(&self, zone: &Zone, why: &str, fitting: Option<&Zone>) -> ZoneChoice {
        let (agreeing, weeks) = (self.agreeing(zone), self.closes_ns.len());
        let better = fitting.filter(|fitting| self.agreeing(fitting) > agreeing);
        let warning = better.map(|better| {
            format!(
                "the bars are read as {zone}, but then only {agreeing} of {weeks} weeks close on Friday at 17:00 in New York; as {better} it is {}: check the time zone",
                self.agreeing(better)
            )
        });
        ZoneChoice { zone: zone.clone(), why: why.to_owned(), warning }
    }

    fn tally(&self, chosen: &Zone, default: &Zone) -> String {
        let weeks = self.closes_ns.len();
        let found = format!("{} of {weeks} weeks close on Friday at 17:00 in New York", self.agreeing(chosen));
        if chosen == default {
            return format!("the format's default, and {found}");
        }
        format!("{found}; as {default}, the format's default, {} would", self.agreeing(default))
    }

    fn undecided(&self, default: &Zone, format: FormatName) -> ZoneChoice {
        let (zone, weeks) = (default.clone(), self.closes_ns.len());
        if weeks == 0 {
            let why = "the format's default: there is no end of a week to tell it from".to_owned();
            return ZoneChoice { zone, why, warning: None };
        }
        let why = format!("the format's default: no known clock fits the ends of the {weeks} weeks");
        let warning =
            format!("the clock of this {format} file is uncertain: {zone} is assumed; state it with `--zone`");
        ZoneChoice { zone, why, warning: Some(warning) }
    }
}

/// The clocks that files of a format are known to be written by, its documented default first.
fn candidates(format: FormatName) -> Vec<Zone> {
    let names: &[&str] = match format {
        FormatName::HistData => &["-05:00", "America/New_York", "UTC"],
        FormatName::MetaTrader | FormatName::Iso | FormatName::YearLast | FormatName::Epoch => {
            &["UTC", "new-york+7", "+02:00", "+03:00", "America/New_York", "-05:00"]
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

    /// Weeks of minutes that end on Friday 17:00 New York from January on, as `zone`'s clock shows them.
    fn weeks(zone: &str, first_week: i64, count: i64) -> WeekEnds {
        let new_york = zone_named("America/New_York");
        let written_by = zone_named(zone);
        let mut ends = WeekEnds::new(Timeframe::M1);
        for week in first_week..first_week + count {
            let close_ns = 17_536 * DAY_NS + 17 * HOUR_NS + week * WEEK_NS; // from 2018-01-05, a Friday
            ends.closes_ns.push(written_by.wall_ns(new_york.utc_ns(close_ns)));
        }
        ends
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
