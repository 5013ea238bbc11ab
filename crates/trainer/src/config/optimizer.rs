use megabatch_amp::{OptimizerSettings, Rule};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The rule by which gradients change parameters. Each equals PyTorch's optimizer of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimizerKind {
    /// Stochastic gradient descent without momentum; weight decay is added to the gradient.
    Sgd,
    /// Adam (Kingma and Ba, 2015); weight decay is added to the gradient.
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
    #[default]
    AdamW,
}

impl OptimizerKind {
    /// True if the rule keeps a mean and a mean square of each gradient.
    pub fn has_moments(self) -> bool {
        match self {
            OptimizerKind::Sgd => false,
            OptimizerKind::Adam | OptimizerKind::AdamW => true,
        }
    }
}

/// An optimizer's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// The rule.
    pub kind: OptimizerKind,
    /// Learning rate, > 0; the highest one of a run whose rate changes
    /// ([`LrSchedule`](crate::LrSchedule)).
    pub lr: f64,
    /// Weight decay, ≥ 0.
    pub weight_decay: f64,
    /// Decay of the mean of gradients, in [0, 1).
    pub beta1: f64,
    /// Decay of the mean of squared gradients, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment, > 0.
    pub epsilon: f64,
}

impl Default for OptimizerConfig {
    /// AdamW with PyTorch's defaults.
    fn default() -> Self {
        let kind = OptimizerKind::AdamW;
        OptimizerConfig { kind, lr: 1e-3, weight_decay: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl OptimizerConfig {
    /// The settings of the optimizer pass.
    pub(crate) fn settings(&self) -> OptimizerSettings {
        let &OptimizerConfig { kind, lr, weight_decay, beta1, beta2, epsilon } = self;
        let rule = match kind {
            OptimizerKind::Sgd => Rule::Sgd,
            OptimizerKind::Adam => Rule::Adam,
            OptimizerKind::AdamW => Rule::AdamW,
        };
        OptimizerSettings { rule, lr, weight_decay, beta1, beta2, epsilon }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let rules = [
            (self.lr > 0.0, "lr", self.lr, "a positive number"),
            (self.weight_decay >= 0.0, "weight_decay", self.weight_decay, "0 or more"),
            ((0.0..1.0).contains(&self.beta1), "beta1", self.beta1, "a number in [0, 1)"),
            ((0.0..1.0).contains(&self.beta2), "beta2", self.beta2, "a number in [0, 1)"),
            (self.epsilon > 0.0, "epsilon", self.epsilon, "a positive number"),
        ];
        match rules.into_iter().find(|(holds, _, value, _)| !holds || !value.is_finite()) {
            Some((_, setting, value, expected)) => Err(Error::setting(setting, &value, expected)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let good = OptimizerConfig::default();
        for (config, name) in [
            (OptimizerConfig { lr: 0.0, ..good }, "lr"),
            (OptimizerConfig { lr: f64::NAN, ..good }, "lr"),
            (OptimizerConfig { weight_decay: -1.0, ..good }, "weight_decay"),
            (OptimizerConfig { beta2: 1.0, ..good }, "beta2"),
            (OptimizerConfig { epsilon: f64::INFINITY, ..good }, "epsilon"),
        ] {
            let message = config.check().unwrap_err().to_string();
            assert!(message.starts_with(&format!("`{name}` is ")), "{message}");
        }
    }
}
