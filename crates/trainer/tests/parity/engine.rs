//! The CPU engine as a trainer uses it: outputs, losses, gradients, and optimizer steps. States and
//! the gradients of inputs do not leave it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, TensorSet, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Config, Error, Event, InMemory, OptimizerConfig, OptimizerKind, Predictor, Run, SampleRanges, Selection, StepEvent,
    Trainer,
};

use crate::fixture::{Case, Fixture, torch_name};

/// Trains on a fixture's one batch as PyTorch did and compares everything on the way.
pub(crate) fn check(mut fixture: Fixture, case: &Case) -> BTreeMap<&'static str, f64> {
    let model = case.model();
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("w.safetensors");
    save_initial_weights(&mut fixture, &model, &weights);
    let windows = (0..model.shape().timeframes.len()).map(|k| fixture.rounded(&case.timeframe_name("input.x", k)));
    let samples = InMemory::new(model.shape().clone(), windows.collect(), fixture.rounded("input.target")).unwrap();
    let problem = Problem { case, samples, weights: &weights };

    problem.compare_outputs(&mut fixture);
    problem.compare_gradients(&mut fixture, "grad", None);
    problem.compare_gradients(&mut fixture, "clipped", Some(case.clip));
    problem.compare_steps(&mut fixture);
    fixture.check_that_all_was_seen(&["out.hn", "out.cn", "out.seq", "grad.input."]);
    fixture.worst
}

fn save_initial_weights(fixture: &mut Fixture, model: &Model, path: &Path) {
    let mut parameters = TensorSet::zeros(&Device::cpu().scope("parity"), model.layout()).unwrap();
    for (name, _) in model.layout().tensors() {
        let values = fixture.rounded(&format!("param.{}", torch_name(name)));
        parameters.get_mut(name).unwrap().copy_from_slice(&values);
    }
    save_weights(path, &parameters).unwrap();
}

/// A fixture's batch and weights.
struct Problem<'a> {
    case: &'a Case,
    samples: InMemory,
    weights: &'a Path,
}

impl Problem<'_> {
    fn all(&self) -> SampleRanges {
        SampleRanges::from(0..self.case.b)
    }

    fn trainer(&self, optimizer: OptimizerConfig, clip_norm: Option<f64>) -> Trainer {
        let model = self.case.model();
        let max_steps = Some(self.case.steps as u64);
        let config = Config {
            model: model.config(),
            optimizer,
            clip_norm,
            max_steps,
            batch_size: self.case.b,
            threads: 1,
            ..Config::default()
        };
        let mut trainer = Trainer::new(&Device::cpu(), config, model.shape().clone()).unwrap();
        trainer.load_weights(self.weights).unwrap();
        trainer
    }

    /// Does one step.
    fn step(&self, trainer: &mut Trainer) -> StepEvent {
        let train = self.all();
        let run = Run { samples: &self.samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        let mut step = None;
        let observe = &mut |event: Event<'_>| {
            let Event::Step(event) = event else { return ControlFlow::Continue(()) };
            step = Some(event);
            ControlFlow::Break(())
        };
        trainer.train(&run, observe).unwrap();
        step.unwrap()
    }

    fn compare_outputs(&self, fixture: &mut Fixture) {
        let compute = Compute { threads: 1, batch_size: self.case.b };
        let mut predictor = Predictor::open(&Device::cpu(), self.case.model(), self.weights, compute).unwrap();
        let indices = self.all();
        let selection = Selection { samples: &self.samples, indices: &indices };
        let compare = |_: &[usize], outputs: &[f32]| {
            fixture.compare("outputs", "out.y", outputs);
            Ok::<(), Error>(())
        };
        predictor.predict(selection, compare).unwrap();
        let evaluation = predictor.evaluate(selection, Loss::Mse, None).unwrap();
        fixture.compare("loss", "out.loss", &[evaluation.loss]);
    }

    /// With β1 = 0 the first moment is the gradient of the last step, to the bit.
    fn compare_gradients(&self, fixture: &mut Fixture, prefix: &str, clip_norm: Option<f64>) {
        let optimizer = OptimizerConfig { kind: OptimizerKind::AdamW, beta1: 0.0, ..OptimizerConfig::default() };
        let mut trainer = self.trainer(optimizer, clip_norm);
        self.step(&mut trainer);
        fixture.compare_set("gradients", prefix, &trainer.optimizer().moments().unwrap().exp_avg);
    }

    fn compare_steps(&self, fixture: &mut Fixture) {
        let mut trainer = self.trainer(self.case.optimizer(), Some(self.case.clip));
        let mut norms = Vec::new();
        for step in 1..=self.case.steps {
            let event = self.step(&mut trainer);
            fixture.compare("loss", &format!("step{step}.loss"), &[event.loss]);
            fixture.compare_set("weights", &format!("step{step}"), trainer.parameters());
            norms.push(event.grad_norm);
        }
        fixture.compare("norm", "grad_norm", &norms);
        let moments = trainer.optimizer().moments().unwrap();
        fixture.compare_set("first moments", "adam.m", &moments.exp_avg);
        fixture.compare_set("second moments", "adam.v", &moments.exp_avg_sq);
    }
}
