//! Steps of training by the reference: forward and backward in double precision.

use std::collections::{BTreeMap, HashMap};

use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchView, Series};
use megabatch_nn::model::{Dropout, Model};
use megabatch_reference::{Gradients, Inputs, LayerState, Outputs, Read, Reference, Sequences, loss};
use megabatch_trainer::{Batch, Config, Samples, SeriesInMemory, StepEvent, Trainer};

use crate::made_up::trained_on_all;

/// The samples `list` as windows.
pub(crate) fn windows_of(samples: &dyn Samples, list: &[usize]) -> Batch {
    let mut batch = Batch::new(&Device::cpu().scope("test"), samples.shape(), list.len()).unwrap();
    batch.resize(list.len());
    samples.gather(list, &mut batch).unwrap();
    batch
}

/// The windows of a batch, each of which starts from states of zero.
pub(crate) fn inputs_of(batch: &BatchView<'_>) -> Inputs {
    let windows = (0..batch.shape().timeframes.len()).map(|k| wide(batch.features(k)));
    Inputs::from_windows(batch.shape(), batch.len(), windows)
}

pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// The model of a trainer with the parameters that it has.
pub(crate) fn reference_of(trainer: &Trainer) -> Reference {
    Reference::new(trainer.model(), trainer.parameters())
}

/// The loss of `batch` and its gradients, by `config`.
pub(crate) fn loss_and_gradients(reference: &Reference, batch: &BatchView<'_>, config: &Config) -> (f64, Gradients) {
    let (inputs, width) = (inputs_of(batch), batch.shape().outputs);
    let loss = loss(config.loss, &reference.forward(&inputs).outputs, &wide(batch.targets()), width);
    (loss.mean, reference.gradients(&inputs, &loss.gradient))
}

/// Checks the first step of a run over all of `samples` at the rate 1, whose change of the weights
/// is the gradient, and gives what was told of it.
pub(crate) fn check_step(samples: &dyn Samples, config: &Config) -> StepEvent {
    let before = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let batch = windows_of(samples, &(0..samples.len()).collect::<Vec<_>>());
    let (expected, gradients) = loss_and_gradients(&reference_of(&before), &batch.view(), config);
    let (after, steps) = trained_on_all(config, samples);
    assert!((steps[0].loss - expected).abs() < 1e-6, "{} for {expected}", steps[0].loss);
    for ((name, _, before), (_, _, after)) in before.parameters().tensors().zip(after.parameters().tensors()) {
        let changes = before.iter().zip(after).map(|(before, after)| f64::from(before - after));
        for (change, gradient) in changes.zip(&gradients.parameters[name]) {
            // Weights of order 1 lose a few units in their last place, and gradients of order 1 as
            // many.
            assert!((change - gradient).abs() < 2e-6, "{name}: {change} for {gradient}");
        }
    }
    steps.into_iter().next().unwrap()
}

/// One step of plain gradient descent.
pub(crate) fn descend(reference: &mut Reference, gradients: &Gradients, lr: f64) {
    for (name, gradient) in &gradients.parameters {
        let values = reference.parameter_mut(name).unwrap();
        values.iter_mut().zip(gradient).for_each(|(value, gradient)| *value -= lr * gradient);
    }
}

/// The square root of the sum of the squares of all gradients.
pub(crate) fn norm_of(gradients: &Gradients) -> f64 {
    gradients.parameters.values().flatten().map(|gradient| gradient * gradient).sum::<f64>().sqrt()
}

/// Gradient descent with dropout, and with carried state by its definition: the state at a bar is
/// that of the last window of the last step that went over it.
pub(crate) struct ByHand<'a> {
    config: &'a Config,
    samples: &'a SeriesInMemory,
    model: Model,
    pub(crate) reference: Reference,
    /// States of the steps before, one a layer, by timeframe and bar.
    carried: HashMap<(usize, usize), Vec<LayerState>>,
    steps: u64,
}

impl<'a> ByHand<'a> {
    /// Before the first step of a run with `config`.
    pub(crate) fn new(samples: &'a SeriesInMemory, config: &'a Config) -> Self {
        let model = Model::new(samples.shape().clone(), config.model).unwrap();
        let parameters = model.initial_parameters(&Device::cpu().scope("by hand"), config.seed).unwrap();
        let reference = Reference::new(&model, &parameters);
        ByHand { config, samples, model, reference, carried: HashMap::new(), steps: 0 }
    }

