#![forbid(unsafe_code)]

use std::path::Path;

use megabatch_gpu_core::{Buffer, Device};

use crate::carried::state_len;
use crate::error::Result;
use crate::form::Form;
use crate::model::Model;
use crate::step::{Compute, Engine, Purpose};
use crate::stream::top_hidden;
use crate::tensor::TensorSet;
use crate::weights::load_weights;

/// A trained model that follows one instrument bar by bar: it holds the states of all its LSTMs, and a bar moves those of its
/// timeframe on by one step.
///
/// It gives, bit for bit, the predictions that a [`Predictor`](crate::Predictor) with carried state gives for samples whose
/// windows end at the bars pushed last. Give the bars of each timeframe in order, only once they have closed, and
/// [`restart`](Follower::restart) all timeframes where a segment begins.
#[derive(Debug)]
pub struct Follower {
    model: Model,
    parameters: TensorSet<f32>,
    engine: Engine,
    states: Vec<Buffer<f32>>, // [layers, 2, H] each
    joined: Buffer<f32>,      // [D]
}

impl Follower {
    /// The model with the weights of a safetensors file, at the start of a segment.
    ///
    /// # Errors
    /// As [`load_weights`]; [`Error::Memory`](crate::Error::Memory) and [`Error::Threads`](crate::Error::Threads) when the device
    /// has no room; [`Error::Setting`](crate::Error::Setting) for a model without states or over graphs.
    pub fn open(device: &Device, model: Model, weights: &Path, form: Form) -> Result<Self> {
        model.config().check_carried_state()?;
        let mut parameters = TensorSet::zeros(&device.scope("model/parameters"), model.layout())?;
        load_weights(weights, &mut parameters)?;
        let compute = Compute { threads: 1, batch_size: 1, form };
        let mut engine = Engine::new(device, &model, compute, Purpose::Prediction)?;
        engine.load(&model, &parameters);
        let scope = device.scope("carried");
        let state = |_| Ok(Buffer::zeros(&scope, state_len(&model))?);
        Ok(Follower {
            states: (0..model.shape().timeframes.len()).map(state).collect::<Result<_>>()?,
            joined: Buffer::zeros(&scope, model.shape().timeframes.len() * model.config().hidden)?,
            model,
            parameters,
            engine,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sets the states of all timeframes to zero: a segment begins.
    pub fn restart(&mut self) {
        self.states.iter_mut().for_each(|state| state.as_mut_slice().fill(0.0));
    }

    /// Takes the next `bars` `[n, F]` of timeframe `timeframe`.
    ///
    /// # Panics
    /// If there is no such timeframe or the numbers are not whole bars.
    pub fn push(&mut self, timeframe: usize, bars: &[f32]) {
        let shape = &self.model.shape().timeframes[timeframe];
        assert!(bars.len().is_multiple_of(shape.features), "bars of {} features", shape.features);
        let state = self.states[timeframe].as_mut_slice();
        for bars in bars.chunks(shape.steps * shape.features) {
            self.engine.advance((&self.model, &self.parameters), (timeframe, bars), state);
        }
    }

    /// The outputs `[K]` of the model from the states as they are.
    pub fn predict(&mut self) -> Vec<f32> {
        let hidden = self.model.config().hidden;
        for (part, state) in self.joined.as_mut_slice().chunks_exact_mut(hidden).zip(&self.states) {
            part.copy_from_slice(top_hidden(state.as_slice(), hidden));
        }
        let mut outputs = vec![0.0; self.model.shape().outputs];
        self.model.decoder().plain_head().forward(&self.parameters, self.joined.as_slice(), &mut outputs);
        outputs
    }

    /// The state of timeframe `timeframe`, `[layers, 2, H]`: the hidden and then the cell state of each layer.
    ///
    /// # Panics
    /// If there is no such timeframe.
    pub fn state(&self, timeframe: usize) -> &[f32] {
        self.states[timeframe].as_slice()
    }

    /// Goes on from `state`, as [`Follower::state`] gave it.
    ///
    /// # Panics
    /// If there is no such timeframe or the state is of another size.
    pub fn set_state(&mut self, timeframe: usize, state: &[f32]) {
        self.states[timeframe].as_mut_slice().copy_from_slice(state);
    }
}
