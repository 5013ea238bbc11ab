//! Many instruments at common times: their log returns, from which graphs between them are built,
//! and their bars, from which series are made.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::place::for_each_bar;
use crate::series::spec::in_range;
use crate::series::streamed::{TimesCursor, TimesWriter, merge, open_times_from};
use crate::spool::{SpoolWriter, SpooledBars};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::DAY_NS;

/// An instrument without a bar for this long is no longer counted as listed. Longer than any
/// market's holidays.
const LISTED_NS: i64 = 28 * DAY_NS;

/// Log returns of many instruments at common times.
///
/// N instruments, D days (bars of any timeframe; days are what it is made for).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReturnPanel {
    /// `[N]` in the order of the names.
    pub names: Vec<String>,
    /// `[D]` when each day begins, in nanoseconds since 1970 UTC, increasing: the day is called by
    /// its date.
    pub open_times: Vec<i64>,
    /// `[D]` when each day's closes are known: its bars' close time, the same that a sample of them
    /// has.
    pub times: Vec<i64>,
    /// `[N, D]` row-major: ln of the close of the day over that of the day before in `open_times`.
    /// NaN on the first day and where the instrument lacks one of the two closes.
    pub values: Vec<f64>,
    /// The instruments that have no return on any day.
    pub excluded: Vec<WithoutReturns>,
    /// When each of the excluded days begins: fewer than half of the listed instruments have a bar
    /// on it. An instrument is listed on a day where it has a bar on it or on one of the 27 days
    /// before; later bars decide nothing. Such a day is one file's error or another market's, and
    /// would tear the returns of all others in two.
    pub days_excluded: Vec<i64>,
}

/// An instrument that a panel leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutReturns {
    /// Its name.
    pub name: String,
    /// Number of its bars.
    pub bars: usize,
}

impl fmt::Display for WithoutReturns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bars = if self.bars == 1 { "bar" } else { "bars" };
        write!(f, "{}: none of its {} {bars} follows one of the day before", self.name, self.bars)
    }
}

/// The log returns of instruments, each a name and its bars, on the days on which at least half of
/// those that are listed have a bar.
///
/// Bars whose prices are adjusted ([`Prices`](crate::Prices)) give returns without splits and
/// dividends. A return is between one day of the grid and the day before, and never over a day that
/// the instrument missed: the returns of one column are then all of the same stretch.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) where there is no instrument, one is there twice, or
/// their bars are of several timeframes.
pub fn return_panel(instruments: &[(&str, &Bars)]) -> Result<ReturnPanel> {
    let named = |&(name, bars): &(&str, &Bars)| NamedTimeframe { name: name.to_owned(), timeframe: bars.timeframe };
    let timeframe = checked(&instruments.iter().map(named).collect::<Vec<_>>())?;
    let (open_times, days_excluded) = grid(instruments);
    let mut rows: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut excluded = Vec::new();
    for &(name, bars) in instruments {
        let returns = returns_of(bars, &open_times);
        if returns.iter().all(|value| value.is_nan()) {
            excluded.push(WithoutReturns { name: name.to_owned(), bars: bars.len() });
        } else {
            rows.insert(name, returns);
        }
    }
    excluded.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(ReturnPanel {
        names: rows.keys().map(|&name| name.to_owned()).collect(),
        times: open_times.iter().map(|open_time| open_time + timeframe.duration_ns()).collect(),
        values: rows.into_values().flatten().collect(),
        open_times,
        excluded,
        days_excluded,
    })
}

/// Bars of several instruments in files, at common times.
#[derive(Debug)]
#[non_exhaustive]
pub struct CommonSpool {
    /// The bars that are kept.
    pub bars: SpooledBars,
    /// Number of bars that are dropped.
    pub dropped: usize,
}

