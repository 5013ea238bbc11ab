//! Standard errors of an estimate from some runs of a part's samples.
//!
//! An error is a ratio of sums over the runs r, of squared errors s and of known targets n:
//!
//! ```text
//! m_k   = sum_r s_rk / sum_r n_rk                                  mean square at target k
//! error = mean_k sqrt(m_k)
//! z_r   = mean_k (s_rk - m_k n_rk) / (2 sqrt(m_k) sum_r n_rk)      what run r adds to the error
//! se^2  = (1 - taken / part) R / (R - 1) sum_r z_r^2
//! ```
//!
//! Samples of a run share their windows: runs are independent, samples are not. Samples that are
//! taken are known exactly, so that the error vanishes if all are taken (Cochran, Sampling
//! Techniques, sections 6.4 and 9.3).

use std::collections::BTreeMap;

use serde::Serialize;

use super::metrics::{MetricsSum, Ratio};
use crate::data::evenly_spaced::Choice;

/// Standard errors of estimates from some of a part's samples. Each belongs to a mean over the
/// targets that are known at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StandardErrors {
    /// Standard error of the model's RMSE.
    pub rmse: f64,
    /// Standard error of the model's RMSE divided by that of each baseline, by name.
    pub rmse_ratio: BTreeMap<&'static str, f64>,
    /// Standard error of the share of classes that the model predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
}

/// Sums of one contender at the end of each run, by target.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSums {
    squared: Vec<Vec<Ratio>>,
    hits: Vec<Vec<Ratio>>,
}

/// A mean over targets, and the contribution of each run.
struct Estimate {
    mean: f64,
    by_run: Vec<f64>,
}

impl RunSums {
    /// Ends a run at the present state of `sum`.
    pub(super) fn end_run(&mut self, sum: &MetricsSum) {
        self.squared.push(sum.squared_errors());
        self.hits.push(sum.hits());
    }
}

/// Standard errors of a model and of the ratios to baselines; `None` for fewer than two runs.
pub(super) fn standard_errors(
    choice: Choice,
    model: &RunSums,
    baselines: &BTreeMap<&'static str, RunSums>,
) -> Option<StandardErrors> {
    let runs = model.squared.len();
    if runs < 2 {
        return None;
    }
    let left_out = 1.0 - choice.taken as f64 / choice.part as f64;
    let scale = left_out * runs as f64 / (runs - 1) as f64;
    let error = |by_run: &mut dyn Iterator<Item = f64>| (scale * by_run.map(|z| z * z).sum::<f64>()).sqrt();
    let rmse = mean_over_targets(&model.squared, Mean::Root)?;
    let ratio = |baseline: &RunSums| {
        let other = mean_over_targets(&baseline.squared, Mean::Root)?;
        let share = rmse.mean / other.mean;
        let pairs = rmse.by_run.iter().zip(&other.by_run);
        Some(error(&mut pairs.map(|(own, other_run)| (own - share * other_run) / other.mean)))
    };
    Some(StandardErrors {
        rmse: error(&mut rmse.by_run.iter().copied()),
        rmse_ratio: baselines.iter().filter_map(|(&name, runs)| Some((name, ratio(runs)?))).collect(),
        accuracy: mean_over_targets(&model.hits, Mean::Plain).map(|hits| error(&mut hits.by_run.iter().copied())),
    })
}

/// Form of a mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mean {
    Plain,
    Root,
}

/// The mean over targets of the ratios at the end of the last run; `None` without targets.
fn mean_over_targets(ends: &[Vec<Ratio>], form: Mean) -> Option<Estimate> {
    let all = ends.last()?;
    let known: Vec<usize> = (0..all.len()).filter(|&k| all[k].terms > 0.0).collect();
    if known.is_empty() {
        return None;
    }
    let count = known.len() as f64;
    let value = |k: usize| if form == Mean::Root { all[k].mean().sqrt() } else { all[k].mean() };
    let slope = |k: usize| match (form, value(k)) {
        (Mean::Plain, _) => 1.0,
        (Mean::Root, root) if root > 0.0 => 0.5 / root,
        (Mean::Root, _) => 0.0,
    };
    let before = |run: usize, k: usize| run.checked_sub(1).map_or(Ratio::default(), |before| ends[before][k]);
    let added_by = |run: usize| {
        let adds = known.iter().map(|&k| {
            let own = ends[run][k].minus(before(run, k));
            slope(k) * (own.sum - all[k].mean() * own.terms) / all[k].terms
        });
        adds.sum::<f64>() / count
    };
    let mean = known.iter().map(|&k| value(k)).sum::<f64>() / count;
    Some(Estimate { mean, by_run: (0..ends.len()).map(added_by).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums at the end of each of these runs of errors of one target.
    fn runs(errors: &[&[f32]]) -> RunSums {
        let (mut sums, mut seen) = (RunSums::default(), MetricsSum::new(1));
        for run in errors {
            seen.add(run, &vec![0.0; run.len()]);
            sums.end_run(&seen);
        }
        sums
    }

    #[test]
    fn the_error_of_a_mean_is_that_of_the_textbook() {
        // Runs of one sample: the mean square is 2.5, and the error of a mean of four numbers out
        // of eight is sqrt(1/2) s / sqrt(4).
        let model = runs(&[&[1.0], &[2.0], &[1.0], &[2.0]]);
        let choice = Choice { run_length: 1, taken: 4, part: 8 };
        let twice = BTreeMap::from([("twice", runs(&[&[2.0], &[4.0], &[2.0], &[4.0]]))]);
        let StandardErrors { rmse, rmse_ratio, accuracy } = standard_errors(choice, &model, &twice).unwrap();
        let mean_square_error = 0.5_f64.sqrt() * 3_f64.sqrt() / 2.0;
        assert!((rmse - mean_square_error / (2.0 * 2.5_f64.sqrt())).abs() < 1e-12, "{rmse}");
        // An error that is always half of another one is so without doubt.
        assert!(rmse_ratio["twice"] < 1e-12 && accuracy.is_none(), "{rmse_ratio:?}");
        let all = Choice { part: 4, ..choice };
        assert_eq!(standard_errors(all, &model, &twice).unwrap().rmse, 0.0);
        assert_eq!(standard_errors(choice, &runs(&[&[1.0, 2.0]]), &BTreeMap::new()), None);
    }

    /// Estimates from runs of a long list lie as far from the error on all as they say.
    #[test]
    fn estimates_lie_within_their_standard_errors() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        // Errors in stretches of 64 are alike.
        let errors: Vec<f32> = (0..64 * 2000)
            .scan(0.0, |level, n| {
                *level = if n % 64 == 0 { 4.0 * draw() } else { *level };
                Some(*level + draw())
            })
            .collect();
        let square = |errors: &[f32]| errors.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / errors.len() as f64;
        let truth = square(&errors).sqrt();
        let (mut covered, trials) = (0, 40);
        for trial in 0..trials {
            let taken: Vec<&[f32]> = errors.chunks(64).skip(trial).step_by(trials).collect();
            let choice = Choice { run_length: 64, taken: taken.len() * 64, part: errors.len() };
            let error = standard_errors(choice, &runs(&taken), &BTreeMap::new()).unwrap().rmse;
            covered += usize::from((square(&taken.concat()).sqrt() - truth).abs() < 2.0 * error);
        }
        assert!((trials * 8 / 10..=trials).contains(&covered), "{covered} of {trials} within two standard errors");
    }
}
