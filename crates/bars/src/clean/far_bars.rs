use crate::bars::Bars;
use crate::time::timestamp::{DAY_NS, counted, display_utc};

/// A hole longer than this is more likely a wrong year in a row than a pause.
const YEAR_NS: i64 = 366 * DAY_NS;
/// Number of bars on one side of such a hole that counts as few.
const FEW: usize = 10;

/// Warns of the few bars that the longest hole separates from all others at either end: the order
/// of the rows cannot show that their times are wrong.
pub(crate) fn warnings(bars: &Bars) -> Vec<String> {
    let times = &bars.open_time;
    let is_hole = |after: &usize| times[*after] - times[*after - 1] > YEAR_NS;
    let few = FEW.min(times.len().saturating_sub(1) / 2);
    let first = (1..=few).rev().find(is_hole).map(|after| (after, times[0]));
    let last = (times.len() - few..times.len()).find(is_hole).map(|after| (times.len() - after, times[after]));
    let warning = |(count, from): (usize, i64)| {
        let (bars, lie) = (counted(count as u64, "bar", "bars"), if count == 1 { "lies" } else { "lie" });
        format!("{bars} {lie} more than a year from the others, from {} on: is the date right?", display_utc(from))
    };
    first.into_iter().chain(last).map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::time::timeframe::Timeframe;

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
            let warnings = warnings(&bars);
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            assert!(warnings.iter().zip(expected).all(|(warning, begins)| warning.starts_with(begins)), "{warnings:?}");
        }
    }
}