/// Drops the bars at times at which fewer than half of the listed instruments have one: the times
/// that [`return_panel`] leaves out. The other bars of instrument k stand in a new file at
/// `paths[k]`; temporary files lie in `folder`.
///
/// # Errors
/// As [`return_panel`]; [`Error::Spool`](crate::Error::Spool).
pub fn spool_common_times(
    instruments: &[(&str, &SpooledBars)],
    paths: &[PathBuf],
    folder: &Path,
) -> Result<Vec<CommonSpool>> {
    let named =
        |&(name, bars): &(&'_ str, &SpooledBars)| NamedTimeframe { name: name.to_owned(), timeframe: bars.timeframe() };
    checked(&instruments.iter().map(named).collect::<Vec<_>>())?;
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for (_, bars) in instruments {
        let mut last: Option<i64> = None;
        for_each_bar(*bars, |Bar { open_time, .. }| {
            if last.is_none_or(|last| open_time - last >= LISTED_NS) {
                begins.push(open_time);
                ends.extend(last.map(|last| last.saturating_add(LISTED_NS)));
            }
            last = Some(open_time);
            Ok(())
        })?;
        ends.extend(last.map(|last| last.saturating_add(LISTED_NS)));
    }
    begins.sort_unstable();
    ends.sort_unstable();
    let listed = |time: i64| begins.partition_point(|&begin| begin <= time) - ends.partition_point(|&end| end <= time);
    let mut excluded = TimesWriter::create(folder)?;
    let streams = instruments.iter().map(|(_, bars)| open_times_from(*bars, i64::MIN)).collect::<Result<_>>()?;
    merge(streams, |time, group| if 2 * group.len() >= listed(time) { Ok(()) } else { excluded.push(time) })?;
    let excluded = excluded.finish()?;
    let keep = |((_, bars), path): (&(&str, &SpooledBars), &PathBuf)| {
        let (mut writer, mut cursor) =
            (SpoolWriter::create(path, bars.timeframe(), bars.columns())?, TimesCursor::new(&excluded));
        for_each_bar(*bars, |bar| if cursor.contains(bar.open_time)? { Ok(()) } else { writer.push(bar) })?;
        let dropped = bars.len() - writer.len();
        Ok(CommonSpool { bars: writer.finish()?.with_own(bars.own().to_vec()), dropped })
    };
    instruments.iter().zip(paths).map(keep).collect()
}

/// Name and timeframe of an instrument.
struct NamedTimeframe {
    name: String,
    timeframe: Timeframe,
}

fn checked(instruments: &[NamedTimeframe]) -> Result<Timeframe> {
    in_range("instruments", &"empty", "at least one", !instruments.is_empty())?;
    let mut names: Vec<&str> = instruments.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]).map_or("", |pair| pair[0]);
    in_range("instruments", &format!("{twice} twice"), "each instrument once", twice.is_empty())?;
    let first = &instruments[0];
    let other = instruments.iter().find(|other| other.timeframe != first.timeframe);
    let shown = other.map_or_else(String::new, |other| {
        format!("{} of {} bars and {} of {} bars", first.name, first.timeframe, other.name, other.timeframe)
    });
    in_range(
        "instruments",
        &shown,
        "bars of one timeframe; give files of the same timeframe for every instrument, the shortest that all have",
        other.is_none(),
    )?;
    Ok(first.timeframe)
}

/// Open times of the days on which at least half of the listed instruments have a bar, and of the
/// other days that have any.
///
/// Every day is judged by the bars up to it alone: files that go on further keep the same days.
fn grid(instruments: &[(&str, &Bars)]) -> (Vec<i64>, Vec<i64>) {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    let (mut begins, mut ends): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    for (_, bars) in instruments {
        bars.open_time.iter().for_each(|&time| *counts.entry(time).or_default() += 1);
        for together in bars.open_time.chunk_by(|one, next| next - one < LISTED_NS) {
            begins.extend(together.first());
            ends.extend(together.last().map(|&last| last.saturating_add(LISTED_NS)));
        }
    }
    begins.sort_unstable();
    ends.sort_unstable();
    let listed = |time: i64| begins.partition_point(|&begin| begin <= time) - ends.partition_point(|&end| end <= time);
    let (days, excluded): (Vec<_>, Vec<_>) = counts.into_iter().partition(|&(time, count)| 2 * count >= listed(time));
    let times = |days: Vec<(i64, usize)>| days.into_iter().map(|(time, _)| time).collect();
    (times(days), times(excluded))
}

