#![forbid(unsafe_code)]

use megabatch_gpu_core::{Buffer, Scope};

use super::Sizes;
use crate::cpu::norm::{LayerNorm, Normalised};
use crate::error::Result;
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;

/// The outputs of a layer after their norm: what the layer above, or whatever reads the top one,
/// sees. The recurrence goes on from the states before it.
#[derive(Debug)]
pub(super) struct Normed<S: Scalar> {
    outputs: Buffer<S>, // [T, B, H]
    kept: Normalised<S>,
    /// Numbers of the windows computed now.
    len: usize,
}

impl<S: Scalar> Normed<S> {
    pub(super) fn new(scope: &Scope, Sizes { steps, hidden, .. }: Sizes, capacity: usize) -> Result<Self> {
        let rows = steps * capacity;
        Ok(Normed {
            outputs: Buffer::zeros(scope, rows * hidden)?,
            kept: Normalised::new(scope, hidden, rows)?,
            len: 0,
        })
    }

    /// Numbers in it.
    pub(super) fn len(Sizes { steps, hidden, .. }: Sizes, capacity: usize) -> usize {
        steps * capacity * hidden + Normalised::<S>::len(hidden, steps * capacity)
    }

    /// Takes a layer's states, [T, B, H].
    pub(super) fn set(&mut self, norm: LayerNorm, parameters: &TensorSet<S>, states: &[S]) {
        self.len = states.len();
        let outputs = &mut self.outputs.as_mut_slice()[..self.len];
        outputs.copy_from_slice(states);
        norm.forward(parameters, outputs, &mut self.kept);
    }

    /// Normalised outputs, [T, B, H].
    pub(super) fn outputs(&self) -> &[S] {
        &self.outputs.as_slice()[..self.len]
    }

    /// Turns the gradient of the outputs into that of the states; adds the parameters' gradients to
    /// `gradients`.
    pub(super) fn turn_gradient(
        &self,
        norm: LayerNorm,
        parameters: &TensorSet<S>,
        d: &mut [S],
        gradients: &mut TensorSet<S>,
    ) {
        norm.backward(parameters, &self.kept, &mut d[..self.len], gradients);
    }
}
