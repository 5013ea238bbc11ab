//! Training from carried states: as the definition has it, across interruptions, and refused where
//! it cannot be.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::batch::SeriesView;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Dropout, Model, SampleShape, TensorSet, Timeframe};
use megabatch_order::Order;
use megabatch_trainer::{
    Batch, CarriedStates, Checkpoints, Config, Error, Event, Form, InputGradients, OptimizerConfig, OptimizerKind,
    Pass, Run, Samples, SeriesInMemory, Trainer,
};

use crate::made_up::{config, fusion_of, listen, pooling_of, samples, series, steps_of};
use crate::resuming::state;

fn carrying() -> Config {
    Config { carry_state: true, dropout: 0.25, ..config() }
}

/// The hidden and the cell state of each layer of a timeframe, [H] each.
type LayerStates = Vec<(Vec<f64>, Vec<f64>)>;

/// Carried state by its definition: sample by sample, in double precision, the state at each bar
/// from a window that ends there.
struct ByHand<'a> {
    scope: Scope,
    config: &'a Config,
    samples: &'a SeriesInMemory,
    parameters: TensorSet<f64>,
    /// States of the steps before, by timeframe and bar.
    carried: HashMap<(usize, usize), LayerStates>,
}

impl ByHand<'_> {
    /// The model of windows of `lengths(T)` bars.
    fn model(&self, lengths: impl Fn(usize) -> usize) -> Model {
        let shape = self.samples.shape();
        let timeframes = shape.timeframes.iter();
        let timeframes = timeframes.map(|timeframe| Timeframe { steps: lengths(timeframe.steps), ..timeframe.clone() });
        let shape = SampleShape { timeframes: timeframes.collect(), ..shape.clone() };
        Model::new(shape, self.config.model).unwrap()
    }

    /// A forward pass over one sample's windows, of whose bars `model` takes the first ones.
    fn forward(&self, model: &Model, sample: usize, dropout: Option<Dropout>) -> Pass<f64> {
        let view = self.samples.series().unwrap();
        let mut pass = Pass::new(&self.scope, model, 1, InputGradients::Skip).unwrap();
        pass = pass.with_room_for_dropout(&self.scope).unwrap();
        let shapes = model.shape().timeframes.iter().zip(&self.samples.shape().timeframes);
        let window = |((cut, whole), series): ((&Timeframe, &Timeframe), &megabatch_nn::batch::Series<'_>)| {
            let start = series.ends[sample] as usize + 1 - whole.steps;
            series.values[start * cut.features..(start + cut.steps) * cut.features].to_vec()
        };
        let windows: Vec<Vec<f32>> = shapes.zip(&view.timeframes).map(window).collect();
        pass.load(1, windows.iter().map(Vec::as_slice));
        let ends: Vec<[usize; 1]> = view.timeframes.iter().map(|series| [series.ends[sample] as usize]).collect();
        for (k, (series, whole)) in view.timeframes.iter().zip(&self.samples.shape().timeframes).enumerate() {
            let start = ends[k][0] + 1 - whole.steps;
            let begins = series.segment_starts.contains(&(start as i64));
            let before = start.checked_sub(1).filter(|_| !begins);
            let states = before.and_then(|row| self.carried.get(&(k, row)));
            for (layer, (hidden, cell)) in states.into_iter().flatten().enumerate() {
                pass.set_initial_state(k, layer, hidden, cell);
            }
        }
        if let Some(dropout) = dropout {
            pass.set_dropout(model, dropout, ends.iter().map(<[usize; 1]>::as_slice));
        }
        model.forward(&self.parameters, &mut pass);
        pass
    }

    /// One optimizer step over `samples`, in this order; its loss.
    fn step(&mut self, step: u64, samples: &[usize]) -> f64 {
        let dropout = Some(Dropout::of_step(self.config.dropout, self.config.seed, step).unwrap());
        let model = self.model(|steps| steps);
        let mut gradients = TensorSet::zeros(&self.scope, model.layout()).unwrap();
        let outputs = model.shape().outputs;
        let (mut loss, mut computed) = (0.0, HashMap::new());
        for &sample in samples {
            let mut pass = self.forward(&model, sample, dropout);
            let targets = self.samples.series().unwrap().targets[sample * outputs..][..outputs].to_vec();
            loss += Loss::Mse.sum(pass.outputs(), &targets);
            let (y, d_y) = pass.outputs_and_gradient_mut();
            Loss::Mse.gradient(y, &targets, samples.len() * outputs, d_y);
            model.backward(&self.parameters, &mut pass, &mut gradients);
            let longest = model.shape().timeframes.iter().map(|timeframe| timeframe.steps).max().unwrap();
            for length in 1..=longest {
                let cut = self.model(|steps| steps.min(length));
                let pass = self.forward(&cut, sample, dropout);
                for (k, timeframe) in cut.shape().timeframes.iter().enumerate() {
                    let whole = self.samples.shape().timeframes[k].steps;
                    let end = self.samples.series().unwrap().timeframes[k].ends[sample] as usize;
                    let state = |layer| {
                        let (hidden, cell) = pass.last_state(k, layer);
                        (hidden.to_vec(), cell.to_vec())
                    };
                    let states: LayerStates = (0..self.config.model.layers).map(state).collect();
                    computed.insert((k, end + timeframe.steps - whole), states);
                }
            }
        }
        self.carried.extend(computed);
        let lr = self.config.optimizer.lr;
        let weights = self.parameters.values_mut().iter_mut();
        weights.zip(gradients.values()).for_each(|(weight, gradient)| *weight -= lr * gradient);
        loss / (samples.len() * outputs) as f64
    }
}

