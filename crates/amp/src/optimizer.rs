use serde::{Deserialize, Serialize};

/// Update rules. Each equals PyTorch's optimizer of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Rule {
    /// Stochastic gradient descent without momentum; weight decay is added to the gradient.
    Sgd,
    /// Adam (Kingma and Ba, 2015); weight decay is added to the gradient.
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
    #[default]
    AdamW,
}

impl Rule {
    /// True if the rule keeps a first and a second moment of each gradient.
    pub fn has_moments(self) -> bool {
        matches!(self, Rule::Adam | Rule::AdamW)
    }
}

/// An optimizer's settings at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerSettings {
    /// The rule.
    pub rule: Rule,
    /// Learning rate of this step, ≥ 0.
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

impl Default for OptimizerSettings {
    /// AdamW with PyTorch's defaults.
    fn default() -> Self {
        OptimizerSettings { rule: Rule::AdamW, lr: 1e-3, weight_decay: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

/// Factors of one step, computed in double precision and rounded once, as PyTorch does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) lr: f32,
    pub(crate) coupled_decay: f32,
    pub(crate) shrink: f32,
    pub(crate) one_minus_beta1: f32,
    pub(crate) beta2: f32,
    pub(crate) one_minus_beta2: f32,
    pub(crate) step_size: f32,
    pub(crate) root_correction2: f32,
    pub(crate) epsilon: f32,
}

impl Rates {
    /// The factors of the step `number`, counted from 1.
    pub(crate) fn new(settings: &OptimizerSettings, number: u64) -> Self {
        let &OptimizerSettings { rule, lr, weight_decay, beta1, beta2, epsilon } = settings;
        // f64's `powf` is exact enough for any step, and takes a step that passes i32.
        let correction = |beta: f64| 1.0 - beta.powf(number as f64);
        let (coupled, decoupled) = match rule {
            Rule::AdamW => (0.0, weight_decay),
            Rule::Adam | Rule::Sgd => (weight_decay, 0.0),
        };
        Rates {
            lr: lr as f32,
            coupled_decay: coupled as f32,
            shrink: (1.0 - lr * decoupled) as f32,
            one_minus_beta1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            one_minus_beta2: (1.0 - beta2) as f32,
            step_size: (lr / correction(beta1)) as f32,
            root_correction2: correction(beta2).sqrt() as f32,
            epsilon: epsilon as f32,
        }
    }
}
