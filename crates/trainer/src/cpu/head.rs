#![forbid(unsafe_code)]

//! The linear head: y [B, K] = joined [B, D] · Wᵀ + b, with W [K, D].

use crate::model::scalar::Scalar;
use crate::model::tensor::{Layout, Slot, TensorSet};
use crate::reference::matmul::{Matrix, Output, multiply};

/// Offsets of the head's parameters.
#[derive(Debug)]
pub(crate) struct Head {
    width: usize,
    outputs: usize,
    weight: Slot, // [K, D]
    bias: Slot,   // [K]
}

impl Head {
    /// Appends `head.weight` and `head.bias` to `layout`, for D = `width` inputs and K = `outputs`.
    pub(crate) fn new(width: usize, outputs: usize, layout: &mut Layout) -> Self {
        let weight = layout.push("head.weight".to_owned(), &[outputs, width]);
        Head { width, outputs, weight, bias: layout.push("head.bias".to_owned(), &[outputs]) }
    }

    /// Offsets of the weight [K, D] and the bias [K].
    pub(crate) fn slots(&self) -> [Slot; 2] {
        [self.weight, self.bias]
    }

    pub(crate) fn forward<S: Scalar>(&self, parameters: &TensorSet<S>, joined: &[S], outputs: &mut [S]) {
        let bias = parameters.slot(self.bias);
        outputs.chunks_exact_mut(self.outputs).for_each(|row| row.copy_from_slice(bias));
        let weight = Matrix::new(parameters.slot(self.weight), self.outputs, self.width).transposed();
        multiply(self.joined(joined), weight, Output::Add, outputs);
    }

    /// Adds the parameters' gradients and writes that of `joined` to `d_joined`, both [B, D].
    pub(crate) fn backward<S: Scalar>(
        &self,
        parameters: &TensorSet<S>,
        joined: &[S],
        d_outputs: &[S],
        d_joined: &mut [S],
        gradients: &mut TensorSet<S>,
    ) {
        let rows = d_outputs.len() / self.outputs;
        let d_y = Matrix::new(d_outputs, rows, self.outputs);
        multiply(d_y.transposed(), self.joined(joined), Output::Add, gradients.slot_mut(self.weight));
        for row in d_outputs.chunks_exact(self.outputs) {
            gradients.slot_mut(self.bias).iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
        }
        let weight = Matrix::new(parameters.slot(self.weight), self.outputs, self.width);
        multiply(d_y, weight, Output::Overwrite, d_joined);
    }

    fn joined<'a, S>(&self, joined: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(joined, joined.len() / self.width, self.width)
    }
}
