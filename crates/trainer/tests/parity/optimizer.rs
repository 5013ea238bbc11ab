//! Clipping and optimizer steps along gradients of the reference, which begins each step at
//! PyTorch's weights.

use std::collections::BTreeMap;

use megabatch_amp::{Threads, unscale_and_check};
use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_reference::{Inputs, LayerState, Reference, loss};
use megabatch_trainer::Optimizer;

use crate::fixture::{Case, Fixture, torch_name};

/// Does the steps of a fixture in double precision and compares everything on the way.
pub(crate) fn check(mut fixture: Fixture, case: &Case) -> BTreeMap<&'static str, f64> {
    let (model, scope) = (case.model(), Device::cpu().scope("parity"));
    let inputs = inputs(&mut fixture, case, &model);
    let targets = fixture.input("input.target").to_vec();
    let mut parameters = TensorSet::zeros(&scope, model.layout()).unwrap();
    let mut reference = Reference::new(&model, &parameters);
    for (name, _) in model.layout().tensors() {
        let values = fixture.rounded(&format!("param.{}", torch_name(name)));
        parameters.get_mut(name).unwrap().copy_from_slice(&values);
    }
    let mut optimizer = Optimizer::new(&scope, case.optimizer(), &parameters).unwrap();
    let (mut before, mut norms) = ("param".to_owned(), Vec::new());
    for step in 1..=case.steps {
        for (name, _) in model.layout().tensors() {
            let values = fixture.input(&format!("{before}.{}", torch_name(name)));
            reference.parameter_mut(name).unwrap().copy_from_slice(values);
        }
        let loss = loss(Loss::Mse, &reference.forward(&inputs).outputs, &targets, case.o);
        fixture.compare("loss", &format!("step{step}.loss"), &[loss.mean]);
        let mut gradients = TensorSet::zeros(&scope, model.layout()).unwrap();
        for (name, values) in reference.gradients(&inputs, &loss.gradient).parameters {
            let rounded = values.into_iter().map(|x| x as f32);
            gradients.get_mut(&name).unwrap().iter_mut().zip(rounded).for_each(|(to, x)| *to = x);
        }
        let norm = unscale_and_check(&[gradients.values()], 1.0, Threads::Caller).norm;
        clip_by_norm(&mut gradients, norm, case.clip);
        if step == 1 {
            fixture.compare_set("gradients", "clipped", &gradients);
        }
        norms.push(norm);
        optimizer.update(&mut parameters, &gradients, case.lr);
        before = format!("step{step}");
        fixture.compare_set("weights", &before, &parameters);
    }
    fixture.compare("norm", "grad_norm", &norms);
    let moments = optimizer.moments().unwrap();
    fixture.compare_set("first moments", "adam.m", &moments.exp_avg);
    fixture.compare_set("second moments", "adam.v", &moments.exp_avg_sq);
    fixture.check_that_all_was_seen(&["out.", "grad."]);
    fixture.worst
}

fn inputs(fixture: &mut Fixture, case: &Case, model: &Model) -> Inputs {
    let timeframes = 0..model.shape().timeframes.len();
    let windows = timeframes.map(|k| fixture.input(&case.timeframe_name("input.x", k)).to_vec());
    let mut inputs = Inputs::from_windows(model.shape(), case.b, windows.collect::<Vec<_>>());
    if case.carry == 1 {
        let mut layers = |name| -> Vec<Vec<f64>> {
            fixture.input(name).chunks_exact(case.b * case.h).map(<[f64]>::to_vec).collect()
        };
        let (hidden, cell) = (layers("input.h0"), layers("input.c0"));
        let states = hidden.into_iter().zip(cell);
        inputs.timeframes[0].initial = states.map(|(hidden, cell)| LayerState { hidden, cell }).collect();
    }
    inputs
}

/// Scales all gradients by clip / (norm + 1e-6) where that is below 1, as
/// `torch.nn.utils.clip_grad_norm_` does.
fn clip_by_norm(gradients: &mut TensorSet, norm: f64, clip_norm: f64) {
    let coefficient = (clip_norm / (norm + 1e-6)).min(1.0) as f32;
    gradients.values_mut().iter_mut().for_each(|g| *g *= coefficient);
}
