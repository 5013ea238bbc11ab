//! Correlation of columns with returns that come after them, by which a column that looks ahead
//! shows.
//!
//! ```text
//! value   of the column at bar t, or its change from bar t - 1 (a price that is shifted has an
//!         ordinary level, and the change that comes)
//! return  ln(close[t + h] / close[t]), h = 1, 5, 20 bars
//!         ln(close[t + h] / close[t + h - 1]), h = 2 … 20: that of a column which is shifted by h
//! ```

use std::fmt;

use crate::bar_source::{BarSource, pieces_of};
use crate::bars::Bars;
use crate::error::Result;
use crate::series::pair_sums::PairSums;

/// Numbers of the next bars whose return is looked at.
const NEXT: [usize; 3] = [1, 5, 20];
/// Number of the last bar whose own return is looked at.
const LAST: usize = 20;
/// Least correlation that no honest column has. Prices that jump between bid and ask have
/// correlations of up to 0.4 from one bar to the next.
const IMPLAUSIBLE: f64 = 0.5;
/// Bars, in multiples of those of a return, from which on [`IMPLAUSIBLE`] is no chance: returns
/// that overlap are fewer than they seem.
const MANY_BARS: usize = 500;
/// The same for a correlation that is [`STANDARD_ERRORS`] above it.
const FEW_BARS: usize = 20;
/// Fewest bars for returns of any length: in fewer, one of a column of events may be all of it.
const BARS_MIN: usize = 60;
/// Standard errors of a correlation, as Fisher's transform has them, in each half of few bars.
const STANDARD_ERRORS: f64 = 4.0;
/// Bars that are looked at, or somewhat more: of more, pieces at equal distances.
const BARS_MAX: usize = 1 << 18;

/// A column that knows too much.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Foresight {
    /// Place of the column among those of the bars.
    pub column: usize,
    /// True if its change from bar to bar correlates, false if its value does.
    pub is_change: bool,
    /// Number of bars after which the return ends.
    pub bars_ahead: usize,
    /// True if the return is that of the last of these bars, false if it is that of all.
    pub is_one_bar: bool,
    /// Pearson's correlation with that return: of the first half of the bars, or of the second if
    /// it is nearer to 0.
    pub correlation: f64,
}

impl fmt::Display for Foresight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Foresight { is_change, bars_ahead, is_one_bar, correlation, .. } = self;
        let what = if *is_change { "its change" } else { "it" };
        let bars = match (*is_one_bar, *bars_ahead) {
            (_, 1) => "the next bar".to_owned(),
            (true, bars) => format!("the bar that comes {bars} bars later, as `shift(-{bars})` makes it"),
            (false, bars) => format!("the next {bars} bars"),
        };
        write!(f, "{what} has a correlation of {correlation:.2} with the return of {bars}")
    }
}

/// Bars after a bar, from the close of one to the close of another.
#[derive(Clone, Copy)]
struct ReturnSpan {
    start: usize,
    end: usize,
}

impl ReturnSpan {
    fn all() -> Vec<ReturnSpan> {
        let next = NEXT.map(|end| ReturnSpan { start: 0, end });
        let single = (2..=LAST).map(|end| ReturnSpan { start: end - 1, end });
        next.into_iter().chain(single).collect()
    }

    fn bars(self) -> usize {
        self.end - self.start
    }
}

/// The sums of the two halves of the bars.
pub(super) type Halves = [PairSums; 2];

/// Correlation of the half in which it is nearer to 0: a single jump beside a single value shows in
/// one half alone.
pub(super) fn correlation(halves: &Halves) -> Option<f64> {
    let [first, second] = [halves[0].correlation()?, halves[1].correlation()?];
    let nearer = if first.abs() < second.abs() { first } else { second };
    (first * second > 0.0).then_some(nearer)
}

/// Least [`correlation`] that no honest column has with returns of `bars` bars; `None` in few bars.
fn implausible(halves: &Halves, bars: usize) -> Option<f64> {
    let count: usize = halves.iter().map(|sums| sums.count as usize).sum();
    if count >= MANY_BARS * bars {
        return Some(IMPLAUSIBLE);
    }
    let returns_in_half = count as f64 / (2 * bars) as f64;
    let is_enough = count >= BARS_MIN.max(FEW_BARS * bars);
    is_enough.then(|| (IMPLAUSIBLE.atanh() + STANDARD_ERRORS / (returns_in_half - 3.0).sqrt()).tanh())
}

