#![forbid(unsafe_code)]

//! Gradients against finite differences, in double precision, over random small models.

use megabatch_gpu_core::{Device, Scope};
use megabatch_trainer::{InputGradients, Loss, Model, ModelConfig, Pass, SampleShape, TensorSet, Timeframe};
use proptest::prelude::*;

/// Numbers in (-1, 1) without pattern: the sines of a growing argument.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin()).collect()
}

/// A model and all that its loss depends on.
struct Problem {
    model: Model,
    samples: usize,
    parameters: TensorSet<f64>,
    windows: Vec<Vec<f64>>,
    /// Hidden and cell state of each layer of each timeframe.
    initial: Vec<[Vec<f64>; 2]>,
    targets: Vec<f64>,
}

impl Problem {
    fn new(scope: &Scope, shape: SampleShape, config: ModelConfig, samples: usize) -> Self {
        let model = Model::new(shape, config).unwrap();
        let timeframes = &model.shape().timeframes;
        let states = timeframes.len() * config.layers;
        let state = |k: usize| [0, 1].map(|half| numbers(20 + 2 * k as u64 + half, samples * config.hidden));
        Problem {
            samples,
            parameters: model.initial_parameters(scope, 3).unwrap(),
            windows: (1..).zip(timeframes).map(|(k, tf)| numbers(k, samples * tf.steps * tf.features)).collect(),
            initial: (0..states).map(state).collect(),
            targets: numbers(99, samples * model.shape().outputs),
            model,
        }
    }

    fn forward(&self, pass: &mut Pass<f64>) -> f64 {
        pass.load(self.samples, self.windows.iter().map(Vec::as_slice));
        let layers = self.model.config().layers;
        for (k, [hidden, cell]) in self.initial.iter().enumerate() {
            pass.set_initial_state(k / layers, k % layers, (hidden, cell));
        }
        self.model.forward(&self.parameters, pass);
        Loss::Mse.sum(pass.outputs(), &self.targets) / self.targets.len() as f64
    }

    /// Checks `gradient` of the numbers that `place` finds, by central differences at up to 12 of them.
    fn check(&mut self, pass: &mut Pass<f64>, gradient: &[f64], place: impl Fn(&mut Self) -> &mut [f64]) {
        const STEP: f64 = 1e-5;
        for index in (0..gradient.len()).step_by(gradient.len().div_ceil(12).max(1)) {
            let at = place(self)[index];
            let mut loss_at = |x: f64| {
                place(self)[index] = x;
                self.forward(pass)
            };
            let slope = (loss_at(at + STEP) - loss_at(at - STEP)) / (2.0 * STEP);
            place(self)[index] = at;
            // The step's square times a third derivative of order 1, and a rounding of 1e-16 divided by the step.
            assert!((slope - gradient[index]).abs() < 1e-8, "{slope} and {}", gradient[index]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_gradient_is_the_slope_of_the_loss(
        windows in prop::collection::vec((1usize..6, 1usize..5), 1..4),
        (hidden, layers, bias) in (1usize..6, 1usize..4, any::<bool>()),
        (outputs, samples) in (1usize..4, 1usize..4),
    ) {
        let scope = Device::cpu().scope("gradients");
        let timeframe = |(k, &(steps, features)): (usize, &(usize, usize))| Timeframe { name: format!("T{k}"), steps, features };
        let shape = SampleShape { timeframes: windows.iter().enumerate().map(timeframe).collect(), outputs };
        let mut problem = Problem::new(&scope, shape, ModelConfig { hidden, layers, bias }, samples);

        let mut pass = Pass::new(&scope, &problem.model, samples, InputGradients::Compute).unwrap();
        let mut gradients = TensorSet::zeros(&scope, problem.model.layout()).unwrap();
        problem.forward(&mut pass);
        let (y, d_y) = pass.outputs_and_gradient_mut();
        Loss::Mse.gradient((y, &problem.targets), y.len(), d_y);
        problem.model.backward(&problem.parameters, &mut pass, &mut gradients);

        let mut probe = Pass::new(&scope, &problem.model, samples, InputGradients::Skip).unwrap();
        for (name, _, gradient) in gradients.tensors() {
            problem.check(&mut probe, gradient, |problem| problem.parameters.get_mut(name).unwrap());
        }
        for (k, &(steps, features)) in windows.iter().enumerate() {
            let turned = pass.input_gradient(k).unwrap(); // [T, B, F]
            let rows = (0..samples).flat_map(|b| (0..steps).map(move |t| t * samples + b));
            let gradient: Vec<f64> = rows.flat_map(|row| turned[row * features..][..features].to_vec()).collect();
            problem.check(&mut probe, &gradient, |problem| &mut problem.windows[k]);
        }
        for k in 0..problem.initial.len() {
            let (d_hidden, d_cell) = pass.initial_state_gradient(k / layers, k % layers);
            problem.check(&mut probe, d_hidden, |problem| &mut problem.initial[k][0]);
            problem.check(&mut probe, d_cell, |problem| &mut problem.initial[k][1]);
        }
    }
}