/// Two passes over the samples in short runs, so that windows find states of earlier steps and of
/// the pass before. The trainer computes in single precision: 1e-7 a rounding, which a dozen steps
/// at a rate of 0.5 pass on.
#[test]
fn windows_start_where_the_last_steps_came_to() {
    let samples = series();
    let train: Vec<usize> = (0..100).collect();
    for (form, pooling, lr) in
        [(Form::Plain, 0, 0.5), (Form::Fast, 0, 0.5), (Form::Plain, 1, 0.02), (Form::Fast, 1, 0.02)]
    {
        let sgd = OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() };
        let mut config = Config { optimizer: sgd, clip_norm: None, batch_size: 9, epochs: 2, form, ..carrying() };
        config.run_length = Some(4);
        config.model.layer_norm = pooling == 1;
        config.model.pooling = pooling_of(pooling, config.model.hidden);
        config.model.fusion = fusion_of(pooling == 1, config.model.hidden);
        let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        let scope = Device::cpu().scope("by hand");
        let parameters = trainer.model().initial_parameters(&scope, config.seed).unwrap();
        let mut by_hand = ByHand { scope, config: &config, samples: &samples, parameters, carried: HashMap::new() };
        let order = Order::new(train.len(), 4, config.seed).unwrap();
        let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: None };
        trainer
            .train(&run, &mut |event| {
                if let Event::Step(step) = event {
                    let (epoch, first) = (step.epoch, (step.step - 1) as usize % 12 * 9);
                    let of_epoch = order.epoch(epoch);
                    let step_samples: Vec<usize> =
                        (first..first + step.samples).map(|at| of_epoch.sample(at)).collect();
                    let loss = by_hand.step(step.step - 1, &step_samples);
                    assert!(
                        (step.loss - loss).abs() < 1e-5 * loss,
                        "{form:?}, step {}: {} for {loss}",
                        step.step,
                        step.loss
                    );
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        let weights = trainer.parameters().values().iter().zip(by_hand.parameters.values());
        let apart = weights.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-5, "{form:?}: weights are off by {apart}");
    }
}

/// The state at the bar before a segment is carried to no window in it, although the window before
/// it computed it.
#[test]
fn nothing_is_carried_into_a_segment() {
    let shape = SampleShape { timeframes: vec![Timeframe { name: "M1".into(), steps: 2, features: 1 }], outputs: 1 };
    let losses_of_the_second_epoch = |segment_starts: Vec<i64>, carry_state| {
        let values = [0.9, -0.4, 0.3, 0.8].to_vec();
        let samples = SeriesInMemory::new(shape.clone(), vec![(values, vec![1, 3])], vec![0.5, 0.25]).unwrap();
        let samples = samples.with_segments(vec![segment_starts]).unwrap();
        // Nothing is learnt, so that only the start can make a difference.
        let lr = 1e-30;
        let sgd = OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() };
        let config = Config { optimizer: sgd, batch_size: 1, epochs: 2, dropout: 0.0, carry_state, ..config() };
        let mut trainer = Trainer::new(&Device::cpu(), config, shape.clone()).unwrap();
        let run = Run { samples: &samples, train: &[0, 1], validation: &[], checkpoints: None };
        let steps = steps_of(&mut trainer, &run);
        let mut losses: Vec<f64> = steps.iter().filter(|step| step.epoch == 1).map(|step| step.loss).collect();
        losses.sort_by(f64::total_cmp);
        losses
    };
    let carried = losses_of_the_second_epoch(vec![], true);
    assert_eq!(losses_of_the_second_epoch(vec![0], true), carried);
    let divided = losses_of_the_second_epoch(vec![0, 2], true);
    assert_ne!(divided, carried);
    assert_eq!(divided, losses_of_the_second_epoch(vec![], false));
}

