//! The rule by which a run diverges, and the state that it needs.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Number of losses in the median.
const LOSSES_MAX: usize = 32;
/// Fewest losses that have a median.
const LOSSES_MIN: usize = 8;

/// Treatment of a run that diverges: its loss or gradients become infinite or NaN, or its loss
/// spikes.
///
/// A step that diverged changes nothing. The run returns to its last checkpoint, at first that of
/// step 0. If it has saved none since its last rollback, it returns to the checkpoint before,
/// because the weights may have been diverging when the last one was saved. It continues in the
/// same order of samples with half the learning rate in all steps to come. After
/// [`max_rollbacks`](Divergence::max_rollbacks) rollbacks it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Most rollbacks of a run.
    pub max_rollbacks: u32,
    /// A loss above this many times the median of those of the last 32 steps is an explosion, > 1;
    /// there is none before 8 steps. `None` lets losses be as large as they like.
    pub loss_spike_factor: Option<f64>,
}

/// Rollbacks and last losses of a run. Checkpoints hold it, so that a resumed run judges alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DivergenceState {
    /// Number of rollbacks.
    pub rollbacks: u32,
    /// Step of the checkpoint of the last rollback.
    pub back_to: Option<u64>,
    /// The losses of the last 32 steps, the newest last.
    pub losses: Vec<f64>,
}

impl Divergence {
    pub(crate) fn check(&self) -> Result<()> {
        match self.loss_spike_factor {
            Some(factor) if !(factor > 1.0 && factor.is_finite()) => {
                Err(Error::setting("loss_spike_factor", &factor, "a number above 1, or none"))
            }
            _ => Ok(()),
        }
    }

    /// The largest loss that is no spike.
    pub(crate) fn loss_max(&self, state: &DivergenceState) -> f64 {
        self.factor_and_median(state).map_or(f64::INFINITY, |[factor, median]| factor * median)
    }

    /// Refuses the `loss` of step `step`, counted from 1, if it is a spike.
    pub(crate) fn check_loss(&self, state: &DivergenceState, step: u64, loss: f64) -> Result<()> {
        match self.factor_and_median(state) {
            Some([factor, median]) if loss > factor * median => Err(Error::LossSpike { step, loss, median, factor }),
            _ => Ok(()),
        }
    }

    /// Factor and median whose product is the largest loss, if there is a limit.
    fn factor_and_median(&self, state: &DivergenceState) -> Option<[f64; 2]> {
        let factor = self.loss_spike_factor?;
        // Of nothing but zeros, every loss would be too many times the median.
        state.median().filter(|&median| median > 0.0).map(|median| [factor, median])
    }
}

impl DivergenceState {
    /// Factor of the schedule's learning rate: 2⁻ⁿ after n rollbacks, which is exact.
    pub fn rate_factor(&self) -> f64 {
        0.5f64.powi(self.rollbacks.try_into().unwrap_or(i32::MAX))
    }

    /// Adds the loss of one more step.
    pub(crate) fn note(&mut self, loss: f64) {
        if self.losses.len() >= LOSSES_MAX {
            self.losses.remove(0);
        }
        self.losses.push(loss);
    }

    /// The median of the last losses, the upper one of two.
    fn median(&self) -> Option<f64> {
        let mut sorted = self.losses.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        (sorted.len() >= LOSSES_MIN).then(|| sorted[sorted.len() / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of `losses` that is refused, counted from 1, by a factor of 10.
    fn refused(losses: &[f64]) -> Option<usize> {
        let (rule, mut state) =
            (Divergence { loss_spike_factor: Some(10.0), ..Divergence::default() }, DivergenceState::default());
        let position = losses.iter().zip(1..).position(|(&loss, step)| {
            let refused = rule.check_loss(&state, step, loss).is_err();
            state.note(loss);
            refused
        });
        position.map(|index| index + 1)
    }

    #[test]
    fn a_loss_far_above_the_median_is_refused() {
        let level = |count: usize, loss: f64| vec![loss; count];
        for (losses, expected) in [
            (vec![], None),
            // Too early to tell.
            ([level(7, 1.0), vec![99.0]].concat(), None),
            ([level(8, 1.0), vec![10.0, 10.5]].concat(), Some(10)),
            // One outlier does not move the median, and of two the larger is refused.
            ([level(8, 1.0), vec![9.0, 9.0, 11.0]].concat(), Some(11)),
            // A loss that has risen for long is no explosion: of the last 32, 16 are of the new
            // level.
            ([level(40, 1.0), level(17, 9.0), vec![80.0]].concat(), None),
            ([level(40, 1.0), level(15, 9.0), vec![80.0]].concat(), Some(56)),
            ([level(20, 0.0), vec![1.0]].concat(), None),
            ([level(9, 1.0), vec![0.0]].concat(), None),
        ] {
            assert_eq!(refused(&losses), expected, "{losses:?}");
        }
    }

    #[test]
    fn without_a_factor_nothing_explodes() {
        let state = DivergenceState { losses: vec![1.0; 32], ..DivergenceState::default() };
        Divergence::default().check_loss(&state, 33, f64::MAX).unwrap();
        for factor in [1.0, 0.0, f64::NAN, f64::INFINITY] {
            let rule = Divergence { loss_spike_factor: Some(factor), ..Divergence::default() };
            let message = rule.check().unwrap_err().to_string();
            assert!(message.starts_with("`loss_spike_factor` is "), "{message}");
        }
    }

    #[test]
    fn each_rollback_halves_the_rate() {
        let factor = |rollbacks| DivergenceState { rollbacks, ..DivergenceState::default() }.rate_factor();
        assert_eq!([0, 1, 3].map(factor), [1.0, 0.5, 0.125]);
        assert_eq!(factor(u32::MAX), 0.0);
    }
}
