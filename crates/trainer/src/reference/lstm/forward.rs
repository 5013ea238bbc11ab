#![forbid(unsafe_code)]

use super::{Activations, LayerActivations, LayerSlots, Lstm, Normed, Sizes, gates_of_row, input};
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;
use crate::reference::matmul::{Matrix, Output, multiply};

/// Runs every layer over the windows loaded in `activations`, from the initial state set there.
pub(crate) fn forward<S: Scalar>(lstm: &Lstm, parameters: &TensorSet<S>, activations: &mut Activations<S>) {
    let (sizes, samples) = (lstm.sizes, activations.samples);
    let x = &activations.x.as_slice()[..sizes.steps * samples * sizes.features];
    for (l, slots) in lstm.layers.iter().enumerate() {
        let (below, here) = activations.layers.split_at_mut(l);
        let dropped = activations.dropped.get(l.wrapping_sub(1)).filter(|_| activations.drops);
        let normed = activations.normed.get(l.wrapping_sub(1));
        let input = input(sizes, x, (below.last(), normed, dropped));
        let layer = &mut here[0];
        project_inputs(sizes.input(l), input, slots, parameters, layer);
        run_recurrence(sizes, samples, parameters.slot(slots.weight_hh), layer);
        if let (Some(norm), Some(normed)) = (slots.norm, activations.normed.get_mut(l)) {
            normed.set(norm, parameters, layer.outputs(sizes));
        }
        if activations.drops
            && let Some(dropped) = activations.dropped.get_mut(l)
        {
            dropped.set(activations.normed.get(l).map_or(layer.outputs(sizes), Normed::outputs));
        }
    }
}

/// gates [T·B, 4H] = x [T·B, F] · W_ihᵀ + b_ih + b_hh: one product for all steps.
fn project_inputs<S: Scalar>(
    width: usize,
    input: &[S],
    slots: &LayerSlots,
    parameters: &TensorSet<S>,
    layer: &mut LayerActivations<S>,
) {
    let weight = parameters.slot(slots.weight_ih);
    let (rows, gate_width) = (input.len() / width, weight.len() / width);
    let gates = &mut layer.gates.as_mut_slice()[..rows * gate_width];
    let output = match slots.bias.map(|bias| bias.map(|slot| parameters.slot(slot))) {
        None => Output::Overwrite,
        Some([bias_ih, bias_hh]) => {
            let bias: Vec<S> = bias_ih.iter().zip(bias_hh).map(|(&ih, &hh)| ih + hh).collect();
            gates.chunks_exact_mut(gate_width).for_each(|row| row.copy_from_slice(&bias));
            Output::Add
        }
    };
    multiply(Matrix::new(input, rows, width), Matrix::new(weight, gate_width, width).transposed(), output, gates);
}

/// gates[t] += h[t-1] · W_hhᵀ, then the cell, step after step.
fn run_recurrence<S: Scalar>(sizes: Sizes, samples: usize, weight_hh: &[S], layer: &mut LayerActivations<S>) {
    let Sizes { steps, hidden, .. } = sizes;
    let state = samples * hidden;
    transpose(weight_hh, hidden, layer.weight_hh_turned.as_mut_slice());
    let weight = Matrix::new(layer.weight_hh_turned.as_slice(), hidden, 4 * hidden);
    for t in 0..steps {
        let (hidden_before, hidden_after) = step_pair(layer.hidden.as_mut_slice(), t, state);
        let (cell_before, cell_after) = step_pair(layer.cell.as_mut_slice(), t, state);
        let gates = &mut layer.gates.as_mut_slice()[4 * t * state..][..4 * state]; // [B, 4H]
        multiply(Matrix::new(hidden_before, samples, hidden), weight, Output::Add, gates);

        let rows = gates.chunks_exact_mut(4 * hidden).zip(cell_before.chunks_exact(hidden));
        let cell_tanh = layer.cell_tanh.as_mut_slice()[t * state..][..state].chunks_exact_mut(hidden);
        let after = hidden_after.chunks_exact_mut(hidden).zip(cell_after.chunks_exact_mut(hidden));
        for (((gates, cell_before), cell_tanh), (hidden_after, cell_after)) in rows.zip(cell_tanh).zip(after) {
            advance_cell(gates, cell_before, &mut Advanced { cell: cell_after, cell_tanh, hidden: hidden_after });
        }
    }
}

/// Outputs of one step of one sample, [H] each.
struct Advanced<'a, S> {
    cell: &'a mut [S],
    cell_tanh: &'a mut [S],
    hidden: &'a mut [S],
}

/// Applies the gates' functions in place, then c' = f·c + i·g and h' = o·tanh(c').
fn advance_cell<S: Scalar>(gates: &mut [S], cell_before: &[S], to: &mut Advanced<'_, S>) {
    let [i, f, g, o] = gates_of_row(gates);
    for gate in [&mut *i, &mut *f, &mut *o] {
        gate.iter_mut().for_each(|x| *x = x.sigmoid());
    }
    g.iter_mut().for_each(|x| *x = x.tanh());
    for j in 0..cell_before.len() {
        to.cell[j] = f[j] * cell_before[j] + i[j] * g[j];
        to.cell_tanh[j] = to.cell[j].tanh();
        to.hidden[j] = o[j] * to.cell_tanh[j];
    }
}

/// The states [B, H] before and after step `t`, out of [T + 1, B, H].
fn step_pair<S>(states: &mut [S], t: usize, state: usize) -> (&[S], &mut [S]) {
    let (before, after) = states[t * state..].split_at_mut(state);
    (before, &mut after[..state])
}

/// `to` [columns, rows] = `from` [rows, columns] transposed.
fn transpose<S: Scalar>(from: &[S], columns: usize, to: &mut [S]) {
    let rows = from.len() / columns;
    for (r, row) in from.chunks_exact(columns).enumerate() {
        row.iter().enumerate().for_each(|(c, &value)| to[c * rows + r] = value);
    }
}
