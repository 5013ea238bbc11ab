//! The timeframe of a file's bars, inferred from their spacing.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::parse::row_store::RowStore;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, RowTime, display_duration};

/// Timeframes that files mix. Other distances, such as two bars, are those of holes and breaks.
pub(super) const MIXED: [Timeframe; 7] =
    [Timeframe::M5, Timeframe::M15, Timeframe::M30, Timeframe::H1, Timeframe::H4, Timeframe::D1, Timeframe::W1];

/// Another timeframe's spacing between this share of the bars is worth a warning.
const FOREIGN_SHARE_MIN: f64 = 0.05;

/// Fewest distances in a file for its timeframe to count beside files of another.
const SHOWN_MIN: u64 = 3;

/// Distances of bars of months that may be stamped on the first or the last day of trading.
const MONTH_NS: RangeInclusive<i64> = 25 * DAY_NS..=35 * DAY_NS;

/// Files of shorter bars with holes at random of which one looks as if its bars were longer; in
/// fewer, they are.
pub(super) const CHANCE_OF: f64 = 1e5;

/// Frequency of each distance between neighbouring rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spacings {
    counts: HashMap<i64, u64>,
    total: u64,
}

impl Spacings {
    /// Adds the distances within one file between rows that are neighbours in time, whatever their
    /// order in the file. Duplicates have none.
    pub(crate) fn add(&mut self, rows: &RowStore) {
        let times = || rows.stamps().map(RowTime::ns);
        if times().is_sorted() {
            self.add_sorted(times());
        } else {
            self.add_times(times().collect());
        }
    }

    /// Adds the distances between neighbouring `times`, which may be in any order.
    pub(crate) fn add_times(&mut self, mut times: Vec<i64>) {
        times.sort_unstable();
        self.add_sorted(times.into_iter());
    }

    fn add_sorted(&mut self, times: impl Iterator<Item = i64>) {
        let mut last: Option<i64> = None;
        // Most distances are that of the rows before.
        let (mut spacing_ns, mut count) = (0, 0);
        for time in times {
            let found_ns = last.replace(time).map_or(0, |last| time.saturating_sub(last));
            if found_ns != spacing_ns {
                self.count(spacing_ns, count);
                (spacing_ns, count) = (found_ns, 0);
            }
            count += 1;
        }
        self.count(spacing_ns, count);
    }

    /// Adds `count` times the same distance between two rows.
    pub(crate) fn count(&mut self, spacing_ns: i64, count: u64) {
        if spacing_ns > 0 {
            *self.counts.entry(spacing_ns).or_default() += count;
            self.total += count;
        }
    }

    /// The counts of both together.
    pub(crate) fn extend(&mut self, other: &Spacings) {
        other.counts.iter().for_each(|(&spacing_ns, &count)| self.count(spacing_ns, count));
    }

    /// The timeframe of the bars: as stated, if some bars are that far apart, or else the commonest
    /// spacing.
    pub(crate) fn base(&self, stated: Option<Timeframe>) -> Result<Timeframe> {
        match stated {
            Some(stated) if stated.is_calendar_month() => Err(self.monthly()),
            Some(stated) if self.total == 0 || self.counts.keys().any(|&spacing_ns| is_a_bar(spacing_ns, stated)) => {
                Ok(stated)
            }
            Some(_) if self.are_months() => Err(self.monthly()),
            Some(stated) => {
                let closest = self.counts.keys().min().copied().map(display_duration).unwrap_or_default();
                Err(Error::WrongBase { stated, closest })
            }
            None => self.commonest(),
        }
    }

    /// The timeframe of a file by itself, where it shows: the commonest distance, where every other
    /// is a multiple of it. Bars of a shorter timeframe with many holes have others too.
    pub(crate) fn only(&self) -> Option<Timeframe> {
        let timeframe = self.commonest().ok()?;
        (self.total >= SHOWN_MIN && self.are_multiples_of(timeframe)).then_some(timeframe)
    }

    /// True if every distance is a multiple of that timeframe. Between two midnights of an
    /// exchange, its clock may be moved by an hour.
    pub(crate) fn are_multiples_of(&self, timeframe: Timeframe) -> bool {
        let bar_ns = timeframe.duration_ns();
        let change_ns = if matches!(timeframe, Timeframe::D1 | Timeframe::W1) { HOUR_NS } else { 0 };
        let is_multiple = |late_ns: i64| late_ns >= bar_ns && late_ns % bar_ns <= 2 * change_ns;
        self.counts.keys().all(|&spacing_ns| is_multiple(spacing_ns.saturating_add(change_ns)))
    }

