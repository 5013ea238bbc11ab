//! Layer normalisation on the CPU.

use megabatch_nn::model::norm::EPSILON;

use super::{Normed, ROWS, WARPS, share};
use crate::ops::lanes;
use crate::ops::operand::Operand;

/// Normalises rows of as many numbers as there are weights.
pub(super) fn layer_norm<From: Operand, To: Operand>(
    x: &[From],
    weight: &[f32],
    bias: &[f32],
    to: &mut [To],
    moments: &mut [f32],
) {
    let width = weight.len();
    let kept = moments.as_chunks_mut().0.iter_mut();
    for ((x, to), kept) in x.chunks_exact(width).zip(to.chunks_exact_mut(width)).zip(kept) {
        *kept = normalize(x, weight, bias, to);
    }
}

/// Mean of a row and one over its standard deviation.
fn normalize<From: Operand, To: Operand>(x: &[From], weight: &[f32], bias: &[f32], to: &mut [To]) -> [f32; 2] {
    let (width, share) = (x.len(), share(x.len()));
    let mean = lanes::sum(width, |k| x[k].widen()) * share;
    let variance = lanes::sum(width, |k| (x[k].widen() - mean) * (x[k].widen() - mean)) * share;
    let scale = 1.0 / (variance + EPSILON as f32).sqrt();
    for (((x, to), weight), bias) in x.iter().zip(to).zip(weight).zip(bias) {
        *to = To::narrow((x.widen() - mean) * scale * weight + bias);
    }
    [mean, scale]
}

pub(super) fn layer_norm_backward<T: Operand>(
    normed: Normed<'_, T>,
    d: &mut [f32],
    gradients: &mut [f32],
    starts: [usize; 2],
) {
    let Normed { rows, width, .. } = normed;
    let (x, weight, moments) =
        (normed.x.elements(), normed.weight.elements(), normed.moments.as_slice().as_chunks::<2>().0);
    let unit = |row: usize, k: usize| (x[row * width + k].widen() - moments[row][0]) * moments[row][1];
    for column in 0..width {
        let terms: [&dyn Fn(usize) -> f32; 2] =
            [&|row| d[row * width + column] * unit(row, column), &|row| d[row * width + column]];
        for (term, start) in terms.into_iter().zip(starts) {
            for chunk in (0..rows).step_by(ROWS) {
                let lane =
                    |lane| (chunk + lane..rows.min(chunk + ROWS)).step_by(WARPS).fold(0.0, |sum, row| sum + term(row));
                gradients[start + column] += (1..WARPS).fold(lane(0), |sum, other| sum + lane(other));
            }
        }
    }
    for (row, d) in d.chunks_exact_mut(width.max(1)).enumerate() {
        let mean = lanes::sum(width, |k| d[k] * weight[k]) * share(width);
        let along = lanes::sum(width, |k| d[k] * weight[k] * unit(row, k)) * share(width);
        let rest = |k: usize| (d[k] * weight[k] - mean - unit(row, k) * along) * moments[row][1];
        let own: Vec<f32> = (0..width).map(rest).collect();
        d.copy_from_slice(&own);
    }
}
