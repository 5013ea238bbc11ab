//! Correlation of targets that are columns with returns after their horizon, by which a target
//! that is decided later shows.
//!
//! ```text
//! value   of the target at bar t
//! return  ln(close[t + H + 1 + h] / close[t + H + 1]), H the horizon, h about H/4, H, 4 H bars
//! ```
//!
//! The close at t + H is in no return: it decides targets, and one that was a bid correlates with
//! the move to the next ask.

use std::fmt;

use crate::bar_source::{BarSource, pieces_of};
use crate::bars::Bars;
use crate::error::Result;
use crate::series::pair_sums::PairSums;
use crate::series::spec::SeriesSpec;

/// Fewest bars with a target, in multiples of the bars of a return or of the horizon, the more of
/// both: so many overlap.
const BARS_MIN: usize = 500;
/// Least correlation that no target has which the bars of its horizon decide. Of [`BARS_MIN`], the
/// correlation of independent numbers deviates from zero by 0.05.
const IMPLAUSIBLE: f64 = 0.25;

/// A target that seems to be decided after its horizon.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LateTarget {
    /// Its place among the targets.
    pub target: usize,
    /// The horizon, in bars.
    pub horizon: usize,
    /// Number of bars of the return, which begins a bar after the horizon.
    pub bars_after: usize,
    /// Pearson's correlation with that return.
    pub correlation: f64,
}

impl fmt::Display for LateTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LateTarget { horizon, bars_after, correlation, .. } = self;
        let bars = if *bars_after == 1 { "bar".to_owned() } else { format!("{bars_after} bars") };
        write!(
            f,
            "it has a correlation of {correlation:.2} with the return of the {bars} after its horizon of {horizon}"
        )
    }
}

/// The targets of `spec` that are columns of `bars` and correlate implausibly with a return after
/// their horizon, each once, by its highest correlation. Columns with their own ends of labels are
/// not looked at.
///
/// # Errors
/// As reading the bars.
pub fn late_targets(bars: &dyn BarSource, spec: &SeriesSpec) -> Result<Vec<LateTarget>> {
    let (targets, horizon) = (spec.target_kind.file_columns().len(), spec.horizon);
    if targets == 0 || spec.target_kind.label_end().is_some() {
        return Ok(Vec::new());
    }
    let first_column = spec.first_target_column();
    let lengths = [(horizon / 4).max(1), horizon, horizon.saturating_mul(4)];
    let is_enough = |length: usize, bars: usize| bars / BARS_MIN >= length.max(horizon);
    let lengths: Vec<usize> = lengths.into_iter().filter(|&length| is_enough(length, bars.len())).collect();
    let Some(longest) = lengths.last() else { return Ok(Vec::new()) };
    let mut sums = vec![vec![PairSums::default(); lengths.len()]; targets];
    let mut piece = Bars::with_capacity(bars.timeframe(), 0);
    for range in pieces_of(0..bars.len()) {
        let own = range.len();
        bars.read(range.start..(range.end + horizon + 1 + longest).min(bars.len()), &mut piece)?;
        for (k, &length) in lengths.iter().enumerate() {
            for t in 0..own.min(piece.len().saturating_sub(horizon + 1 + length)) {
                let after = t + horizon + 1;
                let later = (piece.close[after + length] / piece.close[after]).ln();
                for (column, sums) in piece.columns[first_column..].iter().zip(&mut sums) {
                    if column[t].is_finite() {
                        sums[k].add(column[t], later);
                    }
                }
            }
        }
    }
    let found = sums.iter().enumerate().filter_map(|(target, sums)| {
        let all = lengths.iter().zip(sums).filter_map(|(&bars_after, sums)| {
            let correlation = sums.correlation().filter(|_| is_enough(bars_after, sums.count as usize))?;
            Some(LateTarget { target, horizon, bars_after, correlation })
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
    use crate::series::target::{ColumnTargets, TargetKind, TargetOrigin};
    use crate::time::timeframe::Timeframe;

    const HORIZON: usize = 12;

    /// A random walk of 40,000 bars whose prices jump between bid and ask.
    fn prices() -> Vec<f64> {
        let (mut state, mut level, mut close) = (9_u64, 0.0_f64, Vec::new());
        for _ in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            level += 1e-4 * ((state >> 40) as f64 / (1 << 23) as f64 - 1.0);
            close.push((level + if state & (1 << 39) == 0 { 5e-5 } else { -5e-5 }).exp());
        }
        close
    }

    /// The late ones of targets that `target` gives of all closes and a place.
    fn late(target: impl Fn(&[f64], usize) -> f64, horizon: usize) -> Vec<LateTarget> {
        let close = prices();
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for t in 0..close.len() {
            let target = if t < 50 || t + 50 > close.len() { f64::NAN } else { target(&close, t) };
            bars.push(Bar { open_time: t as i64, close: close[t], columns: [target].into(), ..Bar::default() });
        }
        let targets = ColumnTargets { names: vec!["label".to_owned()], label_end: None, origin: TargetOrigin::Files };
        let spec = SeriesSpec { horizon, target_kind: TargetKind::Columns(targets), ..SeriesSpec::default() };
        late_targets(&bars, &spec).unwrap()
    }

    #[test]
    fn targets_that_are_decided_after_their_horizon_are_found() {
        let found = late(|close, t| close[t + 36] / close[t], HORIZON);
        assert!(matches!(&found[..], [one] if one.bars_after == HORIZON && one.correlation > 0.5), "{found:?}");
        let text = found[0].to_string();
        assert!(text.ends_with("with the return of the 12 bars after its horizon of 12"), "{text}");
        assert_eq!(late(|close, t| (close[t + 18] > close[t]) as u8 as f64, HORIZON).len(), 1);
        assert_eq!(late(|close, t| -close[t + 3], 1).len(), 0, "a price is no return");
        assert_eq!(late(|close, t| close[t] - close[t + 3], 1).len(), 1);
    }

    #[test]
    fn targets_that_their_horizon_decides_are_plausible() {
        for horizon in [1, HORIZON, 36] {
            assert_eq!(late(|close, t| close[t + horizon] / close[t], horizon), []);
            assert_eq!(late(|close, t| close[t + horizon], horizon), []);
            let best = |close: &[f64], t: usize| close[t..=t + horizon].iter().copied().fold(0.0, f64::max) - close[t];
            assert_eq!(late(best, horizon), []);
            assert_eq!(late(|_, t| t as f64, horizon), []);
        }
        assert_eq!(late(|close, t| close[t + 49] / close[t], 100), [], "40,000 bars are too few");
    }
}