/// The first `count` columns of `bars` that correlate implausibly with a later return, each once,
/// by its highest correlation.
///
/// # Errors
/// As reading the bars.
pub fn foresight(bars: &dyn BarSource, count: usize) -> Result<Vec<Foresight>> {
    let spans = ReturnSpan::all();
    let none = vec![Halves::default(); spans.len()];
    let mut sums = vec![[none.clone(), none]; count];
    let mut piece = Bars::with_capacity(bars.timeframe(), 0);
    for range in pieces_of(0..bars.len()).step_by(bars.len().div_ceil(BARS_MAX).max(1)) {
        // With the bar before, and those of the returns.
        let first = range.start.saturating_sub(1);
        bars.read(first..(range.end + LAST).min(bars.len()), &mut piece)?;
        let own = range.start - first..range.end - first;
        let log_close: Vec<f64> = piece.close.iter().map(|close| close.ln()).collect();
        for (k, span) in spans.iter().enumerate() {
            let end = own.end.min(piece.len().saturating_sub(span.end));
            for t in own.start..end.max(own.start) {
                let later = log_close[t + span.end] - log_close[t + span.start];
                let half = usize::from(2 * (first + t) >= bars.len());
                for (column, sums) in piece.columns.iter().zip(&mut sums) {
                    sums[0][k][half].add(column[t], later);
                    if t > 0 {
                        sums[1][k][half].add(column[t] - column[t - 1], later);
                    }
                }
            }
        }
    }
    let found = sums.iter().enumerate().filter_map(|(column, sums)| {
        let all = sums.iter().enumerate().flat_map(|(change, sums)| {
            spans.iter().zip(sums).filter_map(move |(span, halves)| {
                let correlation = correlation(halves)?;
                let (bars_ahead, is_one_bar) = (span.end, span.bars() == 1);
                let found = Foresight { column, is_change: change == 1, bars_ahead, is_one_bar, correlation };
                (correlation.abs() >= implausible(halves, span.bars())?).then_some(found)
            })
        });
        all.max_by(|one, other| one.correlation.abs().total_cmp(&other.correlation.abs()))
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::time::timeframe::Timeframe;

    /// A column of closes at a place.
    type Column<'a> = &'a dyn Fn(&[f64], usize) -> f64;

    /// A random walk of 40,000 bars with these columns.
    fn walk(columns: &[Column<'_>]) -> Bars {
        let (mut state, mut close) = (9_u64, vec![1.2]);
        for _ in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            close.push(close[close.len() - 1] * (1e-4 * ((state >> 40) as f64 / (1 << 23) as f64 - 1.0)).exp());
        }
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for t in 50..close.len() - 50 {
            let columns = columns.iter().map(|column| column(&close, t)).collect();
            bars.push(Bar { open_time: t as i64, close: close[t], columns, ..Bar::default() });
        }
        bars
    }

    fn mean(close: &[f64]) -> f64 {
        close.iter().sum::<f64>() / close.len() as f64
    }

    #[test]
    fn columns_that_look_ahead_are_found() {
        let bars = walk(&[
            &|close, t| close[t + 1] / close[t],
            &|close, t| close[t + 1],
            &|close, t| (close[t + 20] > close[t]) as u8 as f64,
            &|close, t| 1e6 - 1e3 * mean(&close[t - 1..=t + 1]),
            &|close, t| close[t + 1..t + 6].iter().copied().fold(0.0, f64::max) - close[t],
            // Such columns passed: the next five bars are not enough like one of them.
            &|close, t| close[t + 5] / close[t + 4],
            &|close, t| close[t + 7],
        ]);
        let found = foresight(&bars, 7).unwrap();
        let seen: Vec<(usize, bool, usize)> =
            found.iter().map(|one| (one.column, one.is_change, one.bars_ahead)).collect();
        let expected =
            [(0, false, 1), (1, true, 1), (2, false, 20), (3, true, 1), (4, false, 5), (5, false, 5), (6, true, 7)];
        assert_eq!(seen, expected, "{found:?}");
        assert!(found[3].correlation < -0.5 && found[0].correlation > 0.999, "{found:?}");
        assert_eq!(found[1].to_string(), "its change has a correlation of 1.00 with the return of the next bar");
        let shifted = "with the return of the bar that comes 5 bars later, as `shift(-5)` makes it";
        assert!(found[5].to_string().ends_with(shifted) && !found[4].is_one_bar, "{found:?}");
    }

    /// A split of prices ten bars after the one value of a column was taken for a look ahead.
    #[test]
    fn a_single_jump_shows_nothing() {
        let mut bars = walk(&[&|_, t| if t == 300 { 1.0 } else { 0.0 }]).part(0..600);
        bars.close[260..].iter_mut().for_each(|close| *close /= 4.0);
        assert_eq!(foresight(&bars, 1).unwrap(), []);
    }

    #[test]
    fn columns_of_the_past_are_plausible() {
        let columns: [Column<'_>; 6] = [
            &|close, t| close[t] / close[t - 1],
            &|close, t| close[t],
            &|close, t| mean(&close[t - 49..=t]),
            &|close, t| close[t - 20..=t].iter().copied().fold(0.0, f64::max),
            &|_, t| t as f64,
            &|_, _| 7.0,
        ];
        let bars = walk(&columns);
        assert_eq!(foresight(&bars, 6).unwrap(), []);
        for first in (0..39_000).step_by(300) {
            for count in [BARS_MIN + 1, 120, 500, 600] {
                assert_eq!(foresight(&bars.part(first..first + count), 6).unwrap(), [], "{count} bars from {first}");
            }
        }
    }

    /// Nothing was found in fewer than 500 bars.
    #[test]
    fn a_column_that_is_the_return_to_come_is_found_in_few_bars() {
        for (ahead, count_min) in [(1, BARS_MIN), (5, 5 * FEW_BARS), (20, 20 * FEW_BARS)] {
            let bars = walk(&[&|close, t| close[t + ahead] / close[t]]);
            let found = |count: usize| {
                let found = foresight(&bars.part(0..count), 1).unwrap();
                found.first().map(|one| (one.bars_ahead, one.is_change))
            };
            assert_eq!(found(count_min + ahead), Some((ahead, false)), "{ahead}");
            // Returns of any length say nothing in these.
            assert_eq!(found(BARS_MIN), None, "{ahead}");
        }
    }
}
