//! Layer normalisation of panel-major rows. What the forward pass knew of a row is computed anew in
//! the backward pass, from the states, which are kept anyhow.

use megabatch_nn::model::norm::EPSILON;

use super::Dimensions;
use crate::kernel::{PANEL, PanelStride, View, ViewMut};

/// Replaces `rows` rows of H = `hidden` units by themselves after the norm with these γ and β,
/// [2][unit panels][16].
pub(super) fn normalise(hidden: usize, rows: usize, norm: &[f32], matrix: ViewMut<'_>) {
    let ViewMut(values, at) = matrix;
    let (weight, bias) = norm.split_at(norm.len() / 2);
    for row in 0..rows {
        let at = at.row(row);
        let [mean, scale] = moments(hidden, values, at);
        for (n, lanes) in panels(hidden) {
            let parameters = weight[n * PANEL..].iter().zip(&bias[n * PANEL..]);
            let values = values[at.panel(n).start..][..lanes].iter_mut();
            values.zip(parameters).for_each(|(x, (weight, bias))| *x = (*x - mean) * scale * weight + bias);
        }
    }
}

/// Turns the gradients of normalised rows into those of the rows `values`; adds those of γ and β to
/// `sums`, [2][unit panels][16].
pub(super) fn normalise_backward(
    hidden: usize,
    rows: usize,
    norm: &[f32],
    matrix: View<'_>,
    gradients: ViewMut<'_>,
    sums: &mut [f32],
) {
    let (View(values, at), ViewMut(d, d_at)) = (matrix, gradients);
    let (d_weight, d_bias) = sums.split_at_mut(norm.len() / 2);
    for row in 0..rows {
        let (at, d_at) = (at.row(row), d_at.row(row));
        let [mean, scale] = moments(hidden, values, at);
        let (mut sum, mut along) = (0.0, 0.0);
        for (n, lanes) in panels(hidden) {
            let own = n * PANEL..n * PANEL + lanes;
            let terms = values[at.panel(n).start..][..lanes].iter().zip(&mut d[d_at.panel(n).start..][..lanes]);
            let sums = d_weight[own.clone()].iter_mut().zip(&mut d_bias[own.clone()]).zip(&norm[own]);
            for ((x, d), ((d_weight, d_bias), weight)) in terms.zip(sums) {
                let unit = (x - mean) * scale;
                *d_weight += *d * unit;
                *d_bias += *d;
                *d *= weight;
                sum += *d;
                along += *d * unit;
            }
        }
        let share = 1.0 / hidden as f32;
        for (n, lanes) in panels(hidden) {
            let values = &values[at.panel(n).start..][..lanes];
            let d = d[d_at.panel(n).start..][..lanes].iter_mut().zip(values);
            d.for_each(|(d, x)| *d = (*d - sum * share - (x - mean) * scale * along * share) * scale);
        }
    }
}

/// The mean of a row, and one over its standard deviation.
fn moments(hidden: usize, values: &[f32], at: PanelStride) -> [f32; 2] {
    let parts = || panels(hidden).map(|(n, lanes)| &values[at.panel(n).start..][..lanes]);
    let share = 1.0 / hidden as f32;
    let mean = parts().map(|part| part.iter().sum::<f32>()).sum::<f32>() * share;
    let square = |part: &[f32]| part.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
    let variance = parts().map(square).sum::<f32>() * share;
    [mean, 1.0 / (variance + EPSILON as f32).sqrt()]
}

/// The panels of H units, and how many there are in each.
fn panels(hidden: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..hidden.div_ceil(PANEL)).map(move |n| (n, PANEL.min(hidden - n * PANEL)))
}

/// Length of γ and β of one layer; 0 without a norm.
pub(super) fn norm_len(dims: Dimensions) -> usize {
    if dims.sizes.norm { 2 * dims.unit_panels() * PANEL } else { 0 }
}
