//! The recurrence of LSTM layers, backward, on the CPU.

use crate::ops::operand::Operand;
use crate::ops::recurrence_states::{Gradients, States};
use crate::ops::recurrent_weights::RecurrentWeights;
use crate::ops::work_list::{SequenceOffsets, WorkList};

/// The backward pass of one sequence.
pub(super) fn recurrence_backward<T: Operand>(
    list: &WorkList,
    place: &SequenceOffsets,
    weights: &RecurrentWeights<T>,
    states: &States<T>,
    gradients: &mut Gradients<T>,
) {
    let (hidden, weight) = (list.hidden(), weights.matrix(place.weight).elements());
    let (cell, kept) = (states.cell.as_slice(), states.gates.as_slice());
    for t in (0..place.steps as usize).rev() {
        for window in 0..place.windows as usize {
            let (before, after) = ((place.states(t) + window) * hidden, (place.states(t + 1) + window) * hidden);
            let (edge, step) = ((place.window as usize + window) * hidden, (place.gates(t) + window) * hidden);
            let d_gates = &mut gradients.gates.as_mut_slice()[4 * step..][..4 * hidden];
            let d_hidden = &mut gradients.hidden.as_mut_slice()[edge..][..hidden];
            let d_cell = &mut gradients.cell.as_mut_slice()[edge..][..hidden];
            for unit in 0..hidden {
                let [i, f, g, o] = [0, 1, 2, 3].map(|gate| kept[4 * (step + unit) + gate].widen());
                let (c_before, c_tanh) = (cell[before + unit], cell[after + unit].tanh());
                let d_h = d_hidden[unit] + gradients.outputs.as_ref().map_or(0.0, |d| d.as_slice()[step + unit]);
                let d_c = d_cell[unit] + d_h * o * (1.0 - c_tanh * c_tanh);
                d_cell[unit] = d_c * f;
                let d = [
                    d_c * g * i * (1.0 - i),
                    d_c * c_before * f * (1.0 - f),
                    d_c * i * (1.0 - g * g),
                    d_h * c_tanh * o * (1.0 - o),
                ];
                d_gates[4 * unit..][..4].copy_from_slice(&d.map(T::narrow));
            }
            d_hidden.fill(0.0);
            for (d, weights) in d_gates.iter().zip(weight.chunks_exact(hidden)) {
                d_hidden.iter_mut().zip(weights).for_each(|(sum, w)| *sum += d.widen() * w.widen());
            }
        }
    }
}
