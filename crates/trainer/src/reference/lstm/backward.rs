#![forbid(unsafe_code)]

use super::{Activations, LayerActivations, LayerSlots, Lstm, Read, Sizes, gates_of_row, input};
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;
use crate::reference::matmul::{Matrix, Output, multiply};

/// Goes back through every layer from the gradient of the last hidden state, set by
/// [`Activations::d_last_output_mut`], or of those after every step, set by
/// [`Activations::sequence_and_gradient_mut`], and adds the parameters' gradients to `gradients`.
pub(crate) fn backward<S: Scalar>(
    lstm: &Lstm,
    parameters: &TensorSet<S>,
    activations: &mut Activations<S>,
    gradients: &mut TensorSet<S>,
) {
    let (sizes, samples) = (lstm.sizes, activations.samples);
    let top = lstm.layers.len() - 1;
    let x = &activations.x.as_slice()[..sizes.steps * samples * sizes.features];
    for (l, slots) in lstm.layers.iter().enumerate().rev() {
        let (below, here) = activations.layers.split_at_mut(l);
        let (below, layer) = (below.last(), &mut here[0]);
        let from_above = if l == top && sizes.read == Read::LastStep {
            FromAbove::LastStep
        } else {
            layer.d_hidden.as_mut_slice().fill(S::ZERO);
            if let (Some(norm), Some(normed)) = (slots.norm, activations.normed.get(l)) {
                normed.turn_gradient(norm, parameters, activations.d_between.as_mut_slice(), gradients);
            }
            FromAbove::EveryStep(&activations.d_between.as_slice()[..sizes.steps * samples * sizes.hidden])
        };
        unwind_recurrence(sizes, from_above, parameters.slot(slots.weight_hh), layer);

        let dropped = activations.dropped.get(l.wrapping_sub(1)).filter(|_| activations.drops);
        let input = input(sizes, x, (below, activations.normed.get(l.wrapping_sub(1)), dropped));
        add_gradients(sizes, layer, slots, input, gradients);
        let d_input = match below {
            None => activations.d_x.as_mut(),
            Some(_) => Some(&mut activations.d_between),
        };
        if let Some(d_input) = d_input {
            let (width, weight_ih) = (sizes.input(l), parameters.slot(slots.weight_ih));
            let weight = Matrix::new(weight_ih, 4 * sizes.hidden, width);
            let d_input = &mut d_input.as_mut_slice()[..input.len()];
            multiply(layer.gate_gradients(sizes), weight, Output::Overwrite, d_input);
            if let Some(dropped) = dropped {
                dropped.turn_gradient(d_input);
            }
        }
    }
}

/// Source of a layer's output gradients.
#[derive(Clone, Copy)]
enum FromAbove<'a, S> {
    /// After the last step only; it is in `d_hidden` already.
    LastStep,
    /// After every step, [T, B, H]; `d_hidden` starts as zero.
    EveryStep(&'a [S]),
}

/// Replaces the gates by the gradients before their functions, step after step from the last;
/// `d_hidden` and `d_cell` end as the gradients of the initial state.
fn unwind_recurrence<S: Scalar>(
    Sizes { steps, hidden, .. }: Sizes,
    from_above: FromAbove<'_, S>,
    weight_hh: &[S],
    layer: &mut LayerActivations<S>,
) {
    let samples = layer.samples;
    let state = samples * hidden;
    let weight = Matrix::new(weight_hh, 4 * hidden, hidden);
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
        multiply(Matrix::new(gates, samples, 4 * hidden), weight, Output::Overwrite, d_hidden);
    }
}

/// Inputs of one step of one sample beside its gates, [H] each.
#[derive(Clone, Copy)]
struct Kept<'a, S> {
    cell_before: &'a [S],
    cell_tanh: &'a [S],
}

