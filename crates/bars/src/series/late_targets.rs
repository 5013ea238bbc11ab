//! Correlation of targets that are columns with returns after their horizon, by which a target
//! that is decided later shows.
//!
//! ```text
//! value   of the target at bar t
//! return  ln(close[t + H + 1 + h] / close[t + H + 1]), H the horizon, h about H/4, H, 4 H bars
//! usual   correlation of ln(close[t + H] / close[t]) with that return: prices may come back
//! ```
//!
//! The close at t + H is in no return: it decides targets, and one that was a bid correlates with
//! the move to the next ask.

use std::fmt;

use crate::bar_source::{BarSource, pieces_of};
use crate::bars::Bars;
use crate::error::Result;
use crate::series::foresight::{Halves, correlation};
use crate::series::spec::SeriesSpec;

/// Least correlation, beyond the usual one, that no target has which the bars of its horizon
/// decide.
const IMPLAUSIBLE: f64 = 0.1;
/// The same in standard errors of a correlation. Bars whose horizons or returns overlap count once.
const STANDARD_ERRORS: f64 = 6.0;
/// Fewest bars, in multiples of those of a return or of the horizon, the more of both: of fewer,
/// [`STANDARD_ERRORS`] are above 1.
const BARS_MIN: usize = 36;

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
    /// Pearson's correlation with that return: of the first half of the bars, or of the second if
    /// it is nearer to 0.
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

/// The targets of `spec` that are columns of `bars`, of their files or of a function, and correlate
/// implausibly with a return after their horizon, each once, by its highest correlation. Columns
/// with their own ends of labels are not looked at.
///
/// # Errors
/// As reading the bars.
pub fn late_targets(bars: &dyn BarSource, spec: &SeriesSpec) -> Result<Vec<LateTarget>> {
    let (targets, horizon) = (spec.target_kind.columns().len(), spec.horizon);
    if targets == 0 || spec.target_kind.label_end().is_some() {
        return Ok(Vec::new());
    }
    let first_column = spec.first_target_column();
    let lengths = [(horizon / 4).max(1), horizon, horizon.saturating_mul(4)];
    let is_enough = |length: &usize| bars.len() / BARS_MIN >= horizon.max(*length);
    let lengths: Vec<usize> = lengths.into_iter().filter(is_enough).collect();
    let Some(longest) = lengths.last() else { return Ok(Vec::new()) };
    // Of the targets, and last of the horizon's own return.
    let mut sums = vec![vec![Halves::default(); lengths.len()]; targets + 1];
    let mut piece = Bars::with_capacity(bars.timeframe(), 0);
    for range in pieces_of(0..bars.len()) {
        let own = range.len();
        bars.read(range.start..(range.end + horizon + 1 + longest).min(bars.len()), &mut piece)?;
        for (k, &length) in lengths.iter().enumerate() {
            for t in 0..own.min(piece.len().saturating_sub(horizon + 1 + length)) {
                let after = t + horizon + 1;
                let later = (piece.close[after + length] / piece.close[after]).ln();
                let within = (piece.close[t + horizon] / piece.close[t]).ln();
                let half = usize::from(2 * (range.start + t) >= bars.len());
                let columns = piece.columns[first_column..].iter().take(targets);
                for (value, sums) in columns.map(|column| column[t]).chain([within]).zip(&mut sums) {
                    if value.is_finite() {
                        sums[k][half].add(value, later);
                    }
                }
            }
        }
    }
    let own_returns = sums.pop().expect("the horizon's own return comes last");
    let found = sums.iter().enumerate().filter_map(|(target, sums)| {
        let all =
            lengths.iter().zip(sums.iter().zip(&own_returns)).filter_map(|(&bars_after, (halves, own_return))| {
                let correlation = correlation(halves)?;
                let count: f64 = halves.iter().map(|sums| sums.count).sum();
                let chance = STANDARD_ERRORS / (count / bars_after.max(horizon) as f64).sqrt();
                let is_late = correlation.abs() >= IMPLAUSIBLE.max(chance) + mean_correlation(own_return).abs();
                is_late.then_some(LateTarget { target, horizon, bars_after, correlation })
            });
        all.max_by(|one, other| one.correlation.abs().total_cmp(&other.correlation.abs()))
    });
    Ok(found.collect())
}

