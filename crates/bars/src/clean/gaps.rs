use std::fmt;

use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, counted, display_duration, display_utc};
use crate::time::zone::Zone;

/// A pause longer than this is a hole in the data, whether or not a weekend lies in it. Easter
/// takes four days.
pub(crate) const WEEKEND_NS_MAX: i64 = 4 * DAY_NS;
/// Noon of the first Saturday after 1970-01-01, a Thursday.
const SATURDAY_NOON_NS: i64 = 2 * DAY_NS + 12 * HOUR_NS;
/// Gaps that are listed one by one.
const LONGEST: usize = 5;
const MONTH_NS: i64 = 28 * DAY_NS;

/// A stretch of time without bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gap {
    /// Close time of the last bar before it, in nanoseconds since 1970 UTC.
    pub from: i64,
    /// Open time of the first bar after it.
    pub to: i64,
}

/// Kind of a gap, by its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum GapKind {
    /// At most four days with a Saturday noon UTC in them.
    Weekend,
    /// Exactly one hour, within a day of a change of the clocks of New York, London or the file:
    /// the bars of that hour are missing, or the file is read by the wrong clock.
    ClockChange,
    /// Less than an hour.
    Minutes,
    /// An hour to a day.
    Hours,
    /// A day to four weeks.
    Days,
    /// Four weeks and more.
    Months,
}

/// The gaps of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GapCount {
    /// The kind.
    pub kind: GapKind,
    /// Number of gaps.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub duration_ns: i64,
}

/// The gaps in a series of bars. They are counted and never filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gaps {
    /// One entry a kind that occurs, in the order of the kinds.
    pub kinds: Vec<GapCount>,
    /// The five longest that are not weekends, longest first.
    pub longest: Vec<Gap>,
}

impl Gap {
    /// Duration, in nanoseconds.
    pub fn duration_ns(&self) -> i64 {
        self.to - self.from
    }

    /// Kind of the gap by the given clocks.
    fn kind(&self, clocks: &[Zone]) -> GapKind {
        match self.duration_ns() {
            ns if ns <= WEEKEND_NS_MAX && self.spans_a_saturday_noon() => GapKind::Weekend,
            HOUR_NS if clocks.iter().any(|clock| clock.is_moved_between(self.from - DAY_NS, self.to + DAY_NS)) => {
                GapKind::ClockChange
            }
            ns if ns < HOUR_NS => GapKind::Minutes,
            ns if ns < DAY_NS => GapKind::Hours,
            ns if ns < MONTH_NS => GapKind::Days,
            _ => GapKind::Months,
        }
    }

    /// True if a Saturday noon UTC lies in it.
    pub(crate) fn spans_a_saturday_noon(&self) -> bool {
        let weeks = |ns: i64| (ns - SATURDAY_NOON_NS).div_euclid(7 * DAY_NS);
        weeks(self.from) != weeks(self.to)
    }
}

/// Counter of the gaps between neighbouring bars.
pub(crate) struct GapCounter {
    duration_ns: i64,
    clocks: Vec<Zone>,
    last: Option<i64>,
    gaps: Gaps,
}

impl GapCounter {
    /// Nothing so far. Beside the clocks of New York and London, changes of `clocks` count, by
    /// which the files were read.
    pub(crate) fn new(timeframe: Timeframe, clocks: impl IntoIterator<Item = Zone>) -> Self {
        let known = ["America/New_York", "Europe/London"].map(|name| name.parse().expect("both zones are known"));
        let clocks = known.into_iter().chain(clocks).collect();
        GapCounter { duration_ns: timeframe.duration_ns(), clocks, last: None, gaps: Gaps::default() }
    }

    /// Takes the open time of the next bar.
    pub(crate) fn add(&mut self, open_time: i64) {
        let Some(last) = self.last.replace(open_time) else { return };
        let gap = Gap { from: last + self.duration_ns, to: open_time };
        if gap.duration_ns() > 0 {
            self.gaps.add(gap, gap.kind(&self.clocks));
        }
    }

    pub(crate) fn finish(mut self) -> Gaps {
        self.gaps.kinds.sort_by_key(|count| count.kind);
        self.gaps
    }
}

impl Gaps {
    /// Number of gaps, weekends excluded.
    pub fn count(&self) -> u64 {
        self.kinds.iter().filter(|count| count.kind != GapKind::Weekend).map(|count| count.count).sum()
    }

    /// Number of weekends.
    pub fn weekends(&self) -> u64 {
        self.kind_count(GapKind::Weekend)
    }

