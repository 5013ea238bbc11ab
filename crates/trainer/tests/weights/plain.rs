//! The plain form, in both precisions.

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_trainer::{InputGradients, Optimizer, Pass, Scalar};

use crate::fixture::{Fixture, Kind};

/// Trains on a case's one batch as PyTorch did and compares everything on the way.
pub(crate) fn check<S: Scalar>(fixture: &mut Fixture<'_>) {
    let scope = Device::cpu().scope("weights");
    let (shape, config) = (fixture.shape(), fixture.config());
    let model = Model::new(shape.clone(), config.model).unwrap();
    let mut parameters = TensorSet::<S>::zeros(&scope, model.layout()).unwrap();
    for (name, _) in model.layout().tensors() {
        parameters.get_mut(name).unwrap().copy_from_slice(&fixture.input(&format!("param.{name}")));
    }
    let windows = shape.timeframes.iter().map(|timeframe| fixture.input(&format!("input.{}", timeframe.name)));
    let windows: Vec<Vec<S>> = windows.collect();
    let targets = fixture.input::<S>("target");
    let mut pass = Pass::new(&scope, &model, fixture.samples(), InputGradients::Skip).unwrap();
    let mut gradients = TensorSet::zeros(&scope, model.layout()).unwrap();
    let mut optimizer = Optimizer::new(&scope, config.optimizer, &parameters).unwrap();
    for step in 0..fixture.steps() {
        pass.load(fixture.samples(), windows.iter().map(Vec::as_slice));
        model.forward(&parameters, &mut pass);
        if step == 0 {
            fixture.compare(Kind::Outputs, "y", pass.outputs());
            compare_pooling_weights(fixture, &model, &pass);
            compare_fusion_weights(fixture, &model, &pass);
        }
        let loss = Loss::Mse.sum(pass.outputs(), &targets) / targets.len() as f64;
        fixture.compare(Kind::Outputs, &format!("loss{step}"), &[loss]);
        let (outputs, d_outputs) = pass.outputs_and_gradient_mut();
        Loss::Mse.gradient(outputs, &targets, targets.len(), d_outputs);
        gradients.clear();
        model.backward(&parameters, &mut pass, &mut gradients);
        if step == 0 {
            fixture.compare_set(Kind::Gradients, "grad", &gradients);
        }
        optimizer.update(&mut parameters, &gradients, config.optimizer.lr);
    }
    fixture.compare_set(Kind::Weights, "after", &parameters);
}

fn compare_pooling_weights<S: Scalar>(fixture: &mut Fixture<'_>, model: &Model, pass: &Pass<S>) {
    if model.config().pooling == megabatch_nn::model::Pooling::Last {
        return;
    }
    for (k, timeframe) in model.shape().timeframes.iter().enumerate() {
        let of_sample = |sample| pass.pooling_weights(model, k, sample).iter().copied();
        let weights: Vec<S> = (0..fixture.samples()).flat_map(of_sample).collect();
        fixture.compare(Kind::Outputs, &format!("weights.{}", timeframe.name), &weights);
    }
}

fn compare_fusion_weights<S: Scalar>(fixture: &mut Fixture<'_>, model: &Model, pass: &Pass<S>) {
    if model.config().fusion == megabatch_nn::model::Fusion::Concat {
        return;
    }
    let of_sample = |sample| pass.fusion_weights(model, sample).iter().copied();
    let weights: Vec<S> = (0..fixture.samples()).flat_map(of_sample).collect();
    fixture.compare(Kind::Outputs, "fusion_weights", &weights);
}
