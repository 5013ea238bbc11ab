//! Layer normalisation of rows, as torch.nn.LayerNorm: y = γ · x̂ + β with x̂ = (x - mean) /
//! √(variance + 1e-5), the variance being the mean square of what is left of x after the mean.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::norm::{EPSILON, LayerNorm};
use megabatch_nn::model::recurrent::RecurrentLayers;

/// Saved forward pass of rows [N, width].
#[derive(Debug)]
pub(crate) struct Normalised {
    unit: Buffer<f32>,  // x̂ [N, width]
    scale: Buffer<f32>, // 1 / √(variance + ε) [N]
}

impl Normalised {
    /// Memory for up to `rows` rows, booked on `scope`.
    pub(crate) fn new(scope: &Scope, width: usize, rows: usize) -> Result<Self> {
        let [unit, scale] = Normalised::lens(width, rows);
        Ok(Normalised { unit: Buffer::zeros(scope, unit)?, scale: Buffer::zeros(scope, scale)? })
    }

    /// Length of each buffer in numbers, in the order of the fields.
    pub(crate) fn lens(width: usize, rows: usize) -> [usize; 2] {
        [rows * width, rows]
    }
}

/// Replaces the rows [N, width] by themselves after the norm.
pub(crate) fn forward(norm: &LayerNorm, parameters: &TensorSet, rows: &mut [f32], kept: &mut Normalised) {
    let (weight, bias) = (parameters.slot(norm.weight), parameters.slot(norm.bias));
    let kept = kept.unit.as_mut_slice().chunks_exact_mut(norm.width).zip(kept.scale.as_mut_slice());
    for (row, (unit, scale)) in rows.chunks_exact_mut(norm.width).zip(kept) {
        let [mean, inverse] = moments(row);
        *scale = inverse;
        for (((x, unit), &weight), &bias) in row.iter_mut().zip(unit).zip(weight).zip(bias) {
            *unit = (*x - mean) * *scale;
            *x = *unit * weight + bias;
        }
    }
}

/// Replaces one row [width] by itself after the norm.
pub(crate) fn normalise_row(norm: &LayerNorm, parameters: &TensorSet, row: &mut [f32]) {
    let [mean, scale] = moments(row);
    let unit_parameters = parameters.slot(norm.weight).iter().zip(parameters.slot(norm.bias));
    row.iter_mut().zip(unit_parameters).for_each(|(x, (&weight, &bias))| *x = (*x - mean) * scale * weight + bias);
}

/// Adds to the gradients of γ and β.
pub(crate) fn add_gradients(norm: &LayerNorm, weight: &[f32], bias: &[f32], gradients: &mut TensorSet) {
    for (slot, terms) in [(norm.weight, weight), (norm.bias, bias)] {
        gradients.slot_mut(slot).iter_mut().zip(terms).for_each(|(sum, &term)| *sum += term);
    }
}

/// Replaces the gradient of the normalised rows [N, width] by that of the rows; adds the
/// parameters' gradients to `gradients`.
pub(crate) fn backward(
    norm: &LayerNorm,
    parameters: &TensorSet,
    kept: &Normalised,
    d: &mut [f32],
    gradients: &mut TensorSet,
) {
    let (weight, share) = (parameters.slot(norm.weight), (1.0 / norm.width as f64) as f32);
    let kept = kept.unit.as_slice().chunks_exact(norm.width).zip(kept.scale.as_slice());
    for (d, (unit, &scale)) in d.chunks_exact_mut(norm.width).zip(kept) {
        let terms = || d.iter().zip(unit);
        let sums = gradients.slot_mut(norm.weight).iter_mut().zip(terms());
        sums.for_each(|(sum, (&d, &unit))| *sum += d * unit);
        gradients.slot_mut(norm.bias).iter_mut().zip(&*d).for_each(|(sum, &term)| *sum += term);

        d.iter_mut().zip(weight).for_each(|(d, &weight)| *d *= weight);
        let mean = d.iter().fold(0.0, |sum, &d| sum + d) * share;
        let along = d.iter().zip(unit).fold(0.0, |sum, (&d, &unit)| sum + d * unit) * share;
        d.iter_mut().zip(unit).for_each(|(d, &unit)| *d = (*d - mean - unit * along) * scale);
    }
}

/// Replaces a hidden state [H] of the top layer by what is read of it.
pub(crate) fn read_top(recurrent: &RecurrentLayers, parameters: &TensorSet, state: &mut [f32]) {
    if let Some(norm) = recurrent.layers.last().and_then(|layer| layer.norm) {
        normalise_row(&norm, parameters, state);
    }
}

/// The mean of a row, and one over its standard deviation.
fn moments(row: &[f32]) -> [f32; 2] {
    let share = (1.0 / row.len() as f64) as f32;
    let mean = row.iter().fold(0.0, |sum, &x| sum + x) * share;
    let variance = row.iter().fold(0.0, |sum, &x| sum + (x - mean) * (x - mean)) * share;
    [mean, 1.0 / (variance + EPSILON as f32).sqrt()]
}
