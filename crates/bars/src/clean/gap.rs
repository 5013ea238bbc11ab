use std::ops::Range;

use crate::bars::Bars;
use crate::clean::gaps::Gap;
use crate::time::timestamp::DAY_NS;

/// Holes (stretches of time without bars) that a series may span.
///
/// A hole that it may not span ends a *segment*. Each segment is treated like a recording of its
/// own: features warm up anew in it, and no window, look-back of a feature or horizon crosses its
/// ends.
///
/// A bin of a longer timeframe belongs to one segment alone. The one in which a segment ends,
/// unless it closes with the segment's last bar, is excluded, as at the end of a recording. The one
/// in which a segment begins holds that segment's bars only, as at the beginning of a recording. So
/// no bin appears twice or mixes two segments, and close times increase strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapPolicy {
    /// A hole longer than this ends a segment, in nanoseconds; 0 or more.
    pub longest_ns: i64,
    /// Treatment of weekends no longer than that.
    pub weekends: Weekends,
}

/// Treatment of weekends: holes that contain a Saturday noon UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weekends {
    /// A weekend is a hole like any other: it ends a segment only if it is longer than the longest
    /// one allowed.
    #[default]
    Spanned,
    /// A weekend ends a segment, however short it is.
    NotSpanned,
}

impl Default for GapPolicy {
    /// Four days, which no weekend reaches and few holidays do.
    fn default() -> Self {
        GapPolicy { longest_ns: 4 * DAY_NS, weekends: Weekends::default() }
    }
}

impl GapPolicy {
    /// The segments of a recording, as ranges of its bars: in order, without a bar between them,
    /// none empty.
    pub fn segments(&self, bars: &Bars) -> Vec<Range<usize>> {
        let before = |next: usize| Gap { from: bars.close_time(next - 1), to: bars.open_time[next] };
        let first_after_hole = (1..bars.len()).filter(|&next| self.forbids(before(next)));
        let starts: Vec<usize> = (!bars.is_empty()).then_some(0).into_iter().chain(first_after_hole).collect();
        let ends = starts.iter().skip(1).copied().chain([bars.len()]);
        starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
    }

    /// True if no segment may span that gap.
    pub(crate) fn forbids(&self, gap: Gap) -> bool {
        let is_weekend = || self.weekends == Weekends::NotSpanned && gap.spans_a_saturday_noon();
        gap.duration_ns() > self.longest_ns || (gap.duration_ns() > 0 && is_weekend())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::time::timeframe::Timeframe;
    use crate::time::timestamp::{HOUR_NS, MINUTE_NS};

    /// 1970-01-02, a Friday, 22:00 UTC.
    const FRIDAY_CLOSE_NS: i64 = DAY_NS + 22 * HOUR_NS;

    fn bars(open_times: &[i64]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, open_times.len());
        for &open_time in open_times {
            bars.push(Bar { open_time, open: 1.0, high: 1.0, low: 1.0, close: 1.0, ..Bar::default() });
        }
        bars
    }

    /// Number of segments on both sides of a hole that begins on Friday at 22:00.
    fn segments_around(hole_ns: i64, rule: GapPolicy) -> usize {
        rule.segments(&bars(&[FRIDAY_CLOSE_NS - MINUTE_NS, FRIDAY_CLOSE_NS + hole_ns])).len()
    }

    #[test]
    fn a_hole_longer_than_the_rule_ends_a_segment() {
        let days = |count| GapPolicy { longest_ns: count * DAY_NS, weekends: Weekends::Spanned };
        for (hole_ns, rule, expected) in [
            (0, days(0), 1),
            (1, days(0), 2),
            (2 * DAY_NS, GapPolicy::default(), 1),
            (4 * DAY_NS, GapPolicy::default(), 1),
            (4 * DAY_NS + 1, GapPolicy::default(), 2),
            (2 * DAY_NS, days(1), 2),
            (-30, days(0), 1), // bars that overlap
        ] {
            assert_eq!(segments_around(hole_ns, rule), expected, "{hole_ns} {rule:?}");
        }
    }

    #[test]
    fn weekends_end_segments_where_they_are_not_spanned() {
        let rule = GapPolicy { weekends: Weekends::NotSpanned, ..GapPolicy::default() };
        for (hole_ns, expected) in [
            (0, 1),
            (13 * HOUR_NS, 1),     // to Saturday 11:00
            (14 * HOUR_NS + 1, 2), // past Saturday noon
            (2 * DAY_NS, 2),
            (3 * DAY_NS + 23 * HOUR_NS, 2), // a long weekend
        ] {
            assert_eq!(segments_around(hole_ns, rule), expected, "{hole_ns}");
        }
        let thursday_noon = bars(&[12 * HOUR_NS, 20 * HOUR_NS]);
        assert_eq!(rule.segments(&thursday_noon).len(), 1, "a hole on a working day is no weekend");
    }

    #[test]
    fn segments_hold_every_bar_once() {
        let rule = GapPolicy { longest_ns: 2 * MINUTE_NS, ..GapPolicy::default() };
        let minutes = |minutes: &[i64]| bars(&minutes.iter().map(|minute| minute * MINUTE_NS).collect::<Vec<_>>());
        let cases: [(&[i64], &[Range<usize>]); 3] =
            [(&[], &[]), (&[7, 12], &[0..1, 1..2]), (&[0, 1, 4, 8, 9, 20], &[0..3, 3..5, 5..6])];
        for (opens, expected) in cases {
            assert_eq!(rule.segments(&minutes(opens)), expected, "{opens:?}");
        }
    }
}
