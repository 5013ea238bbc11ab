//! The CPU engine as a trainer and a predictor use it.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_gpu_core::Device;
use megabatch_nn::model::{Fusion, Model, Pooling, TensorSet, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Config, Error, Event, InMemory, OptimizerConfig, Predictor, Run, SampleRanges, Selection, Trainer,
};

use crate::fixture::{Fixture, Kind};

/// Trains on a case's one batch as PyTorch did and compares everything on the way.
pub(crate) fn check(fixture: &mut Fixture<'_>) {
    let model = Model::new(fixture.shape(), fixture.config().model).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("w.safetensors");
    let mut parameters = TensorSet::zeros(&Device::cpu().scope("weights"), model.layout()).unwrap();
    for (name, _) in model.layout().tensors() {
        parameters.get_mut(name).unwrap().copy_from_slice(&fixture.input(&format!("param.{name}")));
    }
    save_weights(&weights, &parameters).unwrap();
    let timeframes = &model.shape().timeframes;
    let windows = timeframes.iter().map(|timeframe| fixture.input(&format!("input.{}", timeframe.name)));
    let samples = InMemory::new(model.shape().clone(), windows.collect(), fixture.input("target")).unwrap();

    compare_outputs(fixture, model, &samples, &weights);
    compare_gradients(fixture, &samples, &weights);
    compare_steps(fixture, &samples, &weights);
}

fn compare_outputs(fixture: &mut Fixture<'_>, model: Model, samples: &InMemory, weights: &Path) {
    let compute = Compute { threads: 1, batch_size: fixture.samples() };
    let timeframes = model.shape().timeframes.clone();
    let (pooling, fusion) = (model.config().pooling, model.config().fusion);
    let mut predictor = Predictor::open(&Device::cpu(), model, weights, compute).unwrap();
    let indices = SampleRanges::from(0..fixture.samples());
    let selection = Selection { samples, indices: &indices };
    let compare = |_: &[usize], outputs: &[f32]| {
        fixture.compare(Kind::Outputs, "y", outputs);
        Ok::<(), Error>(())
    };
    predictor.predict(selection, compare).unwrap();
    if fusion != Fusion::Concat {
        let compare = |_: &[usize], weights: &[f32]| {
            fixture.compare(Kind::Outputs, "fusion_weights", weights);
            Ok::<(), Error>(())
        };
        predictor.fusion_weights(selection, compare).unwrap();
    }
    let Pooling::Attention { heads } = pooling else { return };
    let compare = |_: &[usize], weights: &[f32]| {
        let (width, mut before) = (weights.len() / indices.len(), 0);
        for timeframe in &timeframes {
            let len = heads * timeframe.steps;
            let own = weights.chunks_exact(width).flat_map(|row| row[before..before + len].to_vec());
            fixture.compare(Kind::Outputs, &format!("weights.{}", timeframe.name), &own.collect::<Vec<_>>());
            before += len;
        }
        Ok::<(), Error>(())
    };
    predictor.pooling_weights(selection, compare).unwrap();
}

/// With β1 = 0 the first moment is the gradient of the last step, to the bit.
fn compare_gradients(fixture: &mut Fixture<'_>, samples: &InMemory, weights: &Path) {
    let optimizer = OptimizerConfig { beta1: 0.0, ..fixture.config().optimizer };
    let config = Config { optimizer, max_steps: Some(1), ..fixture.config() };
    let (trainer, _) = trained(&config, samples, weights);
    fixture.compare_set(Kind::Gradients, "grad", &trainer.optimizer().moments().unwrap().exp_avg);
}

fn compare_steps(fixture: &mut Fixture<'_>, samples: &InMemory, weights: &Path) {
    let (trainer, losses) = trained(&fixture.config(), samples, weights);
    for (step, loss) in losses.into_iter().enumerate() {
        fixture.compare(Kind::Outputs, &format!("loss{step}"), &[loss]);
    }
    fixture.compare_set(Kind::Weights, "after", trainer.parameters());
}

/// A trainer after its steps over one batch, and their losses.
fn trained(config: &Config, samples: &InMemory, weights: &Path) -> (Trainer, Vec<f64>) {
    use megabatch_trainer::Samples as _;

    let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    trainer.load_weights(weights).unwrap();
    let train = SampleRanges::from(0..samples.len());
    let mut losses = Vec::new();
    let observe = &mut |event: Event<'_>| {
        if let Event::Step(step) = event {
            losses.push(step.loss);
        }
        ControlFlow::Continue(())
    };
    trainer.train(&Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None }, observe).unwrap();
    (trainer, losses)
}