/// Mean of the correlations of the halves; 0 where nothing varies.
fn mean_correlation(halves: &Halves) -> f64 {
    halves.iter().map(|sums| sums.correlation().unwrap_or(0.0)).sum::<f64>() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::series::target::{ColumnTargets, TargetKind, TargetOrigin};
    use crate::time::timeframe::Timeframe;

    const HORIZON: usize = 12;

    /// A random walk of `count` bars whose prices jump between bid and ask.
    fn prices(count: usize) -> Vec<f64> {
        let (mut state, mut level, mut close) = (9_u64, 0.0_f64, Vec::new());
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            level += 1e-4 * ((state >> 40) as f64 / (1 << 23) as f64 - 1.0);
            close.push((level + if state & (1 << 39) == 0 { 5e-5 } else { -5e-5 }).exp());
        }
        close
    }

    /// The late ones of targets that `target` gives of all closes and a place, in 40,000 bars.
    fn late(target: impl Fn(&[f64], usize) -> f64, horizon: usize) -> Vec<LateTarget> {
        late_among(&prices(40_000), target, horizon)
    }

    fn late_among(close: &[f64], target: impl Fn(&[f64], usize) -> f64, horizon: usize) -> Vec<LateTarget> {
        let [found, by_function] =
            [TargetOrigin::Files, TargetOrigin::Function].map(|origin| late_from(origin, close, &target, horizon));
        assert_eq!(found, by_function);
        found
    }

    fn late_from(
        origin: TargetOrigin,
        close: &[f64],
        target: &dyn Fn(&[f64], usize) -> f64,
        horizon: usize,
    ) -> Vec<LateTarget> {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for t in 0..close.len() {
            let target = if t < 50 || t + 50 > close.len() { f64::NAN } else { target(close, t) };
            bars.push(Bar { open_time: t as i64, close: close[t], columns: [target].into(), ..Bar::default() });
        }
        let targets = ColumnTargets { names: vec!["label".to_owned()], label_end: None, origin };
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

    /// A target of `shift(-5)` at a horizon of 3 had a correlation of 0.40, and no warning.
    #[test]
    fn a_few_bars_too_late_and_few_bars_are_found() {
        assert_eq!(late(|close, t| close[t + 15] / close[t], HORIZON).len(), 1);
        let ahead = |close: &[f64], t: usize| close[t + 5] / close[t];
        assert_eq!(late_among(&prices(1100), ahead, 3).len(), 1);
        assert_eq!(late_among(&prices(300), ahead, 3).len(), 0, "chance gives as much");
    }

    /// The return of a horizon correlates with those after it where prices come back.
    #[test]
    fn prices_that_come_back_are_no_late_target() {
        let walk: Vec<f64> = prices(40_000).windows(2).map(|pair| (pair[1] / pair[0]).ln()).collect();
        let coming_back = |kept: f64| -> Vec<f64> {
            let mut level = 0.0_f64;
            let next = |step: &f64| {
                level = kept * level + step;
                level.exp()
            };
            walk.iter().map(next).collect()
        };
        let own = |close: &[f64], t: usize| close[t + HORIZON] / close[t];
        assert_eq!(late_among(&coming_back(0.9), own, HORIZON), []);
        assert_eq!(late_among(&coming_back(0.97), own, HORIZON), []);
        assert_eq!(late_among(&coming_back(0.97), |close, t| close[t + 36] / close[t], HORIZON).len(), 1);
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
        assert_eq!(late(|close, t| close[t + 49] / close[t], 100), []);
    }
}
