//! The norms of a layer's outputs on a device.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::Model;

use super::memory_estimate::MostRows;
use super::outputs::OutputRows;
use crate::ops::{
    NormWeights, Normed, Operand, Scratch, TensorSlice, ensure_capacity, layer_norm, layer_norm_backward,
    norm_partials_len,
};

/// The norms of one layer, one a timeframe.
#[derive(Debug)]
pub(super) struct Norms {
    hidden: usize,
    timeframes: Vec<Norm>,
    scratch: Scratch,
}

#[derive(Debug)]
struct Norm {
    /// Starts of γ and β among all parameters.
    starts: [usize; 2],
    /// Moments of the rows normalised last, `[rows, 2]`: the mean of each, and one over its
    /// standard deviation.
    moments: Buffer<f32>,
}

impl Norms {
    /// Norms of layer `l` of a model, if it has norms; memory on `scope` is taken when batches
    /// come.
    pub(super) fn new(scope: &Scope, model: &Model, l: usize) -> Result<Option<Self>> {
        if !model.config().layer_norm {
            return Ok(None);
        }
        let norm = |slots: [_; 2]| {
            let starts = slots.map(|slot| model.layout().range(slot).start);
            Ok(Norm { starts, moments: Buffer::zeros(scope, 0)? })
        };
        let slots = model.recurrent_layers().iter().filter_map(|lstm| lstm.layers[l].norm).map(|norm| norm.slots());
        let timeframes = slots.map(norm).collect::<Result<_>>()?;
        Ok(Some(Norms { hidden: model.config().hidden, timeframes, scratch: Scratch::empty(scope)? }))
    }

    /// Takes memory for so many rows of each timeframe, where there is not as much.
    pub(super) fn reserve(&mut self, rows: MostRows<'_>) -> Result<()> {
        for (norm, (&all, &learnt)) in self.timeframes.iter_mut().zip(rows.all.iter().zip(rows.learnt)) {
            norm.ensure_capacity(all)?;
            self.scratch.reserve::<f32>(norm_partials_len(learnt, self.hidden))?;
        }
        Ok(())
    }

    /// Writes outputs of timeframe `k` after their norm to `to`, from its start on.
    pub(super) fn forward<From: Operand, To: Operand>(
        &mut self,
        k: usize,
        weights: &Buffer<f32>,
        rows: OutputRows<'_, From>,
        to: &mut Buffer<To>,
        to_start: usize,
    ) -> Result<()> {
        self.timeframes[k].ensure_capacity(rows.rows)?;
        let Norm { starts, moments } = &mut self.timeframes[k];
        let [weight, bias] = starts.map(|start| TensorSlice { buffer: weights, start });
        layer_norm(rows.part, NormWeights { weight, bias }, rows.rows, self.hidden, to, to_start, moments)
    }

    /// Replaces the gradients `d`, from element `start` on, of what [`Norms::forward`] made of the
    /// same outputs by those of the outputs; adds those of γ and β.
    pub(super) fn backward<From: Operand>(
        &mut self,
        k: usize,
        weights: &Buffer<f32>,
        rows: OutputRows<'_, From>,
        d: &mut Buffer<f32>,
        start: usize,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let Norm { starts, moments } = &self.timeframes[k];
        let weight = TensorSlice { buffer: weights, start: starts[0] };
        let normed = Normed { rows: rows.rows, width: self.hidden, x: rows.part, moments, weight };
        layer_norm_backward(normed, d, start, gradients, *starts, &mut self.scratch)
    }
}

impl Norm {
    fn ensure_capacity(&mut self, rows: usize) -> Result<()> {
        ensure_capacity(&mut self.moments, 2 * rows)
    }
}
