//! The general path of the recurrence on a GPU, for widths and types that no persistent kernel
//! takes, and for GPUs that have no room for a group of blocks: for every step of every sequence, a
//! product and what is left of the cell.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::matmul::{Call, Operands};
use super::operand::Operand;
use super::product_kind::{Output, Transpose};
use super::recurrence_states::{Gradients, RecurrenceInputs, States, product_len};
use super::recurrent_weights::RecurrentWeights;
use super::work_list::{SequenceOffsets, WorkList};

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("cell");

/// Runs every sequence, step after step, with products by the weights as they are.
pub(super) fn forward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    inputs: &RecurrenceInputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    let hidden = list.hidden();
    forward_by(device, list, inputs.projected, states, |place, h, out| {
        let weight = inputs.weights.matrix(place.weight).address();
        let call = Call::whole::<T>([place.windows as usize, GATES * hidden, hidden], Transpose::Nt, Output::Overwrite);
        // SAFETY: `recurrence` has seen that the weights have the list's lengths, and this module's
        // steps bring a sequence's states and room for its product.
        unsafe { call.submit(device, Operands { a: h, b: weight, bias: 0, out }) }
    })
}

/// Runs every sequence, step after step. `multiply` submits W_hh · h of a step of a sequence: from
/// its states at the first address, `[B, H]`, to `[B, H, 4]` at the second.
pub(super) fn forward_by<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    projected: &Buffer<f32>,
    states: &mut States<T>,
    mut multiply: impl FnMut(&SequenceOffsets, u64, u64) -> Result<()>,
) -> Result<()> {
    let (hidden, name) = (list.hidden(), format!("step_forward_{}", T::SUFFIX));
    let product = states.scratch.address_of::<f32>(product_len(widest(list), hidden))?;
    let kernel = Kernel { module: "nn/cell", ptx: PTX, name: &name };
    for place in list.places() {
        let windows = place.windows as usize;
        let first = element(&list.on_device.first, place.window as usize);
        for t in 0..place.steps as usize {
            let [before, after] = [place.states(t), place.states(t + 1)].map(|row| row * hidden);
            let further = place.projected_row + t as u64 * place.row_step;
            let (cell_before, cell_after) = (element(&states.cell, before), element(&states.cell, after));
            let (h, gates) = (element(&states.hidden, after), element(&states.gates, GATES * hidden * place.gates(t)));
            let arguments = arguments![
                product,
                projected.address(),
                first,
                further,
                cell_before,
                cell_after,
                h,
                gates,
                place.windows,
                hidden as u32
            ];
            multiply(place, element(&states.hidden, before), product)?;
            // SAFETY: the list was made of rows within the projected inputs, and the caller has
            // seen that all arrays have its lengths; `product` has room for the sequence with the
            // most windows. Each launch reads what the ones before it wrote, in the order of the
            // default stream.
            unsafe { kernel.submit(device, Launch::for_threads(windows * hidden), &arguments)? };
        }
    }
    Ok(())
}

/// Backward pass through every sequence, step after step.
pub(super) fn backward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    weights: &RecurrentWeights<T>,
    states: &States<T>,
    gradients: &mut Gradients<T>,
) -> Result<()> {
    let (hidden, name) = (list.hidden(), format!("step_backward_{}", T::SUFFIX));
    let kernel = Kernel { module: "nn/cell", ptx: PTX, name: &name };
    for place in list.places() {
        let (windows, weight) = (place.windows as usize, weights.matrix(place.weight));
        let call = Call::whole::<T>([windows, hidden, GATES * hidden], Transpose::Nn, Output::Overwrite);
        let edge = place.window as usize * hidden;
        let (d_hidden, d_cell) = (element(&gradients.hidden, edge), element(&gradients.cell, edge));
        for t in (0..place.steps as usize).rev() {
            let step = place.gates(t) * hidden;
            let [before, after] = [place.states(t), place.states(t + 1)].map(|row| element(&states.cell, row * hidden));
            let d_output = gradients.outputs.as_ref().map_or(0, |outputs| element(outputs, step));
            let (gates, d_gates) = (element(&states.gates, 4 * step), element(&gradients.gates, 4 * step));
            let operands = Operands { a: d_gates, b: weight.address(), bias: 0, out: d_hidden };
            let len = (windows * hidden) as u64;
            let arguments = arguments![gates, before, after, d_output, d_hidden, d_cell, d_gates, len];
            // SAFETY: `recurrence_backward` has seen that all arrays have the lengths of the list.
            // Each launch reads what the ones before it wrote, in the order of the default stream.
            unsafe {
                kernel.submit(device, Launch::for_threads(windows * hidden), &arguments)?;
                call.submit(device, operands)?;
            }
        }
    }
    Ok(())
}

/// The most windows of a sequence.
fn widest(list: &WorkList) -> usize {
    list.places().iter().map(|place| place.windows as usize).max().unwrap_or(0)
}

