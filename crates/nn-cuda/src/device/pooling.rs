//! Attention pooling on a device: from the top layer's outputs of all timeframes to a vector for
//! each window.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::Model;
use megabatch_nn::model::pooling::AttentionPooling;
use megabatch_nn::model::recurrent::RecurrentLayers;

use super::memory_estimate::MostRows;
use super::norm::Norms;
use super::outputs::Outputs;
use crate::ops::{
    Arithmetic, Operand, PoolMemory, PoolSizes, PoolSlots, PoolWeights, TensorSlice, ensure_capacity, pool,
    pool_backward,
};

#[derive(Debug)]
pub(super) struct DevicePooled {
    norms: Option<Norms>,
    /// The outputs after their norm, `[Σ T·B, H]`; empty without norms.
    normed: Buffer<f32>,
    timeframes: Vec<TimeframePool>,
    /// `[Σ B, H]`, and their gradients.
    pub(super) vectors: Buffer<f32>,
    pub(super) d_vectors: Buffer<f32>,
}

#[derive(Debug)]
struct TimeframePool {
    slots: PoolSlots,
    arithmetic: Arithmetic,
    memory: PoolMemory,
}

impl TimeframePool {
    fn weights<'a>(&self, parameters: &'a Buffer<f32>) -> PoolWeights<'a> {
        PoolWeights { parameters, slots: self.slots, arithmetic: self.arithmetic }
    }
}

impl DevicePooled {
    /// The pooling of a model with so many heads; memory on `scope` is taken when batches come.
    pub(super) fn new(scope: &Scope, model: &Model, heads: usize, arithmetic: Arithmetic) -> Result<Self> {
        let (hidden, layers) = (model.config().hidden, model.config().layers);
        let timeframe = |(pooling, lstm): (&AttentionPooling, &RecurrentLayers)| {
            let [steps, heads, hidden] = [lstm.sizes.steps, heads, hidden].map(|size| size as u32);
            Ok(TimeframePool {
                slots: PoolSlots::from(pooling.start(model.layout()), model.config().hidden),
                arithmetic,
                memory: PoolMemory::zeros(scope, PoolSizes { steps, windows: 0, heads, hidden })?,
            })
        };
        Ok(DevicePooled {
            norms: Norms::new(scope, model, layers - 1)?,
            normed: Buffer::zeros(scope, 0)?,
            timeframes: model.poolings().iter().zip(model.recurrent_layers()).map(timeframe).collect::<Result<_>>()?,
            vectors: Buffer::zeros(scope, 0)?,
            d_vectors: Buffer::zeros(scope, 0)?,
        })
    }

    /// Takes memory for so many windows of each timeframe, of so many rows of H = `hidden` units.
    pub(super) fn reserve(&mut self, windows: &[usize], rows: MostRows<'_>, hidden: usize) -> Result<()> {
        self.ensure_capacity(windows.iter().sum::<usize>() * hidden, rows.all.iter().sum::<usize>() * hidden)?;
        for (timeframe, &windows) in self.timeframes.iter_mut().zip(windows) {
            timeframe.memory.reserve(windows)?;
            timeframe.memory.reserve_scratch(windows)?;
        }
        self.norms.as_mut().map_or(Ok(()), |norms| norms.reserve(rows))
    }

    /// Ensures capacity for so many numbers of vectors and of outputs.
    fn ensure_capacity(&mut self, vectors: usize, outputs: usize) -> Result<()> {
        ensure_capacity(&mut self.vectors, vectors)?;
        ensure_capacity(&mut self.d_vectors, vectors)?;
        if self.norms.is_some() { ensure_capacity(&mut self.normed, outputs) } else { Ok(()) }
    }

    /// Pools `outputs` to [`DevicePooled::vectors`].
    pub(super) fn forward<T: Operand>(&mut self, outputs: Outputs<'_, T>, weights: &Buffer<f32>) -> Result<()> {
        let (list, hidden) = (outputs.list, outputs.list.hidden());
        self.ensure_capacity(list.windows() * hidden, list.rows() * hidden)?;
        for (k, timeframe) in self.timeframes.iter_mut().enumerate() {
            timeframe.memory.ensure_capacity(list.steps_and_windows(k)[1])?;
            let to = (&mut self.vectors, outputs.start_of_last(k));
            match &mut self.norms {
                None => pool(timeframe.weights(weights), outputs.all(k).part, &mut timeframe.memory, to.0, to.1)?,
                Some(norms) => {
                    let start = outputs.start_of_all(k);
                    norms.forward(k, weights, outputs.all(k), &mut self.normed, start)?;
                    pool(
                        timeframe.weights(weights),
                        TensorSlice { buffer: &self.normed, start },
                        &mut timeframe.memory,
                        to.0,
                        to.1,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Backward pass from [`DevicePooled::d_vectors`] after [`DevicePooled::forward`] of the same:
    /// writes the gradients of `outputs` to `d_outputs` `[Σ T·B, H]`, and adds those of the
    /// parameters.
    pub(super) fn backward<T: Operand>(
        &mut self,
        outputs: Outputs<'_, T>,
        d_outputs: &mut Buffer<f32>,
        weights: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        for (k, timeframe) in self.timeframes.iter_mut().enumerate() {
            let start = outputs.start_of_all(k);
            let d_vectors = TensorSlice { buffer: &self.d_vectors, start: outputs.start_of_last(k) };
            match &mut self.norms {
                None => {
                    let states = outputs.all(k).part;
                    pool_backward(
                        timeframe.weights(weights),
                        states,
                        d_vectors,
                        &mut timeframe.memory,
                        d_outputs,
                        start,
                        gradients,
                    )?;
                }
                Some(norms) => {
                    let states = TensorSlice { buffer: &self.normed, start };
                    pool_backward(
                        timeframe.weights(weights),
                        states,
                        d_vectors,
                        &mut timeframe.memory,
                        d_outputs,
                        start,
                        gradients,
                    )?;
                    norms.backward(k, weights, outputs.all(k), &mut *d_outputs, start, gradients)?;
                }
            }
        }
        Ok(())
    }
}
