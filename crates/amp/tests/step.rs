//! Steps beside PyTorch's GradScaler, clip_grad_norm_ and optimizers, as `step_fixture.py` recorded
//! them.

use std::collections::BTreeMap;

use megabatch_amp::{
    LossScaler, Moments, OptimizerSettings, OptimizerStep, Overflow, ParameterTensor, Rule, ScalerConfig, Threads,
    unscale_and_check, update,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    clip: f64,
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    start: Vec<Vec<i32>>,
    steps: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Recorded {
    gradients: Vec<Vec<i32>>,
    norm: i32,
    weights: Vec<Vec<i32>>,
    scale: f32,
}

fn floats(tensors: &[Vec<i32>]) -> Vec<Vec<f32>> {
    tensors.iter().map(|bits| bits.iter().map(|&bits| f32::from_bits(bits as u32)).collect()).collect()
}

struct Training {
    settings: OptimizerSettings,
    scaler: LossScaler,
    number: u64,
    weights: Vec<Vec<f32>>,
    exp_avg: Vec<Vec<f32>>,
    exp_avg_sq: Vec<Vec<f32>>,
}

impl Training {
    fn new(rule: &str, start: &[Vec<i32>]) -> Self {
        let rule: Rule = serde_json::from_value(rule.into()).unwrap();
        let lr = if rule == Rule::Sgd { 0.05 } else { 0.01 };
        let config = ScalerConfig { initial: 1024.0, growth_interval: 2, ..ScalerConfig::default() };
        let weights = floats(start);
        let zeros: Vec<Vec<f32>> = weights.iter().map(|weights| vec![0.0; weights.len()]).collect();
        Training {
            settings: OptimizerSettings { rule, lr, weight_decay: 0.1, ..OptimizerSettings::default() },
            scaler: LossScaler::new(config).unwrap(),
            number: 0,
            weights,
            exp_avg: zeros.clone(),
            exp_avg_sq: zeros,
        }
    }

    /// The norm of the gradients.
    fn step(&mut self, gradients: &[Vec<f32>], clip: f64) -> f64 {
        let slices: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
        let examined = unscale_and_check(&slices, self.scaler.inverse(), Threads::Caller);
        if let Some(factors) = examined.factors(Some(clip)) {
            self.number += 1;
            let moments = self.exp_avg.iter_mut().zip(&mut self.exp_avg_sq);
            let tensors = self.weights.iter_mut().zip(gradients).zip(moments).map(|((values, gradient), (m, v))| {
                let moments = self.settings.rule.has_moments().then_some(Moments { exp_avg: m, exp_avg_sq: v });
                ParameterTensor { values, gradient, moments }
            });
            update(tensors, &OptimizerStep { settings: self.settings, number: self.number, factors }, Threads::Caller);
        }
        let overflow = examined.non_finite.map(|place| Overflow { tensor: "", index: place.index });
        self.scaler.update(overflow).unwrap();
        examined.norm
    }
}

#[test]
fn every_step_is_that_of_pytorch() {
    let fixture: Fixture = serde_json::from_str(include_str!("step_fixture.json")).unwrap();
    assert_eq!(fixture.cases.len(), 3);
    for (name, case) in &fixture.cases {
        let mut training = Training::new(name, &case.start);
        for (k, recorded) in case.steps.iter().enumerate() {
            let norm = training.step(&floats(&recorded.gradients), fixture.clip) as f32;
            let expected = f32::from_bits(recorded.norm as u32);
            // PyTorch adds squares in single precision, 31 of them at most in one tensor.
            let near = (norm - expected).abs() <= 32.0 * f32::EPSILON * expected;
            assert!(near || norm.is_nan() && expected.is_nan(), "{name}, step {k}: norm {norm}, PyTorch's {expected}");
            assert_eq!(training.scaler.scale(), recorded.scale, "{name}, step {k}");
            for (found, expected) in training.weights.iter().flatten().zip(floats(&recorded.weights).iter().flatten()) {
                // A rounding or two a step of the weight, and of the clip coefficient a step of
                // 0.05 times a gradient of 2.
                let near = (found - expected).abs() <= 4e-7 * (expected.abs() + 0.1) * (k + 1) as f32;
                assert!(near, "{name}, step {k}: weight {found}, PyTorch's {expected}");
            }
        }
        assert_eq!(training.number, case.steps.len() as u64 - 1, "the step that overflowed was skipped");
    }
}
