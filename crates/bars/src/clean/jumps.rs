//! Jumps of the price between bars that the bars around them do not explain, above all splits of
//! shares.
//!
//! A jump meets three conditions. It is ten times the typical range of the bars around it, so that
//! a volatile market has none. It is a factor of at least 1.4, which trading seldom makes. And it
//! is within three percent of the ratio of a split, or else, between a close and the next open, a
//! factor of 1.5 that no ratio explains. Of a pair of currencies, a factor of 1.05 between a close
//! and the next open is enough, unless more than a month lies between them. Ratios below 3:2 are
//! excluded: shares fall by a fifth on bad news too often for 5:4 to mean anything.

use std::collections::VecDeque;
use std::fmt;

use crate::bars::Bar;
use crate::median::median;
use crate::time::timestamp::{DAY_NS, display_utc};

/// Least size of a jump, in typical ranges.
const RANGES_MIN: f64 = 10.0;
/// Bars on either side whose median range is the typical one.
const BARS_AROUND: usize = 20;
/// The smallest factor of a split's jump: 3:2 and its tolerance.
const FACTOR_MIN: f64 = 1.4;
/// The smallest factor that is reported although it is no ratio of a split.
pub(crate) const UNNAMED_FACTOR_MIN: f64 = 1.5;
/// The smallest factor of a pair of currencies that is reported although it is no ratio of a split.
pub(crate) const PAIR_FACTOR_MIN: f64 = 1.05;
/// Longest time from a bar to the next in which a pair seldom moves by that factor.
pub(crate) const PAIR_SPACING_MAX_NS: i64 = 31 * DAY_NS;
/// Largest distance from the ratio, relative to it, at which a split share may open.
const TOLERANCE: f64 = 0.03;
/// Ratios of share splits; their inverses are reverse splits.
const RATIOS: [(u32, u32); 18] = [
    (3, 2),
    (2, 1),
    (5, 2),
    (3, 1),
    (4, 1),
    (5, 1),
    (6, 1),
    (7, 1),
    (8, 1),
    (10, 1),
    (12, 1),
    (15, 1),
    (20, 1),
    (25, 1),
    (30, 1),
    (40, 1),
    (50, 1),
    (100, 1),
];

/// A jump of the price that the bars around it do not explain.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Jump {
    /// Open time of the bar after it, in nanoseconds since 1970 UTC.
    pub open_time: i64,
    /// Open time of the bar before it.
    pub(crate) previous_open_time: i64,
    /// The close before it.
    #[serde(with = "crate::exact::bits")]
    pub from: f64,
    /// The open after it, or the close where the open is still the close before.
    #[serde(with = "crate::exact::bits")]
    pub to: f64,
    /// The ratio that it is near to: `(4, 1)` where one share became four and the price fell to a
    /// quarter, `(1, 10)` where ten became one.
    pub split: Option<(u32, u32)>,
}

/// Finder of jumps in bars as they come: the last ones, with those around each that is judged.
pub(crate) struct JumpWindow {
    /// The smallest factor of a jump that is no ratio of a split.
    unnamed_factor_min: f64,
    /// At most `BARS_AROUND` before and after the one that is judged next, the one itself, and one
    /// more before, whose close it follows.
    bars: VecDeque<Bar>,
    /// Place in `bars` of the one that is judged next.
    judged: usize,
    jumps: Vec<Jump>,
}

impl JumpWindow {
    /// No bars. A jump that is no ratio of a split has at least the factor `unnamed_factor_min`.
    pub(crate) fn new(unnamed_factor_min: f64) -> Self {
        JumpWindow { unnamed_factor_min, bars: VecDeque::new(), judged: 0, jumps: Vec::new() }
    }

    /// Takes the next bar.
    pub(crate) fn add(&mut self, bar: Bar) {
        self.bars.push_back(bar);
        if self.bars.len() > self.judged + BARS_AROUND {
            self.judge();
        }
    }

    /// Judges the next bar.
    fn judge(&mut self) {
        if self.judged > 0 {
            self.jumps.extend(Jump::into(&self.bars, self.judged, self.unnamed_factor_min));
        }
        self.judged += 1;
        if self.judged > BARS_AROUND {
            self.bars.pop_front();
            self.judged -= 1;
        }
    }

    /// Every jump, in order of time.
    pub(crate) fn finish(mut self) -> Vec<Jump> {
        while self.judged < self.bars.len() {
            self.judge();
        }
        self.jumps
    }
}

impl Jump {
    fn into(bars: &VecDeque<Bar>, place: usize, unnamed_factor_min: f64) -> Option<Self> {
        let (previous, bar) = (&bars[place - 1], &bars[place]);
        let is_near = bar.open_time - previous.open_time <= PAIR_SPACING_MAX_NS;
        let unnamed_factor_min = if is_near { unnamed_factor_min } else { UNNAMED_FACTOR_MIN };
        let before = previous.close;
        let jump = |to: f64| {
            (factor(before, to) >= FACTOR_MIN.min(unnamed_factor_min)).then(|| Jump {
                open_time: bar.open_time,
                previous_open_time: previous.open_time,
                from: before,
                to,
                split: split_of(before, to),
            })
        };
        // Bars that open at the close before them show a split in their close.
        let opens_as_before = factor(before, bar.open) <= 1.0 + TOLERANCE;
        let told = match opens_as_before {
            true => jump(bar.close).filter(|jump| jump.split.is_some())?,
            false => {
                jump(bar.open).filter(|jump| jump.split.is_some() || factor(before, jump.to) >= unnamed_factor_min)?
            }
        };
        (factor(told.from, told.to).ln() >= RANGES_MIN * typical_range(bars, place)).then_some(told)
    }