#[test]
fn a_resumed_run_goes_on_from_the_states_that_it_carried() {
    let samples = series();
    let train: Vec<usize> = (0..90).collect();
    for form in [Form::Plain, Form::Fast] {
        let mut config = Config { max_steps: Some(30), run_length: Some(3), form, ..carrying() };
        config.model.layer_norm = true;
        config.model.pooling = pooling_of(2, config.model.hidden);
        config.model.fusion = fusion_of(true, config.model.hidden);
        let trainer = |config: &Config| Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let checkpoints = folders.each_ref().map(|folder| Checkpoints::new(folder.path()));
        let [whole_run, run] = checkpoints.each_ref().map(|checkpoints| Run {
            samples: &samples,
            train: &train,
            validation: &[91, 99],
            checkpoints: Some(checkpoints),
        });
        let mut whole = trainer(&config);
        whole.train(&whole_run, &mut listen).unwrap();

        let stop = &mut |event: Event<'_>| match event {
            Event::Step(step) if step.step == 17 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        trainer(&config).train(&run, stop).unwrap();
        let mut rest = trainer(&config);
        assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 17);
        rest.train(&run, &mut listen).unwrap();
        assert!(state(&rest) == state(&whole), "{form:?}");
        let carried =
            |folder: &tempfile::TempDir| fs::read(folder.path().join("step-00000030/carried.safetensors")).unwrap();
        assert!(carried(&folders[0]) == carried(&folders[1]), "{form:?}");

        let mut fresh = trainer(&config);
        let damaged = folders[1].path().join("step-00000030/carried.safetensors");
        let bytes = fs::read(&damaged).unwrap();
        fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
        let resumed = fresh.resume(&run).unwrap().unwrap();
        assert!(resumed.skipped[0].to_string().contains("carried.safetensors: damaged"), "{:?}", resumed.skipped);
        let error = trainer(&Config { carry_state: false, ..config }).resume(&run).unwrap_err().to_string();
        assert!(error.contains("training.carry_state true, but this run has false"), "{error}");
    }
}

/// Series of which reading fails once.
struct FailsOnce {
    inner: SeriesInMemory,
    calls: AtomicUsize,
    at_call: usize,
}

impl Samples for FailsOnce {
    fn shape(&self) -> &SampleShape {
        self.inner.shape()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        if self.calls.fetch_add(1, Relaxed) == self.at_call {
            return Err("the disk is on fire".into());
        }
        self.inner.gather(samples, batch)
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        self.inner.series()
    }
}

/// The plain form, which reads windows from the source. The trainer goes on by itself, or goes back
/// to its last checkpoint, from where other samples come next than those of the step that failed.
#[test]
fn a_step_that_fails_halfway_leaves_no_states() {
    let config = Config { batch_size: 4, accumulation_steps: 2, max_steps: Some(14), form: Form::Plain, ..carrying() };
    let train: Vec<usize> = (0..100).collect();
    let trainer = || Trainer::new(&Device::cpu(), config.clone(), series().shape().clone()).unwrap();
    let samples = series();
    let mut whole = trainer();
    whole.train(&Run { samples: &samples, train: &train, validation: &[], checkpoints: None }, &mut listen).unwrap();
    for (at_call, goes_back) in [(1, false), (8, false), (9, false), (21, false), (7, true), (21, true), (23, true)] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints { every_steps: Some(3), ..Checkpoints::new(folder.path()) };
        let samples = FailsOnce { inner: series(), calls: AtomicUsize::new(0), at_call };
        let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: Some(&checkpoints) };
        let mut trainer = trainer();
        assert!(matches!(trainer.train(&run, &mut listen), Err(Error::Gather { .. })));
        if goes_back {
            assert!(
                trainer.resume(&run).unwrap().is_some_and(|resumed| resumed.state.step == (at_call as u64 / 2) / 3 * 3)
            );
        }
        trainer.train(&run, &mut listen).unwrap();
        assert!(state(&trainer) == state(&whole), "failed at call {at_call}, goes back: {goes_back}");
    }
}

#[test]
fn samples_that_are_stored_as_windows_are_refused_by_the_name_of_the_setting() {
    let samples = samples(20);
    let run = Run { samples: &samples, train: &[0, 1, 2], validation: &[3], checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), carrying(), samples.shape().clone()).unwrap();
    let expected = "training.carry_state is true: expected false for samples that are stored as windows, which do not tell \
                    what bar came before; megabatch convert turns them into series";
    for error in [
        trainer.train(&run, &mut listen).map(drop).unwrap_err(),
        CarriedStates::of(&carrying(), &samples, &[0], &[]).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}