    /// True if the bars can be of that timeframe: some are as far apart, and all by multiples of
    /// it, or there is one.
    pub(crate) fn fits(&self, timeframe: Timeframe) -> bool {
        self.are_multiples_of(timeframe) && self.base(Some(timeframe)).is_ok()
    }

    /// A timeframe longer than `base` that the file shows by itself, where bars of `base` with
    /// holes at random would hardly lie so: of n distances, all are multiples of k bars in one of
    /// k^n files.
    pub(crate) fn evidently_longer(&self, base: Timeframe) -> Option<Timeframe> {
        let own = self.only().filter(|own| *own > base)?;
        let multiple = own.duration_ns() as f64 / base.duration_ns() as f64;
        // Those over a change of clocks show less.
        let whole = self.counts.iter().filter(|(spacing_ns, _)| **spacing_ns % own.duration_ns() == 0);
        let shown: u64 = whole.map(|(_, count)| count).sum();
        (shown as f64 * multiple.ln() > CHANCE_OF.ln()).then_some(own)
    }

    /// The commonest distance shorter than `base`, in nanoseconds, where most distances are
    /// shorter: bars of `base` are as close by defects alone.
    pub(crate) fn evidently_shorter(&self, base: Timeframe) -> Option<i64> {
        let shorter_than_base = |spacing_ns| is_shorter(spacing_ns, base);
        let shorter = self.counts.iter().filter(|(spacing_ns, _)| shorter_than_base(**spacing_ns));
        let count: u64 = shorter.map(|(_, count)| count).sum();
        let is_evident = self.total >= SHOWN_MIN && 2 * count > self.total;
        self.commonest_of(shorter_than_base).filter(|_| is_evident).map(|(spacing_ns, _)| spacing_ns)
    }

    /// The commonest of some distances, the shortest of several, and its count.
    fn commonest_of(&self, is_wanted: impl Fn(i64) -> bool) -> Option<(i64, u64)> {
        let wanted = self.counts.iter().map(|(&spacing_ns, &count)| (spacing_ns, count));
        wanted.filter(|&(spacing_ns, _)| is_wanted(spacing_ns)).max_by_key(|&(spacing_ns, count)| (count, -spacing_ns))
    }

    fn commonest(&self) -> Result<Timeframe> {
        let Some((spacing_ns, count)) = self.commonest_of(|_| true) else {
            return Err(Error::UnknownBase { found: "no two bars have different times".to_owned() });
        };
        let week = Some(Timeframe::W1).filter(|week| is_a_bar(spacing_ns, *week));
        Timeframe::from_duration_ns(spacing_ns).or(week).ok_or_else(|| {
            if self.are_months() {
                return self.monthly();
            }
            let spacing = display_duration(spacing_ns);
            let total = self.total;
            let found = format!("the commonest spacing is {spacing}, {count} times of {total}, which is no timeframe");
            Error::UnknownBase { found }
        })
    }

    /// Distances that two bars of neighbouring months have.
    fn months(&self) -> u64 {
        self.counts.iter().filter(|(spacing_ns, _)| MONTH_NS.contains(*spacing_ns)).map(|(_, count)| count).sum()
    }

    /// True if most bars are a month apart.
    fn are_months(&self) -> bool {
        2 * self.months() > self.total
    }

    /// True for bars of a timeframe of which most are a month apart.
    pub(crate) fn may_be_few_of(&self, timeframe: Timeframe) -> bool {
        self.are_months() && self.are_multiples_of(timeframe)
    }

    /// True if two neighbouring bars are that far apart.
    pub(crate) fn have(&self, spacing_ns: i64) -> bool {
        self.counts.contains_key(&spacing_ns)
    }

    /// True for bars that may be of months, if a name says so, or that are by their distances.
    pub(crate) fn may_be_months(&self, is_named: bool) -> bool {
        if is_named { self.total == 0 || self.are_months() } else { self.total >= SHOWN_MIN && self.are_months() }
    }

    /// The refusal of bars of months.
    fn monthly(&self) -> Error {
        let (months, total) = (self.months(), self.total);
        let found = match self.are_months() {
            true => format!("{months} of {total} neighbouring bars are a month apart"),
            false => "the bars were stated to be MN1".to_owned(),
        };
        Error::MonthlyBase { found }
    }