    /// True if `warning` is of this jump. It may go on with the files on either side.
    pub(crate) fn is_told_by(&self, warning: &str) -> bool {
        warning.starts_with(&self.to_string())
    }
}

fn factor(from: f64, to: f64) -> f64 {
    from.max(to) / from.min(to)
}

/// The ratio that a change of the price is near to.
fn split_of(from: f64, to: f64) -> Option<(u32, u32)> {
    let both_ways = RATIOS.iter().flat_map(|&(new, old)| [(new, old), (old, new)]);
    both_ways.into_iter().find(|&(new, old)| {
        let expected = f64::from(old) / f64::from(new);
        (to / from / expected - 1.0).abs() <= TOLERANCE
    })
}

/// The median range, relative to the price, of the bars around one, itself left out.
fn typical_range(bars: &VecDeque<Bar>, place: usize) -> f64 {
    let around = place.saturating_sub(BARS_AROUND)..(place + 1 + BARS_AROUND).min(bars.len());
    let mut ranges: Vec<f64> =
        around.filter(|&k| k != place).map(|k| (bars[k].high - bars[k].low) / bars[k].low).collect();
    median(&mut ranges)
}

impl fmt::Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Jump { open_time, from, to, split, .. } = *self;
        write!(
            f,
            "the price goes from {from} to {to} at {}, which no range of the bars around explains",
            display_utc(open_time)
        )?;
        match split {
            Some((new, old)) => write!(f, ": a split {new}:{old} that prices were not adjusted for?"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bars;
    use crate::time::timeframe::Timeframe;

    /// Forty bars of a range of half a percent around `price`, and forty more around `price ×
    /// factor`.
    fn bars_with(factor: f64, range: f64) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::D1, 0);
        for k in 0..80i64 {
            let price = if k < 40 { 500.0 } else { 500.0 * factor };
            let (high, low) = (price * (1.0 + range / 2.0), price * (1.0 - range / 2.0));
            bars.push(Bar { open_time: k, open: price, high, low, close: price, ..Bar::default() });
        }
        bars
    }

    fn all(bars: &Bars) -> Vec<Jump> {
        all_from(bars, UNNAMED_FACTOR_MIN)
    }

    fn all_from(bars: &Bars, unnamed_factor_min: f64) -> Vec<Jump> {
        let mut window = JumpWindow::new(unnamed_factor_min);
        (0..bars.len()).for_each(|index| window.add(bars.bar(index)));
        window.finish()
    }

    #[test]
    fn splits_are_named_by_their_ratio() {
        let cases = [
            (0.2555, Some(Some((4, 1)))),
            (0.5, Some(Some((2, 1)))),
            (0.68, Some(Some((3, 2)))),
            (10.2, Some(Some((1, 10)))),
            (0.6, Some(None)),
            (1.7, Some(None)),
            (0.8, None),
            (1.0, None),
        ];
        for (factor, expected) in cases {
            let jumps = all(&bars_with(factor, 0.005));
            assert_eq!(jumps.first().map(|jump| jump.split), expected, "{factor}");
            assert!(jumps.len() <= 1);
        }
        let text = all(&bars_with(0.25, 0.005))[0].to_string();
        assert!(
            text.contains("from 500 to 125 at 1970-01-01T00:00:00.00000004Z") && text.contains("a split 4:1"),
            "{text}"
        );
    }

    #[test]
    fn a_wild_market_explains_its_jumps() {
        assert_eq!(all(&bars_with(0.68, 0.06)).len(), 0);
        assert_eq!(all(&bars_with(0.25, 0.06)).len(), 1);
    }

    // EURUSD went on with the prices of another pair, from 1.23 to 1.4.
    #[test]
    fn a_pair_has_no_steps_of_a_twentieth() {
        for (factor, expected) in [(1.14, 1), (0.94, 1), (1.04, 0)] {
            let bars = bars_with(factor, 0.0005);
            assert_eq!((all(&bars).len(), all_from(&bars, PAIR_FACTOR_MIN).len()), (0, expected), "{factor}");
        }
        assert_eq!(all_from(&bars_with(1.14, 0.06), PAIR_FACTOR_MIN).len(), 0);
        // A pair moves that far in the months that files lack.
        for (days, expected) in [(31, 1), (32, 0)] {
            let mut bars = bars_with(1.14, 0.0005);
            bars.open_time[40..].iter_mut().for_each(|time| *time += days * DAY_NS - 1);
            assert_eq!(all_from(&bars, PAIR_FACTOR_MIN).len(), expected, "{days}");
        }
    }

    #[test]
    fn a_split_within_a_bar_that_opens_at_the_old_price() {
        let mut bars = bars_with(0.5, 0.005);
        (bars.open[40], bars.high[40]) = (500.0, 500.0);
        let jumps = all(&bars);
        assert_eq!((jumps.len(), jumps[0].to, jumps[0].split), (1, 250.0, Some((2, 1))));
    }
}
