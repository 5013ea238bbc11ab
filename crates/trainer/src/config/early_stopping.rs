use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// When a run ends because its validation loss no longer falls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopping {
    /// Validations in a row without an improvement after which training ends, ≥ 1.
    pub patience: u32,
    /// Least decrease of the loss that counts as an improvement, ≥ 0, in the unit of the loss.
    pub min_delta: f64,
}

/// Validations since the last improvement. Checkpoints hold it, so that a resumed run ends at the
/// same step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlyStoppingState {
    /// The loss of the last improvement; none before the first validation.
    pub loss: Option<f64>,
    /// Validations since then.
    pub validations: u32,
}

impl EarlyStopping {
    pub(crate) fn check(&self) -> Result<()> {
        if self.patience == 0 {
            return Err(Error::setting("early_stopping", &0, "1 validation or more, or none"));
        }
        if !(self.min_delta >= 0.0 && self.min_delta.is_finite()) {
            return Err(Error::setting("early_stopping_min_delta", &self.min_delta, "0 or more"));
        }
        Ok(())
    }

    /// Adds one more validation. A loss that is not finite is no improvement.
    pub(crate) fn count(&self, state: &mut EarlyStoppingState, loss: f64) {
        let improved = loss.is_finite() && state.loss.is_none_or(|last| last - loss > self.min_delta);
        *state = if improved {
            EarlyStoppingState { loss: Some(loss), validations: 0 }
        } else {
            EarlyStoppingState { validations: state.validations.saturating_add(1), ..*state }
        };
    }

    pub(crate) fn is_over(&self, state: EarlyStoppingState) -> bool {
        state.validations >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The validation at which training ends, counted from 1.
    fn end(patience: u32, min_delta: f64, losses: &[f64]) -> Option<usize> {
        let rule = EarlyStopping { patience, min_delta };
        let mut state = EarlyStoppingState::default();
        let position = losses.iter().position(|&loss| {
            rule.count(&mut state, loss);
            rule.is_over(state)
        });
        position.map(|index| index + 1)
    }

    #[test]
    fn training_ends_after_validations_without_an_improvement() {
        let nan = f64::NAN;
        for (patience, min_delta, losses, expected) in [
            (1, 0.0, &[3.0, 2.0, 1.0][..], None),
            (1, 0.0, &[3.0, 3.0], Some(2)),
            (2, 0.0, &[3.0, 3.5, 2.5, 2.5, 2.75, 1.0], Some(5)),
            // Too small an improvement is none, and small ones add up.
            (2, 0.5, &[3.0, 2.75, 2.5], Some(3)),
            (2, 0.5, &[3.0, 2.75, 2.25, 2.0, 1.5], None),
            (2, 0.0, &[nan, nan], Some(2)),
            (2, 0.0, &[nan, 3.0, f64::NEG_INFINITY, nan], Some(4)),
            (3, 0.0, &[], None),
        ] {
            assert_eq!(end(patience, min_delta, losses), expected, "{patience}, {min_delta}, {losses:?}");
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        for (patience, min_delta, setting) in [
            (0, 0.0, "`early_stopping` is 0"),
            (1, -1.0, "`early_stopping_min_delta` is -1"),
            (1, f64::NAN, "`early_stopping_min_delta` is NaN"),
        ] {
            let message = EarlyStopping { patience, min_delta }.check().unwrap_err().to_string();
            assert!(message.starts_with(setting), "{message}");
        }
    }
}