/// Address of an element, or of the end.
fn element<T: bytemuck::Pod>(buffer: &Buffer<T>, number: usize) -> u64 {
    assert!(number <= buffer.len(), "element {number} of {}", buffer.len());
    buffer.address() + (number * size_of::<T>()) as u64
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_gpu_core::Device;
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::super::recurrence::recurrence;
    use super::super::recurrence::tests::assert_close;
    use super::super::recurrence_backward::recurrence_backward;
    use super::super::uploaded::work_list;
    use super::super::work_list::{Sequence, TileWindows};
    use super::*;

    /// Result of a single step, from states that are not zero, beside that of the CPU with weights
    /// of zero.
    fn check<T: Operand>(hidden: usize, windows: u32) {
        let (scope, first) = (Device::cpu().scope("test"), (0..windows).collect::<Vec<_>>());
        let sequence = Sequence { steps: 1, first: &first, row_step: 1, projected_rows: windows as usize + 1 };
        let list = work_list(&scope, hidden, TileWindows::Eight, &[sequence]).unwrap();
        let weights = RecurrentWeights::<T>::zeros(&scope, hidden, &[0]).unwrap();
        let (edge, gates) = (windows as usize * hidden, 4 * windows as usize * hidden);
        // The kernel adds the projected row to the product; the CPU finds their sum in the row.
        let (product, rows) = (noise("product", gates, 1.0), noise("rows", gates + GATES * hidden, 1.0));
        let mut sums = rows.clone();
        sums.iter_mut().zip(&product).for_each(|(sum, term)| *sum += term);
        let projected = Buffer::from_slice(&scope, &sums).unwrap();
        let mut expected = States::<T>::zeros(&scope, &list).unwrap();
        expected.cell.copy_from(&noise("cell", 2 * edge, 1.0)).unwrap();
        recurrence(&list, &RecurrenceInputs { weights: &weights, projected: &projected }, &mut expected).unwrap();

        let (before, after) = expected.cell.as_slice().split_at(edge);
        let (mut cell, mut h, mut kept) =
            (vec![0.0; edge], vec![T::narrow(0.0); edge], vec![T::SavedGate::narrow(0.0); gates]);
        let four = |x| bytemuck::cast_slice::<f32, [f32; 4]>(x);
        let mut arguments = [
            Arg::from(four(&product)),
            Arg::from(four(&rows)),
            Arg::from(&first[..]),
            Arg::from(0u64),
            Arg::from(before),
            Arg::from(&mut cell[..]),
            Arg::from(&mut h[..]),
            Arg::from(bytemuck::cast_slice_mut::<T::SavedGate, [T::SavedGate; 4]>(&mut kept)),
            Arg::from(windows),
            Arg::from(hidden as u32),
        ];
        HARNESS.run(&format!("step_forward_{}", T::SUFFIX), Launch::for_threads(edge), &mut arguments);
        assert_close(&cell, after, 1e-6, "cells");
        assert_close(&h, &expected.hidden.as_slice()[edge..], rounding::<T>(), "hidden states");
        assert_close(&kept, expected.gates.as_slice(), rounding::<T::SavedGate>(), "gates");

        let mut gradients = Gradients::<T>::zeros(&scope, &list).unwrap();
        let (d_output, d_hidden, d_cell) =
            (noise("outputs", edge, 1.0), noise("d_hidden", edge, 1.0), noise("d_cell", edge, 1.0));
        gradients.outputs = Some(Buffer::from_slice(&scope, &d_output).unwrap());
        gradients.hidden.copy_from(&d_hidden).unwrap();
        gradients.cell.copy_from(&d_cell).unwrap();
        recurrence_backward(&list, &weights, &expected, &mut gradients).unwrap();
        let (mut d_cell, mut d_gates) = (d_cell, vec![T::narrow(0.0); gates]);
        let mut arguments = [
            Arg::from(bytemuck::cast_slice::<T::SavedGate, [T::SavedGate; 4]>(expected.gates.as_slice())),
            Arg::from(before),
            Arg::from(after),
            Arg::from(&d_output[..]),
            Arg::from(&d_hidden[..]),
            Arg::from(&mut d_cell[..]),
            Arg::from(bytemuck::cast_slice_mut::<T, [T; 4]>(&mut d_gates)),
            Arg::from(edge as u64),
        ];
        HARNESS.run(&format!("step_backward_{}", T::SUFFIX), Launch::for_threads(edge), &mut arguments);
        assert_close(&d_cell, gradients.cell.as_slice(), 1e-6, "cells' gradients");
        assert_close(&d_gates, gradients.gates.as_slice(), rounding::<T>(), "gates' gradients");
    }

    /// Rounding to one of two neighbours, of numbers up to 2 that differ in their last bits.
    fn rounding<T: Operand>() -> f32 {
        match T::SUFFIX {
            "f32" => 1e-6,
            "f16" => 1.0 / 1024.0,
            _ => 1.0 / 128.0,
        }
    }

    #[test]
    fn the_kernels_take_the_cpus_step() {
        for (hidden, windows) in [(1, 1), (7, 3), (130, 2)] {
            check::<f32>(hidden, windows);
            check::<f16>(hidden, windows);
            check::<bf16>(hidden, windows);
        }
    }
}
