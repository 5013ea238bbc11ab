use std::fmt;

use crate::bars::Bars;
use crate::timestamp::{DAY_NS, HOUR_NS, display_duration, display_utc};

/// A pause longer than this is a hole in the data, whether or not a weekend lies in it.
const WEEKEND_NS_MAX: i64 = 3 * DAY_NS + 12 * HOUR_NS;
/// Noon of the first Saturday after 1970-01-01, a Thursday.
const SATURDAY_NOON_NS: i64 = 2 * DAY_NS + 12 * HOUR_NS;

/// A stretch of time without bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Close time of the last bar before it, in nanoseconds since 1970 UTC.
    pub from: i64,
    /// Open time of the first bar after it.
    pub to: i64,
}

/// The gaps in a series of bars. They are counted and never filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Gaps that are not weekends.
    pub count: u64,
    /// The longest of them.
    pub largest: Option<Gap>,
    /// Gaps of at most 3.5 days that have a Saturday noon UTC in them.
    pub weekends: u64,
}

impl Gap {
    fn duration_ns(&self) -> i64 {
        self.to - self.from
    }

    fn is_weekend(&self) -> bool {
        let weeks = |ns: i64| (ns - SATURDAY_NOON_NS).div_euclid(7 * DAY_NS);
        self.duration_ns() <= WEEKEND_NS_MAX && weeks(self.from) != weeks(self.to)
    }
}

impl Gaps {
    /// Counts the gaps between neighbouring bars.
    pub fn of(bars: &Bars) -> Self {
        let mut gaps = Gaps::default();
        let duration_ns = bars.timeframe.duration_ns();
        for pair in bars.open_time.windows(2) {
            let gap = Gap { from: pair[0] + duration_ns, to: pair[1] };
            if gap.duration_ns() > 0 {
                gaps.add(gap);
            }
        }
        gaps
    }

    fn add(&mut self, gap: Gap) {
        if gap.is_weekend() {
            self.weekends += 1;
            return;
        }
        self.count += 1;
        if self.largest.is_none_or(|largest| largest.duration_ns() < gap.duration_ns()) {
            self.largest = Some(gap);
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
        write!(f, "gaps: {}", self.count)?;
        if let Some(largest) = self.largest {
            write!(f, ", the longest {largest}")?;
        }
        write!(f, "; weekends: {}", self.weekends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::timeframe::Timeframe;
    use crate::timestamp::MINUTE_NS;

    #[test]
    fn weekends_and_holes_are_told_apart() {
        let friday_close = DAY_NS + 22 * HOUR_NS; // 1970-01-02 22:00 UTC
        let opens = [
            friday_close - MINUTE_NS,
            friday_close + 2 * DAY_NS,                               // a weekend
            friday_close + 2 * DAY_NS + 3 * MINUTE_NS,               // two minutes are missing
            friday_close + 2 * DAY_NS + 4 * MINUTE_NS,               // nothing is missing
            friday_close + 2 * DAY_NS + 4 * MINUTE_NS + 32 * DAY_NS, // a month, with weekends in it
        ];
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for open_time in opens {
            bars.push(Bar { open_time, open: 1.0, high: 1.0, low: 1.0, close: 1.0, ..Bar::default() });
        }
        let gaps = Gaps::of(&bars);
        assert_eq!((gaps.count, gaps.weekends), (2, 1));
        assert_eq!(gaps.to_string(), "gaps: 2, the longest 31 d 23 h 59 min from 1970-01-04T22:05:00Z; weekends: 1");
        assert_eq!(Gaps::of(&Bars::with_capacity(Timeframe::M1, 0)).to_string(), "gaps: 0; weekends: 0");
    }
}