/// The returns of one instrument on each day of the grid.
fn returns_of(bars: &Bars, days: &[i64]) -> Vec<f64> {
    let mut bar = 0;
    let mut before = f64::NAN;
    let returns = days.iter().map(|&day| {
        while bars.open_time.get(bar).is_some_and(|&open_time| open_time < day) {
            bar += 1;
        }
        let close = if bars.open_time.get(bar) == Some(&day) { bars.close[bar] } else { f64::NAN };
        (close / std::mem::replace(&mut before, close)).ln()
    });
    returns.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bars::Bar;

    /// Bars of the given days and closes.
    fn bars(closes: &[(i64, f64)]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::D1, closes.len());
        for &(day, close) in closes {
            bars.push(Bar { open_time: day * DAY_NS, open: close, high: close, low: close, close, ..Bar::default() });
        }
        bars
    }

    fn shown(values: &[f64]) -> Vec<Option<i64>> {
        values.iter().map(|value| (!value.is_nan()).then(|| value.exp().round() as i64)).collect()
    }

    #[test]
    fn returns_stand_on_the_days_of_all() {
        let whole = bars(&[(0, 1.0), (1, 2.0), (4, 6.0), (5, 6.0)]);
        let late = bars(&[(4, 1.0), (5, 5.0)]);
        let torn = bars(&[(0, 1.0), (4, 4.0), (5, 12.0)]);
        let single = bars(&[(1, 1.0)]);
        let panel = return_panel(&[("W", &whole), ("L", &late), ("T", &torn), ("S", &single)]).unwrap();
        assert_eq!(panel.names, ["L", "T", "W"]);
        assert_eq!(panel.open_times, [0, 1, 4, 5].map(|day| day * DAY_NS));
        assert_eq!(panel.times, [1, 2, 5, 6].map(|day| day * DAY_NS));
        let rows: Vec<_> = panel.values.chunks(4).map(shown).collect();
        assert_eq!(
            rows,
            [
                [None, None, None, Some(5)],       // no close of the day before its first
                [None, None, None, Some(3)],       // nor over the day that it missed
                [None, Some(2), Some(3), Some(1)], // over a weekend, which is no day of anyone
            ]
        );
        assert_eq!(panel.excluded, [WithoutReturns { name: "S".to_owned(), bars: 1 }]);
        assert_eq!(panel.excluded[0].to_string(), "S: none of its 1 bar follows one of the day before");
    }

    #[test]
    fn a_day_of_few_is_no_day() {
        // Day 2 stands in one of three files. Two of them end on day 3: they count as listed up to
        // day 30, and on day 31 one of one listed is no minority.
        let usual = bars(&[(0, 1.0), (1, 2.0), (3, 4.0)]);
        let outlier = bars(&[(0, 1.0), (1, 3.0), (2, 99.0), (3, 9.0), (30, 99.0), (31, 27.0)]);
        let panel = return_panel(&[("A", &usual), ("B", &usual), ("C", &outlier)]).unwrap();
        assert_eq!(panel.days_excluded, [2, 30].map(|day| day * DAY_NS));
        assert_eq!(panel.open_times, [0, 1, 3, 31].map(|day| day * DAY_NS));
        assert_eq!(shown(&panel.values[8..]), [None, Some(3), Some(3), Some(3)]);
        let common = common_times(&[&usual, &usual, &outlier]);
        assert_eq!((common.dropped, &common.bars[0]), (vec![0, 0, 2], &usual));
        assert_eq!(common.bars[2].open_time, [0, 1, 3, 31].map(|day| day * DAY_NS));
        // Half is enough.
        let two = return_panel(&[("A", &usual), ("C", &outlier)]).unwrap();
        assert_eq!((two.days_excluded.len(), shown(&two.values[..5])), (0, vec![None, Some(2), None, None, None]));
    }

    /// Bars at common times, and the number of those that were dropped: an entry an instrument.
    #[derive(Debug, PartialEq)]
    struct CommonTimes {
        bars: Vec<Bars>,
        dropped: Vec<usize>,
    }

    /// The bars at times of the grid.
    fn on_grid(all: &[Bars]) -> CommonTimes {
        let (_, excluded) = grid(&all.iter().map(|bars| ("", bars)).collect::<Vec<_>>());
        let mut common = CommonTimes { bars: Vec::new(), dropped: Vec::new() };
        for bars in all {
            let mut kept = Bars::with_capacity(bars.timeframe, 0);
            let times = bars.open_time.iter().enumerate().filter(|(_, time)| !excluded.contains(time));
            times.for_each(|(index, _)| kept.push(bars.bar(index)));
            common.dropped.push(bars.len() - kept.len());
            common.bars.push(kept);
        }
        common
    }

    fn common_times(all: &[&Bars]) -> CommonTimes {
        let folder = tempfile::tempdir().unwrap();
        let spool = |(k, bars): (usize, &&Bars)| {
            let mut writer = SpoolWriter::create(&folder.path().join(k.to_string()), bars.timeframe, 0).unwrap();
            (0..bars.len()).for_each(|index| writer.push(bars.bar(index)).unwrap());
            writer.finish().unwrap()
        };
        let spooled: Vec<SpooledBars> = all.iter().enumerate().map(spool).collect();
        let names: Vec<String> = (0..all.len()).map(|k| k.to_string()).collect();
        let named: Vec<(&str, &SpooledBars)> = names.iter().map(String::as_str).zip(&spooled).collect();
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.path().join(format!("common-{name}"))).collect();
        let mut common = CommonTimes { bars: Vec::new(), dropped: Vec::new() };
        for CommonSpool { bars, dropped } in spool_common_times(&named, &paths, folder.path()).unwrap() {
            let mut kept = Bars::with_capacity(bars.timeframe(), 0);
            for_each_bar(&bars, |bar| {
                kept.push(bar);
                Ok(())
            })
            .unwrap();
            common.bars.push(kept);
            common.dropped.push(dropped);
        }
        common
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        let (days, hours) = (bars(&[(0, 1.0)]), Bars::with_capacity(Timeframe::H1, 0));
        let cases: [(&[(&str, &Bars)], &str); 3] = [
            (&[], "instruments is empty: expected at least one"),
            (&[("A", &days), ("B", &days), ("A", &days)], "instruments is A twice"),
            (&[("A", &days), ("B", &hours)], "instruments is A of D1 bars and B of H1 bars"),
        ];
        for (instruments, message) in cases {
            let error = return_panel(instruments).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    /// Bars of day `day` and before.
    fn cut(bars: &Bars, day: i64) -> Bars {
        let mut bars = bars.clone();
        bars.truncate(bars.open_time.partition_point(|&time| time <= day * DAY_NS));
        bars
    }

    /// The returns of one instrument, NaN as `None`; none at all for one that the panel excludes.
    fn row(panel: &ReturnPanel, name: &str, days: usize) -> Vec<Option<u64>> {
        let all = panel.open_times.len();
        match panel.names.iter().position(|other| other == name) {
            Some(place) => {
                panel.values[place * all..][..days].iter().map(|v| (!v.is_nan()).then(|| v.to_bits())).collect()
            }
            None => vec![None; days],
        }
    }

    /// `graph build` of files cut at a day gave other weights on that day than of the whole files:
    /// an instrument that had bars later counted as listed, so that a day on which it pauses was
    /// excluded for what came after.
    #[test]
    fn a_pause_counts_the_same_whatever_follows() {
        // On day 40 only A trades. B and C pause from day 1 on, and have bars again on day 50.
        let always: Vec<(i64, f64)> = (0..=50).map(|day| (day, 1.0 + day as f64)).collect();
        let (whole, pausing) = (bars(&always), bars(&[(0, 1.0), (1, 2.0), (50, 3.0)]));
        let panel = return_panel(&[("A", &whole), ("B", &pausing), ("C", &pausing)]).unwrap();
        let until_40 = return_panel(&[("A", &cut(&whole, 40)), ("B", &cut(&pausing, 40)), ("C", &cut(&pausing, 40))]);
        let until_40 = until_40.unwrap();
        let days = until_40.open_times.len();
        assert_eq!(panel.open_times[..days], until_40.open_times);
        assert_eq!(until_40.open_times.last(), Some(&(40 * DAY_NS)));
    }

    proptest! {
        /// Bars after a day change no return up to it, whether instruments end, pause or begin
        /// around it.
        #[test]
        fn later_bars_change_nothing(
            spans in prop::collection::vec((0i64..90, 0i64..90, 0i64..90, 0i64..90), 1..7),
            traded in prop::collection::vec(prop::collection::vec(0u8..10, 90), 7),
            last in 0i64..90,
        ) {
            let own_bars = |(k, &(begin, end, from, to)): (usize, &(i64, i64, i64, i64))| {
                let pauses = |day: i64| (from..to).contains(&day);
                let days = (begin..=end.max(begin)).filter(|&day| !pauses(day) && traded[k][day as usize] > 0);
                bars(&days.map(|day| (day, 1.0 + ((k as i64 * 31 + day * 17) % 13) as f64)).collect::<Vec<_>>())
            };
            let whole: Vec<Bars> = spans.iter().enumerate().map(own_bars).collect();
            let until: Vec<Bars> = whole.iter().map(|bars| cut(bars, last)).collect();
            let names: Vec<String> = (0..whole.len()).map(|k| k.to_string()).collect();
            let panel_of = |bars: &[Bars]| {
                return_panel(&names.iter().map(String::as_str).zip(bars).collect::<Vec<_>>()).unwrap()
            };
            let (panel, cut_panel) = (panel_of(&whole), panel_of(&until));
            let days = panel.open_times.partition_point(|&time| time <= last * DAY_NS);
            prop_assert_eq!(&panel.open_times[..days], &cut_panel.open_times[..]);
            for name in &names {
                prop_assert_eq!(row(&panel, name, days), row(&cut_panel, name, days));
            }
        }

        /// Bars in files are kept at the same times.
        #[test]
        fn files_keep_the_same_bars(
            present in prop::collection::vec(prop::collection::vec(prop_oneof![Just(true), any::<bool>()], 90), 1..6), pauses in prop::collection::vec(0usize..60, 6),
        ) {
            let own_bars = |(k, days): (usize, &Vec<bool>)| {
                let trades = |day: &usize| days[*day] && !(pauses[k]..pauses[k] + 29).contains(day);
                bars(&(0..90).filter(trades).map(|day| (day as i64, 1.0 + day as f64)).collect::<Vec<_>>())
            };
            let all: Vec<Bars> = present.iter().enumerate().map(own_bars).collect();
            prop_assert_eq!(common_times(&all.iter().collect::<Vec<_>>()), on_grid(&all));
        }

        /// Every value is what a search for the two closes says.
        #[test]
        fn agrees_with_a_search(present in prop::collection::vec(prop::collection::vec(any::<bool>(), 12), 1..6)) {
            let close = |instrument: usize, day: usize| 1.0 + ((instrument * 31 + day * 17) % 13) as f64;
            let own_bars = |(k, days): (usize, &Vec<bool>)| {
                let closes: Vec<_> = (0..12).filter(|&day| days[day]).map(|day| (day as i64, close(k, day))).collect();
                bars(&closes)
            };
            let all: Vec<Bars> = present.iter().enumerate().map(own_bars).collect();
            let names: Vec<String> = (0..all.len()).map(|k| k.to_string()).collect();
            let pairs: Vec<(&str, &Bars)> = names.iter().map(String::as_str).zip(&all).collect();
            let panel = return_panel(&pairs).unwrap();
            let days = panel.open_times.len();
            for (row, name) in panel.names.iter().enumerate() {
                let k: usize = name.parse().unwrap();
                for d in 0..days {
                    let close_on = |d: usize| {
                        let day = (panel.open_times[d] / DAY_NS) as usize;
                        present[k][day].then(|| close(k, day))
                    };
                    let expected = d.checked_sub(1).and_then(|before| Some((close_on(d)? / close_on(before)?).ln()));
                    let found = panel.values[row * days + d];
                    prop_assert!(expected.map_or(found.is_nan(), |expected| expected == found), "{expected:?} {found}");
                }
            }
            prop_assert_eq!(panel.names.len() + panel.excluded.len(), all.len());
        }
    }
}
