//! Losses of samples on the CPU.

use megabatch_gpu_core::Buffer;
use megabatch_nn::loss::Group;

use super::{LossScaling, LossTable, Predictions, Terms};
use crate::ops::operand::Operand;

/// The sum of all terms, and their number.
pub(super) fn loss<T: Operand>(
    table: &LossTable,
    predictions: Predictions<'_>,
    LossScaling { terms, scale }: LossScaling<'_>,
    d_outputs: &mut [T],
) -> [f64; 2] {
    let Terms { count, factors } = terms.as_slice()[0];
    let (scale, mut slopes) = (scale.as_slice()[0], vec![0.0f32; table.outputs]);
    let (mut sum, mut terms) = (0.0, 0);
    let outputs =
        predictions.outputs.as_slice().chunks_exact(table.outputs).zip(d_outputs.chunks_exact_mut(table.outputs));
    let rows = outputs.zip(predictions.targets.as_slice().chunks_exact(table.targets)).take(predictions.rows);
    for (row, ((y, d), targets)) in rows.enumerate() {
        let weight = predictions.weights.map_or(1.0, |weights| weights.as_slice()[row]);
        for (Group { targets: own, outputs: places, loss, .. }, factor) in table.groups.iter().zip(factors) {
            let (y, targets) = (&y[places.clone()], &targets[own.clone()]);
            loss.gradient(y, targets, count as usize, &mut slopes[places.clone()]);
            slopes[places.clone()].iter_mut().for_each(|slope| *slope = *slope * factor as f32 * weight);
            sum += factor * f64::from(weight) * loss.sum(y, targets);
            terms += loss.terms(targets);
        }
        d.iter_mut().zip(&slopes).for_each(|(d, slope)| *d = T::narrow(slope * scale));
    }
    [sum, terms as f64]
}

/// Adds a sum and its number of terms to `totals`.
pub(in crate::ops) fn add_to(totals: &mut Buffer<f64>, sums: [f64; 2]) {
    totals.as_mut_slice().iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
}
