#![forbid(unsafe_code)]

//! The memory of a training run, computed from its shapes before anything is allocated.

use serde::Serialize;

use crate::config::Config;
use crate::error::Result;
use crate::fast::{self, PackedWeights};
use crate::form::Form;
use crate::model::{Model, SampleShape};
use crate::step::Purpose;

/// Bytes that a run takes from its device, by what they are for. Together they are the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// The weights and, for the fast form, the LSTMs' once more in the kernels' order.
    pub parameters_bytes: usize,
    /// Gradients: their sum, and one set for each shard in work.
    pub gradients_bytes: usize,
    /// The optimizer's moments.
    pub optimizer_bytes: usize,
    /// What the forward pass keeps for the backward pass, for each shard in work.
    pub activations_bytes: usize,
    /// Batches: the one in work and the one being read, twice while a validation interrupts training.
    pub batches_bytes: usize,
}

impl Footprint {
    /// The footprint of training on samples of `shape`, with `validation_samples` to validate on.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn of(config: &Config, shape: &SampleShape, validation_samples: usize) -> Result<Self> {
        let model = Model::new(shape.clone(), config.model)?;
        let weights = model.layout().len();
        let (shards, shard_samples) = (config.compute().shards_at_once(), config.compute().shard_samples());
        let (packed, pass) = match config.form {
            Form::Plain => (0, pass_len(config, shape)),
            Form::Fast => {
                let pass = fast::Pass::len(&model, shard_samples, Purpose::Training { dropout: false });
                (PackedWeights::len(&model, Purpose::Training { dropout: false }), pass)
            }
        };
        let moments = if config.optimizer.kind.has_moments() { 2 } else { 0 };
        let batches = if validation_samples > 0 { 4 } else { 2 };
        let sample = (0..shape.timeframes.len()).map(|k| shape.window_len(k)).sum::<usize>() + shape.outputs;
        let bytes = |numbers: usize| numbers * size_of::<f32>();
        Ok(Footprint {
            parameters_bytes: bytes(weights + packed),
            gradients_bytes: bytes((1 + shards) * weights),
            optimizer_bytes: bytes(moments * weights),
            activations_bytes: bytes(shards * pass),
            batches_bytes: bytes(batches * config.batch_size * sample),
        })
    }

    /// All of it.
    pub fn total_bytes(&self) -> usize {
        self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.batches_bytes
    }
}

/// Numbers in the memory of one pass of the plain form over a shard; see `Pass` and `Activations` for what each part is.
fn pass_len(config: &Config, shape: &SampleShape) -> usize {
    let capacity = config.compute().shard_samples();
    let (hidden, layers) = (config.model.hidden, config.model.layers);
    let state = capacity * hidden;
    let lstm = |steps: usize, features: usize| {
        let inputs = steps * capacity * features;
        let gates = 4 * steps * state;
        let states = 2 * (steps + 1) * state + steps * state;
        let gradients = 2 * state;
        let weight_hh_turned = 4 * hidden * hidden;
        let between = if layers > 1 { steps * state } else { 0 };
        inputs + layers * (gates + states + gradients + weight_hh_turned) + between
    };
    let lstms: usize = shape.timeframes.iter().map(|timeframe| lstm(timeframe.steps, timeframe.features)).sum();
    let head = 2 * capacity * (shape.timeframes.len() * hidden + shape.outputs);
    lstms + head
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use megabatch_gpu_core::Device;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{ModelConfig, Timeframe};
    use crate::optimizer::{OptimizerConfig, OptimizerKind};
    use crate::samples::InMemory;
    use crate::train::{Run, Trainer};

    fn peaks_of_a_run(config: &Config, shape: &SampleShape, validation: &[usize]) -> [usize; 5] {
        let samples = 70;
        let windows = (0..shape.timeframes.len()).map(|k| vec![0.5; samples * shape.window_len(k)]).collect();
        let data = InMemory::new(shape.clone(), windows, vec![0.25; samples * shape.outputs]).unwrap();
        let device = Device::cpu();
        let mut trainer = Trainer::new(&device, config.clone(), shape.clone()).unwrap();
        let train: Vec<usize> = (0..60).collect();
        let run = Run { samples: &data, train: &train, validation, checkpoints: None };
        trainer.train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
        let peak = |labels: &[&str]| -> usize {
            labels.iter().map(|label| device.scope(label).usage().allocated_bytes_peak).sum()
        };
        assert_eq!(
            device.usage().allocated_bytes_peak,
            device.usage_by_scope().iter().map(|(_, usage)| usage.allocated_bytes_peak).sum::<usize>()
        );
        [
            peak(&["model/parameters", "model/parameters/packed"]),
            peak(&["model/gradients", "model/gradients/shards"]),
            peak(&["optimizer"]),
            peak(&["activations"]),
            peak(&["batches"]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// The peak of a run is what was computed, byte for byte, whatever its settings.
        #[test]
        fn a_run_takes_what_was_computed(
            timeframes in prop::collection::vec((1usize..5, 1usize..4), 1..4),
            (hidden, layers, bias) in (1usize..6, 1usize..4, any::<bool>()),
            (batch_size, threads, accumulation_steps) in (1usize..80, 1usize..4, 1usize..3),
            [adam, validates, plain] in any::<[bool; 3]>(),
        ) {
            let timeframe = |(k, &(steps, features)): (usize, &(usize, usize))| {
                Timeframe { name: format!("T{k}"), steps, features }
            };
            let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 2 };
            let kind = if adam { OptimizerKind::Adam } else { OptimizerKind::Sgd };
            let config = Config {
                model: ModelConfig { hidden, layers, bias },
                optimizer: OptimizerConfig { kind, ..OptimizerConfig::default() },
                batch_size,
                threads,
                accumulation_steps,
                form: if plain { Form::Plain } else { Form::Fast },
                ..Config::default()
            };
            let validation: &[usize] = if validates { &[60, 61] } else { &[] };
            let computed = Footprint::of(&config, &shape, validation.len()).unwrap();
            let parts = [
                computed.parameters_bytes,
                computed.gradients_bytes,
                computed.optimizer_bytes,
                computed.activations_bytes,
                computed.batches_bytes,
            ];
            prop_assert_eq!(peaks_of_a_run(&config, &shape, validation), parts);
        }
    }
}
