//! The optimizer, and the norm that gradients are clipped to.

use megabatch_amp::{GradientFactors, OptimizerStep, ParameterTensor, Threads, update};
use megabatch_gpu_core::Scope;
use megabatch_nn::model::{Moments, TensorSet};
use megabatch_nn_cuda::Host;

use crate::config::optimizer::{OptimizerConfig, OptimizerKind};
use crate::error::Result;

/// An optimizer and its state.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    steps: u64,
    moments: Option<Moments>,
}

impl Optimizer {
    /// An optimizer for `parameters`, with moments of zero where its rule keeps any, booked on
    /// `scope`.
    ///
    /// # Errors
    /// [`Setting`](crate::Error::Setting) for a setting out of range,
    /// [`Memory`](megabatch_nn::Error::Memory) when the device has no room.
    pub fn new(scope: &Scope, config: OptimizerConfig, parameters: &TensorSet) -> Result<Self> {
        config.check()?;
        let zeros = || TensorSet::zeros(scope, parameters.layout());
        let moments = match config.kind {
            OptimizerKind::Sgd => None,
            OptimizerKind::Adam | OptimizerKind::AdamW => Some(Moments { exp_avg: zeros()?, exp_avg_sq: zeros()? }),
        };
        Ok(Optimizer { config, steps: 0, moments })
    }

    /// Number of updates done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The moments, for a rule that keeps them.
    pub fn moments(&self) -> Option<&Moments> {
        self.moments.as_ref()
    }

    /// The moments for writing, and the number of updates that they stand for: what resuming
    /// restores.
    pub(crate) fn state_mut(&mut self) -> (Option<&mut Moments>, &mut u64) {
        (self.moments.as_mut(), &mut self.steps)
    }

    /// The state beside `parameters`, for a GPU to take and give back.
    pub(crate) fn host<'a>(&'a mut self, parameters: &'a mut TensorSet) -> Host<'a> {
        Host { parameters, moments: self.moments.as_mut(), steps: &mut self.steps }
    }

    /// Forgets all updates: moments and their number are zero, as at first.
    pub(crate) fn restart(&mut self) {
        self.steps = 0;
        if let Some(moments) = &mut self.moments {
            [&mut moments.exp_avg, &mut moments.exp_avg_sq].into_iter().for_each(TensorSet::clear);
        }
    }

    /// Changes `parameters` by one step along `gradients` at the rate `lr`, whatever the settings'
    /// rate is.
    ///
    /// # Panics
    /// If the two have different sizes.
    pub fn update(&mut self, parameters: &mut TensorSet, gradients: &TensorSet, lr: f64) {
        self.step(parameters, gradients, lr, GradientFactors::none(), Threads::Caller);
    }

    /// Changes `parameters` along `gradients` times `factors`, as clipped gradients are.
    pub(crate) fn step(
        &mut self,
        parameters: &mut TensorSet,
        gradients: &TensorSet,
        lr: f64,
        factors: GradientFactors,
        threads: Threads,
    ) {
        self.steps += 1;
        let moments = self.moments.as_mut().map(|moments| megabatch_amp::Moments {
            exp_avg: moments.exp_avg.values_mut(),
            exp_avg_sq: moments.exp_avg_sq.values_mut(),
        });
        let (values, gradient) = (parameters.values_mut(), gradients.values());
        let tensor = ParameterTensor { values, gradient, moments };
        let settings = OptimizerConfig { lr, ..self.config }.settings();
        update([tensor], &OptimizerStep { settings, number: self.steps, factors }, threads);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use megabatch_gpu_core::Device;
    use megabatch_nn::model::Layout;

    use super::*;

    /// The square root of the sum of the squares of all elements, summed in double precision.
    fn global_norm(gradients: &TensorSet) -> f64 {
        megabatch_amp::unscale_and_check(&[gradients.values()], 1.0, Threads::Caller).norm
    }

    /// Scales all gradients by clip / (norm + 1e-6) where that is below 1, as
    /// `torch.nn.utils.clip_grad_norm_` does.
    fn clip_by_norm(gradients: &mut TensorSet, norm: f64, clip_norm: f64) {
        let coefficient = clip_norm / (norm + 1e-6);
        if coefficient < 1.0 {
            let coefficient = coefficient as f32;
            gradients.values_mut().iter_mut().for_each(|g| *g *= coefficient);
        }
    }

    /// One parameter of 2 with a gradient of 0.5 at the rate of 0.1 that the step is given;
    /// expected values by hand from the papers' formulas.
    #[test]
    fn one_step_of_each_rule() {
        let cases = [
            (OptimizerKind::Sgd, 2.0 - 0.1 * (0.5 + 0.2 * 2.0)),
            // At the first step m / √v is the gradient's sign, whatever its size.
            (OptimizerKind::Adam, 2.0 - 0.1),
            (OptimizerKind::AdamW, 2.0 * (1.0 - 0.1 * 0.2) - 0.1),
        ];
        let scope = Device::cpu().scope("test");
        for (kind, expected) in cases {
            let mut layout = Layout::default();
            layout.push("p".to_owned(), &[1]);
            let layout = Arc::new(layout);
            let mut parameters = TensorSet::zeros(&scope, &layout).unwrap();
            let mut gradients = TensorSet::zeros(&scope, &layout).unwrap();
            parameters.values_mut()[0] = 2.0;
            gradients.values_mut()[0] = 0.5;
            let config = OptimizerConfig { kind, lr: 9.0, weight_decay: 0.2, ..OptimizerConfig::default() };
            Optimizer::new(&scope, config, &parameters).unwrap().update(&mut parameters, &gradients, 0.1);
            assert!((parameters.values()[0] - expected).abs() < 1e-8, "{kind:?}: {:?}", parameters.values());
        }
    }

    /// Clipped where they are read, gradients move the weights as if they had been clipped before.
    #[test]
    fn clipping_on_the_way_changes_no_bit() {
        let scope = Device::cpu().scope("test");
        let mut layout = Layout::default();
        layout.push("p".to_owned(), &[40]);
        let layout = Arc::new(layout);
        let mut gradients = TensorSet::zeros(&scope, &layout).unwrap();
        gradients.values_mut().iter_mut().enumerate().for_each(|(k, g)| *g = (k as f32 * 0.7).sin());
        for kind in [OptimizerKind::Sgd, OptimizerKind::Adam, OptimizerKind::AdamW] {
            for clip_norm in [0.3, 100.0] {
                let moved = |change: &dyn Fn(&mut Optimizer, &mut TensorSet)| {
                    let mut parameters = TensorSet::zeros(&scope, &layout).unwrap();
                    parameters.values_mut().fill(0.5);
                    let config = OptimizerConfig { kind, ..OptimizerConfig::default() };
                    change(&mut Optimizer::new(&scope, config, &parameters).unwrap(), &mut parameters);
                    parameters.values().to_vec()
                };
                let norm = global_norm(&gradients);
                let expected = moved(&|optimizer, parameters| {
                    let mut clipped = TensorSet::zeros(&scope, &layout).unwrap();
                    clipped.add(&gradients);
                    clip_by_norm(&mut clipped, norm, clip_norm);
                    optimizer.update(parameters, &clipped, 0.1);
                });
                let factors = megabatch_amp::unscale_and_check(&[gradients.values()], 1.0, Threads::Caller)
                    .factors(Some(clip_norm))
                    .unwrap();
                let found = moved(&|optimizer, parameters| {
                    optimizer.step(parameters, &gradients, 0.1, factors, Threads::Caller);
                });
                assert_eq!(found, expected, "{kind:?}, {clip_norm}");
            }
        }
    }
}
