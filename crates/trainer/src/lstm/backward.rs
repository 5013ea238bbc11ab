#![forbid(unsafe_code)]

use super::{Activations, LayerActivations, LayerSlots, Lstm, Sizes, gates_of_row};
use crate::matmul::{Matrix, Output, multiply};
use crate::scalar::Scalar;
use crate::tensor::TensorSet;

/// Goes back through every layer from the gradient of the last hidden state, set by
/// [`Activations::d_last_hidden_mut`], and adds the parameters' gradients to `gradients`.
pub(crate) fn backward<S: Scalar>(
    lstm: &Lstm,
    parameters: &TensorSet<S>,
    activations: &mut Activations<S>,
    gradients: &mut TensorSet<S>,
) {
    let (sizes, samples) = (lstm.sizes, activations.samples);
    let top = lstm.layers.len() - 1;
    for (l, slots) in lstm.layers.iter().enumerate().rev() {
        let (below, here) = activations.layers.split_at_mut(l);
        let (below, layer) = (below.last(), &mut here[0]);
        let from_above = if l == top {
            FromAbove::LastStep
        } else {
            layer.d_hidden.as_mut_slice().fill(S::ZERO);
            FromAbove::EveryStep(&activations.d_between.as_slice()[..sizes.steps * samples * sizes.hidden])
        };
        unwind_recurrence(sizes, from_above, parameters.slot(slots.weight_hh), layer);

        let input = match below {
            None => &activations.x.as_slice()[..sizes.steps * samples * sizes.features],
            Some(below) => below.outputs(sizes),
        };
        add_gradients(sizes, layer, (slots, input), gradients);
        let d_input = match below {
            None => activations.d_x.as_mut(),
            Some(_) => Some(&mut activations.d_between),
        };
        if let Some(d_input) = d_input {
            let (width, weight_ih) = (sizes.input(l), parameters.slot(slots.weight_ih));
            let weight = Matrix::new(weight_ih, [4 * sizes.hidden, width]);
            let d_gates = layer.gate_gradients(sizes);
            multiply(d_gates, weight, Output::Overwrite, &mut d_input.as_mut_slice()[..input.len()]);
        }
    }
}

/// Where a layer's outputs receive a gradient from.
enum FromAbove<'a, S> {
    /// After the last step only; it is in `d_hidden` already.
    LastStep,
    /// After every step, [T, B, H]; `d_hidden` starts as zero.
    EveryStep(&'a [S]),
}

/// Replaces the gates by the gradients before their functions, step after step from the last; `d_hidden` and `d_cell` end
/// as the gradients of the initial state.
fn unwind_recurrence<S: Scalar>(
    Sizes { steps, hidden, .. }: Sizes,
    from_above: FromAbove<'_, S>,
    weight_hh: &[S],
    layer: &mut LayerActivations<S>,
) {
    let samples = layer.samples;
    let state = samples * hidden;
    let weight = Matrix::new(weight_hh, [4 * hidden, hidden]);
    let d_hidden = &mut layer.d_hidden.as_mut_slice()[..state];
    let d_cell = &mut layer.d_cell.as_mut_slice()[..state];
    d_cell.fill(S::ZERO);
    for t in (0..steps).rev() {
        if let FromAbove::EveryStep(d_outputs) = from_above {
            d_hidden.iter_mut().zip(&d_outputs[t * state..][..state]).for_each(|(sum, &term)| *sum += term);
        }
        let gates = &mut layer.gates.as_mut_slice()[4 * t * state..][..4 * state]; // [B, 4H]
        let cell_before = &layer.cell.as_slice()[t * state..][..state];
        let cell_tanh = &layer.cell_tanh.as_slice()[t * state..][..state];
        for (b, gates) in gates.chunks_exact_mut(4 * hidden).enumerate() {
            let row = b * hidden..(b + 1) * hidden;
            let kept = Kept { cell_before: &cell_before[row.clone()], cell_tanh: &cell_tanh[row.clone()] };
            unwind_cell(gates, kept, &d_hidden[row.clone()], &mut d_cell[row]);
        }
        multiply(Matrix::new(gates, [samples, 4 * hidden]), weight, Output::Overwrite, d_hidden);
    }
}

/// What one step of one sample needs beside its gates, [H] each.
struct Kept<'a, S> {
    cell_before: &'a [S],
    cell_tanh: &'a [S],
}

/// The derivative of h' = o·tanh(c'), c' = f·c + i·g and of the gates' functions: s' = s·(1 - s), tanh' = 1 - tanh².
fn unwind_cell<S: Scalar>(gates: &mut [S], kept: Kept<'_, S>, d_hidden: &[S], d_cell: &mut [S]) {
    let [i, f, g, o] = gates_of_row(gates);
    for j in 0..d_hidden.len() {
        let (d_h, tanh_c) = (d_hidden[j], kept.cell_tanh[j]);
        let d_c = d_cell[j] + d_h * o[j] * (S::ONE - tanh_c * tanh_c);
        let (d_i, d_f, d_g, d_o) = (d_c * g[j], d_c * kept.cell_before[j], d_c * i[j], d_h * tanh_c);
        d_cell[j] = d_c * f[j];
        i[j] = d_i * i[j] * (S::ONE - i[j]);
        f[j] = d_f * f[j] * (S::ONE - f[j]);
        g[j] = d_g * (S::ONE - g[j] * g[j]);
        o[j] = d_o * o[j] * (S::ONE - o[j]);
    }
}

/// dW_ih += dgatesᵀ·x, dW_hh += dgatesᵀ·h[t-1], db += dgates summed over steps and samples: one product each.
fn add_gradients<S: Scalar>(
    sizes: Sizes,
    layer: &LayerActivations<S>,
    (slots, input): (&LayerSlots, &[S]),
    gradients: &mut TensorSet<S>,
) {
    let rows = sizes.steps * layer.samples;
    let d_gates = layer.gate_gradients(sizes);
    let hidden_before = &layer.hidden.as_slice()[..rows * sizes.hidden]; // [T, B, H]
    for (slot, values) in [(slots.weight_ih, input), (slots.weight_hh, hidden_before)] {
        let values = Matrix::new(values, [rows, values.len() / rows]);
        multiply(d_gates.transposed(), values, Output::Add, gradients.slot_mut(slot));
    }
    if let Some(bias) = slots.bias {
        let mut sum = vec![S::ZERO; 4 * sizes.hidden];
        for row in layer.gates.as_slice()[..rows * 4 * sizes.hidden].chunks_exact(4 * sizes.hidden) {
            sum.iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
        }
        for slot in bias {
            gradients.slot_mut(slot).iter_mut().zip(&sum).for_each(|(sum, &term)| *sum += term);
        }
    }
}

impl<S: Scalar> LayerActivations<S> {
    /// The gradients of the gates before their functions, [T·B, 4H].
    fn gate_gradients(&self, Sizes { steps, hidden, .. }: Sizes) -> Matrix<'_, S> {
        let rows = steps * self.samples;
        Matrix::new(&self.gates.as_slice()[..rows * 4 * hidden], [rows, 4 * hidden])
    }
}
