use std::path::Path;

use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Device};
use megabatch_nn::Result;
use megabatch_nn::model::{Model, TensorSet, Timeframe, load_weights};

use crate::compute::{Compute, Purpose};
use crate::decoder::Decoding;
use crate::norm::read_top;
use crate::pooling::WindowPooling;
use crate::shard::Weights;
use crate::stateful_inference::{ONE_SAMPLE, top_hidden};
use crate::step::Engine;

/// A trained model that follows one instrument bar by bar: it holds the states of all its layers,
/// and a bar moves those of its timeframe on by one step.
///
/// It gives, bit for bit, the predictions that a predictor with carried state
/// gives in the same precision for samples whose windows end at the bars pushed last. Give the bars
/// of each timeframe in order, only once they have closed, and
/// [`restart`](StreamingPredictor::restart) all timeframes where a segment begins. A model that
/// pools by attention reads the states of bars before the segment's first one as zero, until T bars
/// have been pushed.
#[derive(Debug)]
pub struct StreamingPredictor {
    model: Model,
    parameters: TensorSet,
    engine: Engine,
    states: Vec<Buffer<f32>>, // [layers, S, H] each; for pooling by attention, [T, H] behind it
    poolings: Vec<WindowPooling>,
    /// From the encoding to the outputs.
    decoding: Decoding,
}

impl StreamingPredictor {
    /// The model with the weights of a safetensors file, at the start of a segment, in single
    /// precision.
    ///
    /// # Errors
    /// As [`load_weights`]; [`Error::Memory`](megabatch_nn::Error::Memory) and
    /// [`Error::Threads`](megabatch_nn::Error::Threads) when the device has no room;
    /// [`Error::Setting`](megabatch_nn::Error::Setting) for a model without states or over graphs.
    pub fn open(device: &Device, model: Model, weights: &Path) -> Result<Self> {
        Self::open_in(Precision::Fp32, device, model, weights)
    }

    /// [`StreamingPredictor::open`] in `precision`.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_in(precision: Precision, device: &Device, model: Model, weights: &Path) -> Result<Self> {
        model.config().check_carried_state()?;
        let mut parameters = TensorSet::zeros(&device.scope("model/parameters"), model.layout())?;
        load_weights(weights, &mut parameters)?;
        let compute = Compute { threads: 1, batch_size: 1 };
        let mut engine = Engine::new(device, &model, compute, Purpose::Prediction, precision)?;
        engine.load(&model, &parameters);
        let scope = device.scope("carried");
        let timeframes = &model.shape().timeframes;
        let state = |timeframe| Ok(Buffer::zeros(&scope, followed_len(&model, timeframe))?);
        let pooling = |(pooling, timeframe): (_, &Timeframe)| WindowPooling::new(&scope, pooling, timeframe.steps, 1);
        Ok(StreamingPredictor {
            states: timeframes.iter().map(state).collect::<Result<_>>()?,
            poolings: model.poolings().iter().zip(timeframes).map(pooling).collect::<Result<_>>()?,
            decoding: Decoding::new(&scope, model.decoder(), ONE_SAMPLE, Purpose::Prediction)?,
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
        let hidden = self.model.config().hidden;
        let (state, recent) = self.states[timeframe].as_mut_slice().split_at_mut(self.model.config().state_len());
        for bars in bars.chunks(shape.steps * shape.features) {
            self.engine.advance(timeframe, bars, state);
            if recent.is_empty() {
                continue;
            }
            let (steps, mut after) = (bars.len() / shape.features, vec![0.0; state.len()]);
            recent.copy_within(steps * hidden.., 0);
            let new = recent.len() - steps * hidden;
            for (t, row) in recent[new..].chunks_exact_mut(hidden).enumerate() {
                self.engine.read_state(timeframe, t, &mut after);
                row.copy_from_slice(top_hidden(&after, self.model.config()));
                read_top(&self.model.recurrent_layers()[timeframe], &self.parameters, row);
            }
        }
    }

    /// The outputs `[K, M]` of the model from the states as they are.
    pub fn predict(&mut self) -> Vec<f32> {
        let hidden = self.model.config().hidden;
        let Weights { parameters, packed, .. } = self.engine.weights(&self.model, &self.parameters);
        let parts = self.decoding.encodings_mut(1).chunks_exact_mut(hidden).zip(&self.states).enumerate();
        for (k, (part, state)) in parts {
            let (state, recent) = state.as_slice().split_at(self.model.config().state_len());
            match self.poolings.get_mut(k) {
                Some(memory) => {
                    let pooling = &self.model.poolings()[k];
                    part.copy_from_slice(memory.forward(packed.arithmetic().bf16_isa(), pooling, parameters, recent));
                }
                None => {
                    part.copy_from_slice(top_hidden(state, self.model.config()));
                    read_top(&self.model.recurrent_layers()[k], parameters, part);
                }
            }
        }
        self.decoding.forward_in(packed.arithmetic(), self.model.decoder(), parameters, None, None);
        self.decoding.outputs().to_vec()
    }

    /// The state of timeframe `timeframe`, `[layers, S, H]`: the hidden and then, if the cell has
    /// one, the cell state of each layer. For a model that pools by attention, the top layer's
    /// outputs after the last T bars follow, `[T, H]`, the latest last; of bars before the
    /// segment's first one they are zero.
    ///
    /// # Panics
    /// If there is no such timeframe.
    pub fn state(&self, timeframe: usize) -> &[f32] {
        self.states[timeframe].as_slice()
    }
}

/// Numbers in what a follower keeps of one timeframe.
fn followed_len(model: &Model, timeframe: &Timeframe) -> usize {
    let recent = if model.poolings().is_empty() { 0 } else { timeframe.steps * model.config().hidden };
    model.config().state_len() + recent
}
