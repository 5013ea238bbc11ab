//! The recurrence on the CPU.

use megabatch_gpu_core::Buffer;

use super::{RecurrenceInputs, States};
use crate::ops::operand::Operand;
use crate::ops::work_list::{SequenceOffsets, WorkList};

pub(super) fn recurrence<T: Operand>(list: &WorkList, inputs: &RecurrenceInputs<'_, T>, states: &mut States<T>) {
    recurrence_by(list, inputs.projected, states, |place, h, sums| {
        let weight = inputs.weights.matrix(place.weight).elements().chunks_exact(h.len());
        let products = |row: &[T]| row.iter().zip(h).map(|(w, h)| w.widen() * h).sum::<f32>();
        sums.iter_mut().zip(weight).for_each(|(sum, row)| *sum += products(row));
    });
}

/// The recurrence on the CPU. `add_products` adds W_hh · h of a window of a sequence to the
/// gates of its units, `[H, 4]`.
pub(in crate::ops) fn recurrence_by<T: Operand>(
    list: &WorkList,
    projected: &Buffer<f32>,
    states: &mut States<T>,
    add_products: impl Fn(&SequenceOffsets, &[f32], &mut [f32]),
) {
    let hidden = list.hidden();
    let run_step = |place: &SequenceOffsets, t: usize, (window, first): (usize, u32), states: &mut States<T>| {
        let [before, after] = [place.states(t), place.states(t + 1)].map(|row| (row + window) * hidden);
        let row = place.projected_row as usize + first as usize + t * place.row_step as usize;
        let mut sums = projected.as_slice()[row * 4 * hidden..][..4 * hidden].to_vec();
        let h: Vec<f32> = states.hidden.as_slice()[before..][..hidden].iter().map(|h| h.widen()).collect();
        add_products(place, &h, &mut sums);
        let gates = &mut states.gates.as_mut_slice()[(place.gates(t) + window) * 4 * hidden..][..4 * hidden];
        for (unit, (sums, gates)) in sums.chunks_exact(4).zip(gates.chunks_exact_mut(4)).enumerate() {
            let [i, f, g, o] = [sigmoid(sums[0]), sigmoid(sums[1]), sums[2].tanh(), sigmoid(sums[3])];
            let cell = states.cell.as_mut_slice();
            let c = f * cell[before + unit] + i * g;
            cell[after + unit] = c;
            states.hidden.as_mut_slice()[after + unit] = T::narrow(o * c.tanh());
            gates.copy_from_slice(&[i, f, g, o].map(T::SavedGate::narrow));
        }
    };
    for place in list.places() {
        for t in 0..place.steps as usize {
            for (window, &first) in list.first(place).iter().enumerate() {
                run_step(place, t, (window, first), states);
            }
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
