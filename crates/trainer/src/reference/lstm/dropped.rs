#![forbid(unsafe_code)]

use megabatch_gpu_core::{Buffer, Scope};

use super::Sizes;
use crate::error::Result;
use crate::model::dropout::Mask;
use crate::model::scalar::Scalar;

/// The outputs of a layer as the layer above sees them under dropout.
#[derive(Debug)]
pub(super) struct Dropped<S: Scalar> {
    /// 0 or 1 / (1 - rate).
    factors: Buffer<S>, // [T, B, H]
    outputs: Buffer<S>, // [T, B, H]
    /// Numbers of the windows loaded now.
    len: usize,
}

impl<S: Scalar> Dropped<S> {
    pub(super) fn new(scope: &Scope, Sizes { steps, hidden, .. }: Sizes, capacity: usize) -> Result<Self> {
        let len = steps * capacity * hidden;
        Ok(Dropped { factors: Buffer::zeros(scope, len)?, outputs: Buffer::zeros(scope, len)?, len: 0 })
    }

    /// Draws the factors for the windows that end at `ends`.
    pub(super) fn draw(&mut self, Sizes { steps, hidden, .. }: Sizes, mask: Mask, ends: &[usize]) {
        self.len = steps * ends.len() * hidden;
        let rows = self.factors.as_mut_slice()[..self.len].chunks_exact_mut(hidden);
        for (row, factors) in rows.enumerate() {
            let (t, end) = (row / ends.len(), ends[row % ends.len()]);
            for (unit, factor) in factors.iter_mut().enumerate() {
                *factor = S::from_f64(mask.factor(end, t, unit));
            }
        }
    }

    /// Takes a layer's outputs, [T, B, H].
    pub(super) fn set(&mut self, outputs: &[S]) {
        let factors = self.factors.as_slice()[..self.len].iter();
        let dropped = self.outputs.as_mut_slice()[..self.len].iter_mut();
        for ((dropped, &output), &factor) in dropped.zip(outputs).zip(factors) {
            *dropped = output * factor;
        }
    }

    /// Input of the layer above, [T, B, H].
    pub(super) fn outputs(&self) -> &[S] {
        &self.outputs.as_slice()[..self.len]
    }

    /// Turns the gradient of what the layer above sees into that of the outputs.
    pub(super) fn turn_gradient(&self, gradient: &mut [S]) {
        gradient
            .iter_mut()
            .zip(&self.factors.as_slice()[..self.len])
            .for_each(|(gradient, &factor)| *gradient *= factor);
    }
}