    /// Number of gaps of one kind.
    pub fn kind_count(&self, kind: GapKind) -> u64 {
        self.kinds.iter().find(|count| count.kind == kind).map_or(0, |count| count.count)
    }

    fn add(&mut self, gap: Gap, kind: GapKind) {
        let duration_ns = gap.duration_ns();
        match self.kinds.iter_mut().find(|count| count.kind == kind) {
            Some(count) => {
                count.count += 1;
                count.duration_ns += duration_ns;
            }
            None => self.kinds.push(GapCount { kind, count: 1, duration_ns }),
        }
        if kind != GapKind::Weekend {
            let place = self.longest.partition_point(|longer| longer.duration_ns() >= duration_ns);
            self.longest.insert(place, gap);
            self.longest.truncate(LONGEST);
        }
    }
}

impl GapKind {
    /// Every kind.
    pub const ALL: [GapKind; 6] =
        [GapKind::Weekend, GapKind::ClockChange, GapKind::Minutes, GapKind::Hours, GapKind::Days, GapKind::Months];

    /// The name: `weekend`, `clock change`, `minutes`, `hours`, `days` or `months`.
    pub const fn name(self) -> &'static str {
        match self {
            GapKind::Weekend => "weekend",
            GapKind::ClockChange => "clock change",
            GapKind::Minutes => "minutes",
            GapKind::Hours => "hours",
            GapKind::Days => "days",
            GapKind::Months => "months",
        }
    }
}

impl fmt::Display for GapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for GapCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        match self.kind {
            GapKind::Weekend => f.write_str(&counted(count, "weekend", "weekends")),
            GapKind::ClockChange => write!(f, "{count} of one hour at a change of clocks"),
            kind => write!(f, "{count} of {kind}"),
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", display_duration(self.duration_ns()), display_utc(self.from))
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.count(), "gap", "gaps"))?;
        for (k, count) in self.kinds.iter().filter(|count| count.kind != GapKind::Weekend).enumerate() {
            write!(f, "{} {count}", if k == 0 { ":" } else { "," })?;
        }
        for (k, gap) in self.longest.iter().enumerate() {
            write!(f, "{} {gap}", if k == 0 { "; the longest" } else { "," })?;
        }
        write!(f, "; {}", counted(self.weekends(), "weekend", "weekends"))
    }
}

/// A hole longer than this is more likely a wrong year in a row than a pause.
const PAUSE_NS_MAX: i64 = 366 * DAY_NS;
/// Bars on one side of such a hole, at most, that count as few.
const FAR_BARS_MAX: usize = 10;

/// The few bars that the longest hole separates from all others at either end: the order of the
/// rows cannot show that their times are wrong.
pub(crate) struct FarBars {
    /// Number of bars.
    len: usize,
    few: usize,
    count: usize,
    begin: i64,
    last: i64,
    first: Option<FarGroup>,
    end: Option<FarGroup>,
}

/// Bars at one end.
#[derive(Clone, Copy)]
struct FarGroup {
    bars: usize,
    from: i64,
}

impl FarBars {
    /// Nothing so far of `len` bars.
    pub(crate) fn new(len: usize) -> Self {
        let few = FAR_BARS_MAX.min(len.saturating_sub(1) / 2);
        FarBars { len, few, count: 0, begin: 0, last: 0, first: None, end: None }
    }