    /// Reasons against a spacing of `base`: such bars would be taken as closed too early or too
    /// late.
    pub(crate) fn warnings(&self, base: Timeframe) -> Vec<String> {
        let mut warnings = Vec::new();
        for other in MIXED.into_iter().filter(|other| *other > base) {
            let count = self.counts.get(&other.duration_ns()).copied().unwrap_or(0);
            if count as f64 >= FOREIGN_SHARE_MIN * self.total as f64 && count > 0 {
                warnings.push(format!(
                    "{count} of {} neighbouring bars are {other} apart: if those are {other} bars they are wrongly taken as closed after {base}; keep one timeframe a file",
                    self.total
                ));
            }
        }
        let overlapping: u64 =
            self.counts.iter().filter(|(spacing_ns, _)| is_shorter(**spacing_ns, base)).map(|(_, count)| count).sum();
        if overlapping > 0 {
            let bars = if overlapping == 1 { "bar opens" } else { "bars open" };
            warnings.push(format!("{overlapping} {bars} before the {base} bar ahead closes"));
        }
        warnings
    }
}

/// Time by which a clock is moved between two bars of a timeframe. A week has seven days of its
/// exchange, one of which may be an hour shorter or longer.
fn clock_change_ns(timeframe: Timeframe) -> i64 {
    if timeframe == Timeframe::W1 { HOUR_NS } else { 0 }
}

/// True if two neighbouring bars of a timeframe may be that far apart.
fn is_a_bar(spacing_ns: i64, timeframe: Timeframe) -> bool {
    (spacing_ns - timeframe.duration_ns()).abs() <= clock_change_ns(timeframe)
}

