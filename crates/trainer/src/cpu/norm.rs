#![forbid(unsafe_code)]

//! Layer normalisation of rows, as torch.nn.LayerNorm: y = γ · x̂ + β with x̂ = (x - mean) /
//! √(variance + 1e-5), the variance being the mean square of what is left of x after the mean.

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::Result;
use crate::model::scalar::Scalar;
use crate::model::tensor::{Layout, Slot, TensorSet};

/// Epsilon, which keeps a row without variance from a division by zero.
pub(crate) const EPSILON: f64 = 1e-5;

/// Offsets of the parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNorm {
    width: usize,
    weight: Slot, // γ [width]
    bias: Slot,   // β [width]
}

/// Saved forward pass of rows [N, width].
#[derive(Debug)]
pub(crate) struct Normalised<S: Scalar> {
    unit: Buffer<S>,  // x̂ [N, width]
    scale: Buffer<S>, // 1 / √(variance + ε) [N]
}

impl<S: Scalar> Normalised<S> {
    /// Memory for up to `rows` rows, booked on `scope`.
    pub(crate) fn new(scope: &Scope, width: usize, rows: usize) -> Result<Self> {
        Ok(Normalised { unit: Buffer::zeros(scope, rows * width)?, scale: Buffer::zeros(scope, rows)? })
    }

    /// Numbers in it.
    pub(crate) fn len(width: usize, rows: usize) -> usize {
        rows * (width + 1)
    }
}

impl LayerNorm {
    /// Appends `<prefix>.weight` and `<prefix>.bias` to `layout`.
    pub(crate) fn new(width: usize, prefix: &str, layout: &mut Layout) -> Self {
        let mut slot = |name: &str| layout.push(format!("{prefix}.{name}"), &[width]);
        LayerNorm { width, weight: slot("weight"), bias: slot("bias") }
    }

    /// Replaces the rows [N, width] by themselves after the norm.
    pub(crate) fn forward<S: Scalar>(&self, parameters: &TensorSet<S>, rows: &mut [S], kept: &mut Normalised<S>) {
        let (weight, bias) = (parameters.slot(self.weight), parameters.slot(self.bias));
        let kept = kept.unit.as_mut_slice().chunks_exact_mut(self.width).zip(kept.scale.as_mut_slice());
        for (row, (unit, scale)) in rows.chunks_exact_mut(self.width).zip(kept) {
            let [mean, inverse] = moments(row);
            *scale = inverse;
            for (((x, unit), &weight), &bias) in row.iter_mut().zip(unit).zip(weight).zip(bias) {
                *unit = (*x - mean) * *scale;
                *x = *unit * weight + bias;
            }
        }
    }

    /// Replaces one row [width] by itself after the norm.
    pub(crate) fn row<S: Scalar>(&self, parameters: &TensorSet<S>, row: &mut [S]) {
        let [mean, scale] = moments(row);
        let of_units = parameters.slot(self.weight).iter().zip(parameters.slot(self.bias));
        row.iter_mut().zip(of_units).for_each(|(x, (&weight, &bias))| *x = (*x - mean) * scale * weight + bias);
    }

    /// Offsets of γ and β.
    pub(crate) fn slots(&self) -> [Slot; 2] {
        [self.weight, self.bias]
    }

    /// γ and β, [width] each.
    pub(crate) fn parameters<'a, S: Scalar>(&self, parameters: &'a TensorSet<S>) -> [&'a [S]; 2] {
        self.slots().map(|slot| parameters.slot(slot))
    }

    /// Adds to the gradients of γ and β.
    pub(crate) fn add_gradients<S: Scalar>(&self, weight: &[S], bias: &[S], gradients: &mut TensorSet<S>) {
        for (slot, terms) in [(self.weight, weight), (self.bias, bias)] {
            gradients.slot_mut(slot).iter_mut().zip(terms).for_each(|(sum, &term)| *sum += term);
        }
    }

    /// Replaces the gradient of the normalised rows [N, width] by that of the rows; adds the
    /// parameters' gradients to `gradients`.
    pub(crate) fn backward<S: Scalar>(
        &self,
        parameters: &TensorSet<S>,
        kept: &Normalised<S>,
        d: &mut [S],
        gradients: &mut TensorSet<S>,
    ) {
        let (weight, share) = (parameters.slot(self.weight), S::from_f64(1.0 / self.width as f64));
        let kept = kept.unit.as_slice().chunks_exact(self.width).zip(kept.scale.as_slice());
        for (d, (unit, &scale)) in d.chunks_exact_mut(self.width).zip(kept) {
            let terms = || d.iter().zip(unit);
            let sums = gradients.slot_mut(self.weight).iter_mut().zip(terms());
            sums.for_each(|(sum, (&d, &unit))| *sum += d * unit);
            gradients.slot_mut(self.bias).iter_mut().zip(&*d).for_each(|(sum, &term)| *sum += term);

            d.iter_mut().zip(weight).for_each(|(d, &weight)| *d *= weight);
            let mean = d.iter().fold(S::ZERO, |sum, &d| sum + d) * share;
            let along = d.iter().zip(unit).fold(S::ZERO, |sum, (&d, &unit)| sum + d * unit) * share;
            d.iter_mut().zip(unit).for_each(|(d, &unit)| *d = (*d - mean - unit * along) * scale);
        }
    }
}

/// The mean of a row, and one over its standard deviation.
fn moments<S: Scalar>(row: &[S]) -> [S; 2] {
    let share = S::from_f64(1.0 / row.len() as f64);
    let mean = row.iter().fold(S::ZERO, |sum, &x| sum + x) * share;
    let variance = row.iter().fold(S::ZERO, |sum, &x| sum + (x - mean) * (x - mean)) * share;
    [mean, S::ONE / (variance + S::from_f64(EPSILON)).sqrt()]
}