    /// Takes the open time of the next bar.
    pub(crate) fn add(&mut self, open_time: i64) {
        let place = self.count;
        self.count += 1;
        if place == 0 {
            self.begin = open_time;
        } else if open_time - self.last > PAUSE_NS_MAX {
            // The last hole near the beginning, and the first near the end.
            if place <= self.few {
                self.first = Some(FarGroup { bars: place, from: self.begin });
            }
            if place >= self.len - self.few {
                self.end.get_or_insert(FarGroup { bars: self.len - place, from: open_time });
            }
        }
        self.last = open_time;
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let warning = |FarGroup { bars: count, from }: FarGroup| {
            let (bars, lie) = (counted(count as u64, "bar", "bars"), if count == 1 { "lies" } else { "lie" });
            format!("{bars} {lie} more than a year from the others, from {} on: is the date right?", display_utc(from))
        };
        self.first.into_iter().chain(self.end).map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::{Bar, Bars};
    use crate::time::timestamp::{DateStyle, MINUTE_NS, parse_stamp};

    /// The gaps of minutes that open at these times.
    fn gaps_of(opens: impl IntoIterator<Item = i64>) -> Gaps {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for open_time in opens {
            bars.push(Bar { open_time, open: 1.0, high: 1.0, low: 1.0, close: 1.0, ..Bar::default() });
        }
        let mut gaps = GapCounter::new(bars.timeframe, []);
        bars.open_time.iter().for_each(|&open_time| gaps.add(open_time));
        gaps.finish()
    }

    #[test]
    fn weekends_and_holes_are_told_apart() {
        let friday_close = DAY_NS + 22 * HOUR_NS; // 1970-01-02 22:00 UTC
        let gaps = gaps_of([
            friday_close - MINUTE_NS,
            friday_close + 2 * DAY_NS,                               // a weekend
            friday_close + 2 * DAY_NS + 3 * MINUTE_NS,               // two minutes are missing
            friday_close + 2 * DAY_NS + 4 * MINUTE_NS,               // nothing is missing
            friday_close + 2 * DAY_NS + 4 * MINUTE_NS + 32 * DAY_NS, // a month, with weekends in it
        ]);
        assert_eq!((gaps.count(), gaps.weekends(), gaps.kind_count(GapKind::Months)), (2, 1, 1));
        assert_eq!(
            gaps.to_string(),
            "2 gaps: 1 of minutes, 1 of months; the longest 31 d 23 h 59 min from 1970-01-04T22:05:00Z, \
             2 min from 1970-01-04T22:01:00Z; 1 weekend"
        );
        assert_eq!(gaps_of([]).to_string(), "0 gaps; 0 weekends");
    }

    #[test]
    fn gaps_are_sorted_by_their_length() {
        let minutes =
            [(59, GapKind::Minutes), (60, GapKind::Hours), (24 * 60, GapKind::Days), (28 * 1440, GapKind::Months)];
        for (minutes, kind) in minutes {
            let monday = 4 * DAY_NS;
            assert_eq!(gaps_of([monday, monday + (minutes + 1) * MINUTE_NS]).kind_count(kind), 1, "{minutes}");
        }
        let opens = (0..20).map(|k| k * (k + 3) * MINUTE_NS / 2);
        let gaps = gaps_of(opens);
        let longest: Vec<i64> = gaps.longest.iter().map(|gap| gap.duration_ns() / MINUTE_NS).collect();
        assert_eq!((gaps.count(), longest), (19, vec![19, 18, 17, 16, 15]));
    }

    #[test]
    fn an_hour_that_is_missing_when_clocks_change_is_named() {
        // On the day when London's clock goes forward, the day after, and a week later.
        let cases = [
            ("2019-03-31 22:59Z", GapKind::ClockChange),
            ("2019-03-31 23:59Z", GapKind::ClockChange),
            ("2019-04-08 22:59Z", GapKind::Hours),
        ];
        for (time, kind) in cases {
            let open = parse_stamp(time.as_bytes(), DateStyle::Dashed).unwrap().ns();
            assert_eq!(gaps_of([open, open + 61 * MINUTE_NS]).kinds[0].kind, kind, "{time}");
            assert_eq!(gaps_of([open, open + 62 * MINUTE_NS]).kinds[0].kind, GapKind::Hours, "{time}");
        }
    }

    #[test]
    fn few_bars_far_from_many_are_warned_of() {
        // Days of the bars that lie apart before and after twenty others, and how many are told.
        let cases: [(&[i64], &[i64], &[&str]); 5] = [
            (&[], &[], &[]),
            (&[-400], &[], &["1 bar lies"]),
            (&[-401, -400], &[1000], &["2 bars lie", "1 bar lies"]),
            (&[-366], &[385], &[]),
            (&[-400, -410, -420, -430, -440, -450, -460, -470, -480, -490, -500], &[], &[]),
        ];
        for (before, after, expected) in cases {
            let mut days: Vec<i64> = before.iter().copied().chain(0..20).chain(after.iter().copied()).collect();
            days.sort_unstable();
            let mut bars = Bars::with_capacity(Timeframe::D1, 0);
            days.iter().for_each(|day| bars.push(Bar { open_time: day * DAY_NS, ..Bar::default() }));
            let mut far = FarBars::new(bars.len());
            bars.open_time.iter().for_each(|&open_time| far.add(open_time));
            let warnings = far.warnings();
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            assert!(warnings.iter().zip(expected).all(|(warning, begins)| warning.starts_with(begins)), "{warnings:?}");
        }
    }
}
