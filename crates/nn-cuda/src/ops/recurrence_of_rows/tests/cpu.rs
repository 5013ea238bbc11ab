//! The recurrence over rows that it projects itself on the CPU.

use megabatch_gpu_core::Buffer;
use megabatch_nn::Result;

use super::{Operand, RowInputs, States, WorkList};
use crate::ops::{RecurrenceInputs, recurrence};

/// Projects every row, and then does the same as with rows that were projected.
pub(super) fn recurrence_of_rows<T: Operand>(
    list: &WorkList,
    inputs: &RowInputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    let (gates, mut projected) = (4 * list.hidden(), Vec::new());
    for (sequence, place) in list.places().iter().enumerate() {
        let count = list.projected_rows_of(sequence);
        let (features, weight) = (place.features as usize, inputs.input.rows[place.weight as usize].as_slice());
        let bias = &inputs.input.bias.as_slice()[place.weight as usize * gates..][..gates];
        for x in inputs.rows.as_slice()[place.input as usize..][..count * features].chunks_exact(features) {
            let dot = |weights: &[T]| weights.iter().zip(x).map(|(w, x)| w.widen() * x.widen()).sum::<f32>();
            projected.extend(bias.iter().zip(weight.chunks_exact(features)).map(|(bias, weights)| bias + dot(weights)));
        }
    }
    let projected = Buffer::from_slice(states.cell.scope(), &projected)?;
    recurrence(list, &RecurrenceInputs { weights: inputs.weights, projected: &projected }, states)
}
