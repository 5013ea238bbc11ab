#![forbid(unsafe_code)]

//! What is read of the top layer on a device: a vector for each window.

use megabatch_gpu_core::{Buffer, Scope};

use super::norm::Norms;
use super::outputs::Outputs;
use super::pooling::Pooled;
use crate::error::Result;
use crate::model::Model;
use crate::ops::{Arithmetic, Gradients, Operand, WindowReads, join_last, join_vectors, make_room, separate};
use crate::pooling::Pooling;

#[derive(Debug)]
pub(super) enum Top {
    /// The last states as they are.
    Last,
    /// The last states after their norm, `[Σ B, H]`.
    Normed { norms: Norms, vectors: Buffer<f32> },
    /// What attention makes of all of them.
    Pooled(Pooled),
}

impl Top {
    /// That of a model; memory on `scope` is taken when batches come.
    pub(super) fn new(scope: &Scope, model: &Model, arithmetic: Arithmetic) -> Result<Self> {
        if let Pooling::Attention { heads } = model.config().pooling {
            return Ok(Top::Pooled(Pooled::new(scope, (model, heads), arithmetic)?));
        }
        Ok(match Norms::new(scope, model, model.config().layers - 1)? {
            Some(norms) => Top::Normed { norms, vectors: Buffer::zeros(scope, 0)? },
            None => Top::Last,
        })
    }

    /// Bytes of what is read of windows: so many of each timeframe, of so many rows.
    pub(super) fn bytes(model: &Model, windows: &[usize], rows: &[usize]) -> usize {
        let vectors = windows.iter().sum::<usize>() * model.config().hidden * size_of::<f32>();
        match model.config().pooling {
            Pooling::Attention { heads } => 2 * vectors + Pooled::bytes(model, heads, (windows, rows)),
            Pooling::Last if model.config().layer_norm => vectors + Norms::bytes(model, windows),
            Pooling::Last => 0,
        }
    }

    /// Whether the outputs after every step get a gradient, and not the last ones alone.
    pub(super) fn reads_every_step(&self) -> bool {
        matches!(self, Top::Pooled(_))
    }

    /// Makes the vectors of the windows from the top layer's outputs.
    pub(super) fn forward<T: Operand>(&mut self, outputs: Outputs<'_, T>, weights: &Buffer<f32>) -> Result<()> {
        match self {
            Top::Last => Ok(()),
            Top::Normed { norms, vectors } => {
                make_room(vectors, outputs.list.windows() * outputs.list.hidden())?;
                outputs.timeframes().try_for_each(|k| {
                    norms.forward((k, weights), outputs.last(k), (&mut *vectors, outputs.start_of_last(k)))
                })
            }
            Top::Pooled(pooled) => pooled.forward(outputs, weights),
        }
    }

    /// Joins the vectors of each sample's windows, `[samples, N · H]`.
    pub(super) fn join<T: Operand, To: Operand>(
        &self,
        outputs: Outputs<'_, T>,
        reads: &WindowReads,
        joined: &mut Buffer<To>,
    ) -> Result<()> {
        match self {
            Top::Last => join_last(outputs.list, reads, outputs.hidden, joined),
            Top::Normed { vectors, .. } => join_vectors(reads, vectors, joined),
            Top::Pooled(pooled) => join_vectors(reads, &pooled.vectors, joined),
        }
    }

    /// Goes back from the gradients of what was joined to those of the outputs, in `back`: of the last ones, or where all of them are read in `d_outputs` `[Σ T·B, H]`. Adds those of
    /// the parameters.
    pub(super) fn backward<T: Operand>(
        &mut self,
        outputs: Outputs<'_, T>,
        (reads, d_joined): (&WindowReads, &Buffer<f32>),
        (back, d_outputs): (&mut Gradients<T>, Option<&mut Buffer<f32>>),
        (weights, gradients): (&Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<()> {
        match self {
            Top::Last => separate::<T>(reads, d_joined, &mut back.hidden),
            Top::Normed { norms, .. } => {
                separate::<T>(reads, d_joined, &mut back.hidden)?;
                outputs.timeframes().try_for_each(|k| {
                    let d = (&mut back.hidden, outputs.start_of_last(k));
                    norms.backward((k, weights), outputs.last(k), d, gradients)
                })
            }
            Top::Pooled(pooled) => {
                back.hidden.set_zero()?;
                separate::<T>(reads, d_joined, &mut pooled.d_vectors)?;
                let d_outputs = d_outputs.expect("made for outputs that are all read");
                pooled.backward(outputs, d_outputs, (weights, gradients))
            }
        }
    }
}