    /// One optimizer step over the samples `list`, in this order; the loss and its gradients.
    pub(crate) fn step(&mut self, list: &[usize]) -> (f64, Gradients) {
        let Config { dropout, seed, loss: objective, .. } = *self.config;
        let batch = windows_of(self.samples, list);
        let mut inputs = inputs_of(&batch.view());
        inputs.dropout = Some(Dropout::for_step(dropout, seed, self.steps).unwrap());
        for k in 0..inputs.timeframes.len() {
            inputs.timeframes[k].ends = list.iter().map(|&sample| self.end(k, sample)).collect();
            inputs.timeframes[k].initial = self.initial(k, list);
        }
        let outputs = self.reference.forward(&inputs);
        let targets = wide(batch.view().targets());
        let loss = loss(objective, &outputs.outputs, &targets, self.model.shape().outputs);
        let gradients = self.reference.gradients(&inputs, &loss.gradient);
        if self.config.carry_state {
            self.carry(list, &outputs);
        }
        descend(&mut self.reference, &gradients, self.config.optimizer.lr);
        self.steps += 1;
        (loss.mean, gradients)
    }

    /// The row of the last bar of a sample's window.
    fn end(&self, k: usize, sample: usize) -> usize {
        self.samples.series().unwrap().timeframes[k].ends[sample] as usize
    }

    /// The states that windows start from: those at the bars before them, within their segments.
    fn initial(&self, k: usize, list: &[usize]) -> Vec<LayerState> {
        let view = self.samples.series().unwrap();
        let (steps, hidden) = (self.model.shape().timeframes[k].steps, self.config.model.hidden);
        let zeros = vec![0.0; hidden];
        let mut states = vec![LayerState::default(); self.config.model.layers];
        for &sample in list {
            let start = self.end(k, sample) + 1 - steps;
            let begins = view.timeframes[k].segment_starts.contains(&(start as i64));
            let before = start.checked_sub(1).filter(|_| !begins);
            let carried = before.and_then(|row| self.carried.get(&(k, row)));
            for (layer, to) in states.iter_mut().enumerate() {
                let from = carried.map(|layers| &layers[layer]);
                to.hidden.extend(from.map_or(&zeros, |state| &state.hidden));
                to.cell.extend(from.map_or(&zeros, |state| &state.cell));
            }
        }
        states
    }

    /// Keeps the states at all bars of the windows of `list`.
    fn carry(&mut self, list: &[usize], outputs: &Outputs) {
        let hidden = self.config.model.hidden;
        for (k, layers) in outputs.states.iter().enumerate() {
            let steps = self.model.shape().timeframes[k].steps;
            for (n, &sample) in list.iter().enumerate() {
                for t in 0..steps {
                    let at = (t * list.len() + n) * hidden;
                    // A GRU has no cell states.
                    let state = |values: &[f64]| values.get(at..at + hidden).unwrap_or_default().to_vec();
                    let states = layers.iter();
                    let states =
                        states.map(|layer| LayerState { hidden: state(&layer.hidden), cell: state(&layer.cell) });
                    self.carried.insert((k, self.end(k, sample) + 1 - steps + t), states.collect());
                }
            }
        }
    }
}

/// The outputs of samples from states of zero at the start of their segments, in one pass over the
/// bars of each segment.
pub(crate) fn streamed(reference: &Reference, samples: &SeriesInMemory, list: &[usize]) -> Vec<f64> {
    let (view, width) = (samples.series().unwrap(), samples.shape().outputs);
    let segment = |sample: usize| -> Vec<usize> {
        view.timeframes.iter().map(|series| series.segment_start(series.ends[sample] as usize)).collect()
    };
    let mut by_segment = BTreeMap::<Vec<usize>, Vec<usize>>::new();
    for (place, &sample) in list.iter().enumerate() {
        by_segment.entry(segment(sample)).or_default().push(place);
    }
    let mut outputs = vec![0.0; list.len() * width];
    for (starts, places) in by_segment {
        let own: Vec<usize> = places.iter().map(|&place| list[place]).collect();
        let found = reference.forward(&one_pass(samples, &starts, &own)).outputs;
        for (row, place) in found.chunks_exact(width).zip(places) {
            outputs[place * width..][..width].copy_from_slice(row);
        }
    }
    outputs
}

/// One sequence a timeframe, from the bar `starts[k]` on, that all samples of `list` read. Its
/// dropout masks are those of the first sample's window.
pub(crate) fn one_pass(samples: &SeriesInMemory, starts: &[usize], list: &[usize]) -> Inputs {
    let (view, shape) = (samples.series().unwrap(), samples.shape());
    let sequence = |(k, series): (usize, &Series<'_>)| {
        let features = shape.timeframes[k].features;
        let steps: Vec<usize> = list.iter().map(|&sample| series.ends[sample] as usize - starts[k]).collect();
        let end = starts[k] + steps.iter().max().unwrap() + 1;
        Sequences {
            bars: wide(&series.values[starts[k] * features..end * features]),
            ends: vec![series.ends[list[0]] as usize],
            initial: Vec::new(),
            reads: steps.into_iter().map(|step| Read { sequence: 0, step }).collect(),
        }
    };
    Inputs { timeframes: view.timeframes.iter().enumerate().map(sequence).collect(), ..Inputs::default() }
}
