//! The plain form, in both precisions: all that PyTorch tells.

use std::collections::BTreeMap;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::TensorSet;
use megabatch_trainer::{InputGradients, Optimizer, Pass, Scalar, clip_by_norm, global_norm};

use crate::fixture::{Case, Fixture, torch_name};

/// [T, B, W] as [B, T, W].
fn batch_first<S: Copy>(values: &[S], steps: usize, samples: usize, width: usize) -> Vec<S> {
    let rows = (0..samples).flat_map(|b| (0..steps).map(move |t| (t * samples + b) * width));
    rows.flat_map(|start| values[start..start + width].iter().copied()).collect()
}

/// Trains on a fixture's one batch as PyTorch did and compares everything on the way.
pub(crate) fn check<S: Scalar>(mut fixture: Fixture, case: &Case) -> BTreeMap<&'static str, f64> {
    let scope = Device::cpu().scope("parity");
    let model = case.model();
    let timeframes = model.shape().timeframes.len();
    let mut parameters = TensorSet::<S>::zeros(&scope, model.layout()).unwrap();
    for (name, _) in model.layout().tensors() {
        let values = fixture.input::<S>(&format!("param.{}", torch_name(name)));
        parameters.get_mut(name).unwrap().copy_from_slice(&values);
    }
    let windows: Vec<Vec<S>> = (0..timeframes).map(|k| fixture.input(&case.of_timeframe("input.x", k))).collect();
    let targets = fixture.input::<S>("input.target");
    let initial = (case.carry == 1).then(|| ["input.h0", "input.c0"].map(|name| fixture.input::<S>(name)));

    let mut pass = Pass::new(&scope, &model, case.b, InputGradients::Compute).unwrap();
    let mut gradients = TensorSet::zeros(&scope, model.layout()).unwrap();
    let mut optimizer = Optimizer::new(&scope, case.optimizer(), &parameters).unwrap();
    let mut norms = Vec::new();
    for step in 1..=case.steps {
        pass.load(case.b, windows.iter().map(Vec::as_slice));
        for (layer, state) in initial.iter().flat_map(|state| (0..case.l).zip(std::iter::repeat(state))) {
            let own = layer * case.b * case.h..(layer + 1) * case.b * case.h;
            pass.set_initial_state(0, layer, &state[0][own.clone()], &state[1][own]);
        }
        model.forward(&parameters, &mut pass);
        let count = targets.len();
        let loss = Loss::Mse.sum(pass.outputs(), &targets) / count as f64;
        let (outputs, d_outputs) = pass.outputs_and_gradient_mut();
        Loss::Mse.gradient(outputs, &targets, count, d_outputs);
        gradients.clear();
        model.backward(&parameters, &mut pass, &mut gradients);

        fixture.compare("loss", &format!("step{step}.loss"), &[loss]);
        let norm = global_norm(&gradients);
        if step == 1 {
            fixture.compare("loss", "out.loss", &[loss]);
            compare_outputs(&mut fixture, case, &pass);
            compare_gradients(&mut fixture, case, &pass);
            fixture.compare_set("gradients", "grad", &gradients);
        }
        clip_by_norm(&mut gradients, norm, case.clip);
        if step == 1 {
            fixture.compare_set("gradients", "clipped", &gradients);
        }
        norms.push(norm);
        optimizer.update(&mut parameters, &gradients, case.lr);
        fixture.compare_set("weights", &format!("step{step}"), &parameters);
    }
    fixture.compare("norm", "grad_norm", &norms);
    let moments = optimizer.moments().unwrap();
    fixture.compare_set("first moments", "adam.m", &moments.exp_avg);
    fixture.compare_set("second moments", "adam.v", &moments.exp_avg_sq);
    fixture.check_that_all_was_seen(&[]);
    fixture.worst
}

fn compare_outputs<S: Scalar>(fixture: &mut Fixture, case: &Case, pass: &Pass<S>) {
    let states = |k: usize| (0..case.l).map(move |l| pass.last_state(k, l));
    let timeframes = case.timeframes.as_ref().map_or(1, Vec::len);
    let hidden: Vec<S> = (0..timeframes).flat_map(states).flat_map(|(hidden, _)| hidden.iter().copied()).collect();
    let cell: Vec<S> = (0..timeframes).flat_map(states).flat_map(|(_, cell)| cell.iter().copied()).collect();
    fixture.compare("outputs", "out.hn", &hidden);
    fixture.compare("outputs", "out.cn", &cell);
    fixture.compare("outputs", "out.y", pass.outputs());
    if case.timeframes.is_none() {
        fixture.compare("outputs", "out.seq", &batch_first(pass.sequence(0), case.t, case.b, case.h));
    }
}

fn compare_gradients<S: Scalar>(fixture: &mut Fixture, case: &Case, pass: &Pass<S>) {
    let lengths = case.timeframes.clone().unwrap_or_else(|| vec![case.t]);
    for (k, &steps) in lengths.iter().enumerate() {
        let gradient = batch_first(pass.input_gradient(k).unwrap(), steps, case.b, case.f);
        fixture.compare("gradients", &case.of_timeframe("grad.input.x", k), &gradient);
    }
    if case.carry == 1 {
        let gradients = || (0..case.l).map(|l| pass.initial_state_gradient(0, l));
        let hidden: Vec<S> = gradients().flat_map(|(hidden, _)| hidden.to_vec()).collect();
        let cell: Vec<S> = gradients().flat_map(|(_, cell)| cell.to_vec()).collect();
        fixture.compare("gradients", "grad.input.h0", &hidden);
        fixture.compare("gradients", "grad.input.c0", &cell);
    }
}
