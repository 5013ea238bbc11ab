#![forbid(unsafe_code)]

//! Gradients against finite differences, in double precision, over random small models, with
//! dropout and without; and dropout against the same mask applied by hand between two models of one
//! layer.

use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Dropout, Model, ModelConfig, Pooling, SampleShape, TensorSet, Timeframe};
use megabatch_trainer::{InputGradients, Pass};
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
    dropout: Option<Dropout>,
    /// Identity of the windows: two of them share a mask.
    ends: Vec<usize>,
}

impl Problem {
    fn new(scope: &Scope, shape: SampleShape, config: ModelConfig, samples: usize, dropout: Option<Dropout>) -> Self {
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
            dropout,
            ends: (0..samples).map(|sample| 480 + sample / 2).collect(),
            model,
        }
    }

    fn forward(&self, pass: &mut Pass<f64>) -> f64 {
        pass.load(self.samples, self.windows.iter().map(Vec::as_slice));
        let layers = self.model.config().layers;
        for (k, [hidden, cell]) in self.initial.iter().enumerate() {
            pass.set_initial_state(k / layers, k % layers, hidden, cell);
        }
        if let Some(dropout) = self.dropout {
            let ends = std::iter::repeat_n(self.ends.as_slice(), self.windows.len());
            pass.set_dropout(&self.model, dropout, ends);
        }
        self.model.forward(&self.parameters, pass);
        Loss::Mse.sum(pass.outputs(), &self.targets) / self.targets.len() as f64
    }

    /// Checks `gradient` of the numbers that `place` finds, by central differences over two steps
    /// at up to 12 of them.
    fn check(&mut self, pass: &mut Pass<f64>, gradient: &[f64], place: impl Fn(&mut Self) -> &mut [f64]) {
        const STEP: f64 = 1e-5;
        for index in (0..gradient.len()).step_by(gradient.len().div_ceil(12).max(1)) {
            let at = place(self)[index];
            let mut loss_at = |x: f64| {
                place(self)[index] = x;
                self.forward(pass)
            };
            let mut apart = |steps: f64| loss_at(at + steps * STEP) - loss_at(at - steps * STEP);
            let slope = (8.0 * apart(1.0) - apart(2.0)) / (12.0 * STEP);
            place(self)[index] = at;
            // The step's fourth power times a fifth derivative, which norms of nearly equal numbers
            // make large, and a rounding of 1e-16 divided by the step.
            assert!((slope - gradient[index]).abs() < 1e-8, "{slope} and {}", gradient[index]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_gradient_is_the_slope_of_the_loss(
        windows in prop::collection::vec((1usize..6, 1usize..5), 1..4),
        (hidden, layers, bias) in (1usize..6, 1usize..4, any::<bool>()),
        (outputs, samples) in (1usize..4, 1usize..4),
        rate in prop_oneof![Just(None), (0.1f32..0.9).prop_map(Some)],
        (pooling, layer_norm) in (0usize..3, any::<bool>()),
    ) {
        let pooling = [Pooling::Last, Pooling::attention(hidden), Pooling::Attention { heads: hidden }][pooling];
        let scope = Device::cpu().scope("gradients");
        let timeframe = |(k, &(steps, features)): (usize, &(usize, usize))| Timeframe { name: format!("T{k}"), steps, features };
        let shape = SampleShape { timeframes: windows.iter().enumerate().map(timeframe).collect(), outputs };
        let dropout = rate.map(|rate| Dropout::of_step(rate, 3, 14).unwrap());
        let mut problem = Problem::new(&scope, shape, ModelConfig { hidden, layers, bias, layer_norm, pooling, ..ModelConfig::default() }, samples, dropout);

        let mut pass = Pass::new(&scope, &problem.model, samples, InputGradients::Compute).unwrap();
        pass = pass.with_room_for_dropout(&scope).unwrap();
        let mut gradients = TensorSet::zeros(&scope, problem.model.layout()).unwrap();
        problem.forward(&mut pass);
        let (y, d_y) = pass.outputs_and_gradient_mut();
        Loss::Mse.gradient(y, &problem.targets, y.len(), d_y);
        problem.model.backward(&problem.parameters, &mut pass, &mut gradients);

        let mut probe = Pass::new(&scope, &problem.model, samples, InputGradients::Skip).unwrap();
        probe = probe.with_room_for_dropout(&scope).unwrap();
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

/// A model's outputs for `windows` [B, T, F] and what its top layer gives at each step, [T, B, H].
fn run(model: &Model, parameters: &TensorSet<f64>, windows: &[f64], samples: usize) -> (Vec<f64>, Vec<f64>) {
    let mut pass = Pass::new(&Device::cpu().scope("run"), model, samples, InputGradients::Skip).unwrap();
    pass.load(samples, std::iter::once(windows));
    model.forward(parameters, &mut pass);
    (pass.outputs().to_vec(), pass.sequence(0).to_vec())
}

#[test]
fn dropout_multiplies_what_the_layer_above_reads_by_its_factors() {
    let (samples, steps, features, hidden) = (3, 6, 2, 20);
    let scope = Device::cpu().scope("by hand");
    let model = |features, layers| {
        let timeframes = vec![Timeframe { name: "M5".to_owned(), steps, features }];
        Model::new(SampleShape { timeframes, outputs: 2 }, ModelConfig { hidden, layers, ..ModelConfig::default() })
            .unwrap()
    };
    let dropout = Dropout::of_step(0.4, 9, 2).unwrap();
    let mut problem =
        Problem::new(&scope, model(features, 2).shape().clone(), model(features, 2).config(), samples, Some(dropout));
    problem.initial.iter_mut().flatten().for_each(|state| state.fill(0.0));
    let mut pass = Pass::new(&scope, &problem.model, samples, InputGradients::Skip).unwrap();
    pass = pass.with_room_for_dropout(&scope).unwrap();
    problem.forward(&mut pass);

    let (lower, upper) = (model(features, 1), model(hidden, 1));
    let [mut below, mut above] = [&lower, &upper].map(|model| TensorSet::zeros(&scope, model.layout()).unwrap());
    for (name, _, values) in problem.parameters.tensors() {
        let (of_layer, set) = if name.ends_with("_l0") { ("_l0", &mut below) } else { ("_l1", &mut above) };
        set.get_mut(&name.replace(of_layer, "_l0")).unwrap().copy_from_slice(values);
    }
    let (_, sequence) = run(&lower, &below, &problem.windows[0], samples);
    let mask = dropout.mask("M5", 0);
    let place =
        |b: usize, t: usize, unit: usize| ((t * samples + b) * hidden + unit, mask.factor(problem.ends[b], t, unit));
    let seen: Vec<(usize, f64)> =
        (0..samples * steps * hidden).map(|i| place(i / (steps * hidden), i / hidden % steps, i % hidden)).collect();
    let windows: Vec<f64> = seen.iter().map(|&(at, factor)| factor * sequence[at]).collect();
    let dropped = seen.iter().filter(|(_, factor)| *factor == 0.0).count();
    assert!((100..190).contains(&dropped), "{dropped} of 360 are dropped");
    assert!(seen.iter().all(|&(_, factor)| factor == 0.0 || (factor - 1.0 / 0.6).abs() < 1e-7));

    let (outputs, _) = run(&upper, &above, &windows, samples);
    let apart = outputs.iter().zip(pass.outputs()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-13, "{apart}");
    // The first two windows share a mask but not their bars, and nothing is dropped for a model in
    // use.
    let (undropped, _) = run(&problem.model, &problem.parameters, &problem.windows[0], samples);
    assert_ne!(undropped, pass.outputs());
}