/// True if no two bars of a timeframe are as close.
fn is_shorter(spacing_ns: i64, timeframe: Timeframe) -> bool {
    match timeframe.is_calendar_month() {
        true => spacing_ns < *MONTH_NS.start(),
        false => spacing_ns < timeframe.duration_ns() - clock_change_ns(timeframe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::row::BarRow;
    use crate::time::timestamp::MINUTE_NS;

    fn spacings(minutes: &[i64]) -> Spacings {
        let row = |&minute: &i64| BarRow::flat(RowTime::Wall(minute * MINUTE_NS), 1.0, 1);
        let mut spacings = Spacings::default();
        spacings.add(&minutes.iter().map(row).collect::<Vec<_>>()[..].into());
        spacings
    }

    #[test]
    fn the_commonest_spacing_is_the_base() {
        let cases: [(&[i64], Result<Timeframe, &str>); 8] = [
            (&[0, 1, 2, 7], Ok(Timeframe::M1)),
            (&[0, 5, 10, 11], Ok(Timeframe::M5)),
            (&[10, 5, 0], Ok(Timeframe::M5)),
            (&[4, 2, 0, 3, 1], Ok(Timeframe::M1)), // neighbours in the file are two minutes apart
            (&[0, 1, 6], Ok(Timeframe::M1)),       // one of each: the shorter
            (&[0, 2, 4], Ok(Timeframe::M2)),
            (&[0, 7, 14], Err("the commonest spacing is 7 min, 2 times of 2, which is no timeframe")),
            (&[3, 3], Err("no two bars have different times")),
        ];
        for (minutes, expected) in cases {
            match (spacings(minutes).base(None), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{minutes:?}"),
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                (found, _) => panic!("{minutes:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_stated_base_must_occur() {
        assert_eq!(spacings(&[0, 2, 4, 5]).base(Some(Timeframe::M1)).unwrap(), Timeframe::M1);
        assert_eq!(spacings(&[2, 0, 3, 1]).base(Some(Timeframe::M1)).unwrap(), Timeframe::M1);
        assert_eq!(spacings(&[0]).base(Some(Timeframe::M1)).unwrap(), Timeframe::M1);
        let wrong = spacings(&[0, 60, 120]).base(Some(Timeframe::M1)).unwrap_err().to_string();
        assert!(wrong.contains("no two of them are M1 apart (the closest are 1 h apart)"), "{wrong}");
    }

    #[test]
    fn bars_of_months_are_refused_as_such() {
        let day = |days: i64| days * 1_440;
        let months = spacings(&[0, 31, 59, 90, 120, 151, 243].map(day));
        for stated in [None, Some(Timeframe::MN1), Some(Timeframe::D1)] {
            let error = months.base(stated).unwrap_err().to_string();
            let expected = "5 of 6 neighbouring bars are a month apart: bars of months cannot be read";
            assert!(error.starts_with(expected) && error.contains("made of bars of a day or shorter"), "{error}");
        }
        assert_eq!(months.evidently_shorter(Timeframe::MN1), None);
        let days = spacings(&[0, 1, 2, 33].map(day));
        let error = days.base(Some(Timeframe::MN1)).unwrap_err().to_string();
        assert!(error.starts_with("the bars were stated to be MN1: bars of months"), "{error}");
        assert_eq!(days.base(None).unwrap(), Timeframe::D1);
    }

    #[test]
    fn few_bars_do_not_show_that_they_are_longer() {
        let spaced = |step: i64, rows: i64| spacings(&(0..rows).map(|row| row * step).collect::<Vec<_>>());
        for (base, step, rows, longer) in [
            (Timeframe::M1, 5, 8, None),
            (Timeframe::M1, 5, 9, Some(Timeframe::M5)),
            (Timeframe::M1, 15, 5, None),
            (Timeframe::M1, 15, 6, Some(Timeframe::M15)),
            (Timeframe::M1, 60, 3, None),
            (Timeframe::M1, 60, 4, Some(Timeframe::H1)),
            (Timeframe::M5, 15, 11, None),
            (Timeframe::M5, 15, 12, Some(Timeframe::M15)),
            (Timeframe::M5, 5, 50, None),
            (Timeframe::M5, 1, 50, None),
        ] {
            assert_eq!(spaced(step, rows).evidently_longer(base), longer, "{rows} rows of {step} minutes, {base}");
        }
    }

    #[test]
    fn bars_are_shorter_where_most_distances_are() {
        for (base, minutes, shorter) in [
            (Timeframe::M5, &[0, 1, 2, 3, 8][..], Some(1)),
            (Timeframe::M5, &[0, 2, 4, 6, 7], Some(2)),
            (Timeframe::M5, &[0, 1, 2], None),
            (Timeframe::M5, &[0, 5, 10, 11, 12], None),
            (Timeframe::M5, &[0, 5, 10, 11, 12, 13], Some(1)),
            (Timeframe::H4, &[0, 240, 420, 660], None),
            (Timeframe::M1, &[0, 1, 2, 3], None),
            (Timeframe::M1, &[0, 5, 10, 15], None),
        ] {
            let found = spacings(minutes).evidently_shorter(base);
            assert_eq!(found, shorter.map(|minutes| minutes * MINUTE_NS), "{minutes:?}, {base}");
        }
    }

    /// Weeks of New York: "4 bars open before the W1 bar ahead closes".
    #[test]
    fn a_week_may_have_an_hour_more_or_less() {
        let week = 7 * 1_440;
        let times = |hours: &[i64]| -> Vec<i64> { (0..).zip(hours).map(|(k, hour)| k * week + hour * 60).collect() };
        let year = spacings(&times(&[5, 5, 5, 4, 4, 4, 4, 5, 5]));
        assert_eq!((year.base(None).unwrap(), year.only()), (Timeframe::W1, Some(Timeframe::W1)));
        assert_eq!((year.warnings(Timeframe::W1), year.evidently_shorter(Timeframe::W1)), (Vec::new(), None));
        assert!(year.fits(Timeframe::W1) && !year.fits(Timeframe::D1));
        // Two bars with the change between them.
        for hours in [[5, 4], [4, 5]] {
            let two = spacings(&times(&hours));
            assert_eq!(
                (two.base(None).unwrap(), two.base(Some(Timeframe::W1)).unwrap()),
                (Timeframe::W1, Timeframe::W1)
            );
        }
        let early = spacings(&times(&[5, 5, 5, 2, 5]));
        assert!(early.warnings(Timeframe::W1)[0].starts_with("1 bar opens before") && early.only().is_none());
    }

    /// Days of New York beside hours were taken for hours.
    #[test]
    fn a_day_may_have_an_hour_more_or_less() {
        let day = 1_440;
        // From Friday to Monday, and from Saturday to Sunday.
        for later in [3, 1] {
            for moved in [-60, 60] {
                let year = spacings(&[0, day, 2 * day, 3 * day, (3 + later) * day + moved, (4 + later) * day + moved]);
                assert_eq!(
                    (year.only(), year.evidently_longer(Timeframe::H1)),
                    (Some(Timeframe::D1), Some(Timeframe::D1))
                );
                assert!(year.fits(Timeframe::D1) && !year.fits(Timeframe::H4));
            }
        }
        let hours = spacings(&[0, day, 2 * day, 3 * day, 3 * day + 120]);
        assert!(hours.only().is_none() && hours.evidently_longer(Timeframe::H1).is_none());
    }

    #[test]
    fn mixed_timeframes_are_warned_of() {
        assert_eq!(spacings(&[0, 1, 2, 4, 7]).warnings(Timeframe::M1), [] as [String; 0]);
        assert!(spacings(&[0, 60, 120, 121, 122, 123]).warnings(Timeframe::M1)[0].starts_with("2 of 5"));
        assert!(spacings(&[0, 5, 10, 11]).warnings(Timeframe::M5)[0].starts_with("1 bar opens before"));
    }
}
