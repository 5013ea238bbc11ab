//! Correlation of columns with returns that come after them, by which a column that looks ahead
//! shows.
//!
//! ```text
//! value   of the column at bar t, or its change from bar t - 1 (a price that is shifted has an
//!         ordinary level, and the change that comes)
//! return  ln(close[t + h] / close[t]), h = 1, 5, 20 bars
//! ```

use std::fmt;

use crate::bar_source::{BarSource, pieces_of};
use crate::bars::Bars;
use crate::error::Result;
use crate::series::pair_sums::PairSums;

/// Numbers of bars after which returns are looked at.
const AHEAD: [usize; 3] = [1, 5, 20];
/// Fewest bars, in multiples of the number of bars ahead: returns that overlap are fewer than they
/// seem, and few of them correlate with anything.
const BARS_MIN: usize = 500;
/// Least correlation that no honest column has. Prices that jump between bid and ask have
/// correlations of up to 0.4 from one bar to the next.
const IMPLAUSIBLE: f64 = 0.5;

/// A column that knows too much.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Foresight {
    /// Place of the column among those of the bars.
    pub column: usize,
    /// True if its change from bar to bar correlates, false if its value does.
    pub is_change: bool,
    /// Number of bars of the return.
    pub bars_ahead: usize,
    /// Pearson's correlation with that return.
    pub correlation: f64,
}

impl fmt::Display for Foresight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Foresight { is_change, bars_ahead, correlation, .. } = self;
        let what = if *is_change { "its change" } else { "it" };
        let bars = if *bars_ahead == 1 { "the next bar".to_owned() } else { format!("the next {bars_ahead} bars") };
        write!(f, "{what} has a correlation of {correlation:.2} with the return of {bars}")
    }
}

/// The first `count` columns of `bars` that correlate implausibly with a later return, each once,
/// by its highest correlation.
///
/// # Errors
/// As reading the bars.
pub fn foresight(bars: &dyn BarSource, count: usize) -> Result<Vec<Foresight>> {
    let longest = AHEAD[AHEAD.len() - 1];
    let mut sums = vec![[[PairSums::default(); AHEAD.len()]; 2]; count];
    let mut piece = Bars::with_capacity(bars.timeframe(), 0);
    for range in pieces_of(0..bars.len()) {
        // With the bar before, and those of the returns.
        let first = range.start.saturating_sub(1);
        bars.read(first..(range.end + longest).min(bars.len()), &mut piece)?;
        let own = range.start - first..range.end - first;
        for (k, &ahead) in AHEAD.iter().enumerate() {
            let end = own.end.min(piece.len().saturating_sub(ahead));
            for t in own.start..end.max(own.start) {
                let later = (piece.close[t + ahead] / piece.close[t]).ln();
                for (column, sums) in piece.columns.iter().zip(&mut sums) {
                    sums[0][k].add(column[t], later);
                    if t > 0 {
                        sums[1][k].add(column[t] - column[t - 1], later);
                    }
                }
            }
        }
    }
    let found = sums.iter().enumerate().filter_map(|(column, sums)| {
        let all = sums.iter().enumerate().flat_map(|(change, sums)| {
            AHEAD.iter().zip(sums).filter_map(move |(&bars_ahead, sums)| {
                let correlation = sums.correlation().filter(|_| sums.count as usize >= BARS_MIN * bars_ahead)?;
                Some(Foresight { column, is_change: change == 1, bars_ahead, correlation })
            })
        });
        let highest = all.max_by(|one, other| one.correlation.abs().total_cmp(&other.correlation.abs()));
        highest.filter(|highest| highest.correlation.abs() >= IMPLAUSIBLE)
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
        ]);
        let found = foresight(&bars, 5).unwrap();
        let seen: Vec<(usize, bool, usize)> =
            found.iter().map(|one| (one.column, one.is_change, one.bars_ahead)).collect();
        assert_eq!(seen, [(0, false, 1), (1, true, 1), (2, false, 20), (3, true, 1), (4, false, 5)], "{found:?}");
        assert!(found[3].correlation < -0.5 && found[0].correlation > 0.999, "{found:?}");
        assert_eq!(found[1].to_string(), "its change has a correlation of 1.00 with the return of the next bar");
    }

    #[test]
    fn columns_of_the_past_are_plausible_and_few_bars_say_nothing() {
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
        let ahead = walk(&[&|close, t| close[t + 1] / close[t]]);
        assert_eq!(foresight(&ahead.part(0..BARS_MIN), 1).unwrap(), []);
        assert_eq!(foresight(&ahead.part(0..BARS_MIN + 2), 1).unwrap().len(), 1);
    }
}