/// The derivative of h' = o·tanh(c'), c' = f·c + i·g and of the gates' functions: s' = s·(1 - s),
/// tanh' = 1 - tanh². Gradients that have vanished are set to zero, see [`Scalar::flush`].
fn unwind_cell<S: Scalar>(gates: &mut [S], kept: Kept<'_, S>, d_hidden: &[S], d_cell: &mut [S]) {
    let [i, f, g, o] = gates_of_row(gates);
    for j in 0..d_hidden.len() {
        let (d_h, tanh_c) = (d_hidden[j].flush(), kept.cell_tanh[j]);
        let d_c = (d_cell[j] + d_h * o[j] * (S::ONE - tanh_c * tanh_c)).flush();
        let (d_i, d_f, d_g, d_o) = (d_c * g[j], d_c * kept.cell_before[j], d_c * i[j], d_h * tanh_c);
        d_cell[j] = d_c * f[j];
        i[j] = (d_i * i[j] * (S::ONE - i[j])).flush();
        f[j] = (d_f * f[j] * (S::ONE - f[j])).flush();
        g[j] = (d_g * (S::ONE - g[j] * g[j])).flush();
        o[j] = (d_o * o[j] * (S::ONE - o[j])).flush();
    }
}

/// dW_ih += dgatesᵀ·x, dW_hh += dgatesᵀ·h[t-1], db += dgates summed over steps and samples: one
/// product each.
fn add_gradients<S: Scalar>(
    sizes: Sizes,
    layer: &LayerActivations<S>,
    slots: &LayerSlots,
    input: &[S],
    gradients: &mut TensorSet<S>,
) {
    let rows = sizes.steps * layer.samples;
    let d_gates = layer.gate_gradients(sizes);
    let hidden_before = &layer.hidden.as_slice()[..rows * sizes.hidden]; // [T, B, H]
    for (slot, values) in [(slots.weight_ih, input), (slots.weight_hh, hidden_before)] {
        let values = Matrix::new(values, rows, values.len() / rows);
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
        Matrix::new(&self.gates.as_slice()[..rows * 4 * hidden], rows, 4 * hidden)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use megabatch_gpu_core::Device;
    use megabatch_order::random::{Stream, uniform};

    use super::*;
    use crate::model::tensor::Layout;
    use crate::reference::lstm::{InputGradients, forward};

    /// Over 600 steps the gradient falls far below the smallest number; on its way it must not stay
    /// among the subnormal ones, where a product takes a hundred times as long.
    #[test]
    fn vanished_gradients_are_zero() {
        let sizes =
            Sizes { steps: 600, features: 2, hidden: 8, layers: 1, bias: true, norm: false, read: Read::LastStep };
        let scope = Device::cpu().scope("test");
        let mut layout = Layout::default();
        let lstm = Lstm::new(sizes, "lstm", "norm", &mut layout);
        let layout = Arc::new(layout);
        let mut parameters = TensorSet::<f32>::zeros(&scope, &layout).unwrap();
        for (i, value) in (0..).zip(parameters.values_mut()) {
            *value = uniform(Stream { seed: 2, name: "vanishing" }, i) as f32 - 0.5;
        }
        let windows: Vec<f32> = (0..1200).map(|i| (i as f32 * 0.9).sin()).collect();
        let mut activations = Activations::new(&scope, sizes, 1, InputGradients::Skip).unwrap();
        activations.load(sizes, 1, &windows);
        forward(&lstm, &parameters, &mut activations);
        activations.d_last_output_mut(sizes).fill(1.0);
        backward(&lstm, &parameters, &mut activations, &mut TensorSet::zeros(&scope, &layout).unwrap());

        let gradients = activations.layers[0].gates.as_slice(); // [T, 1, 4H]
        assert!(gradients[599 * 32..].iter().all(|&g| g.is_normal()), "the last step has gradients");
        assert!(gradients[..32].iter().all(|&g| g == 0.0), "those of the first have vanished");
        assert!(gradients.iter().all(|g| !g.is_subnormal()));
    }
}
