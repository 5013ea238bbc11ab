//! The recurrence of LSTM layers over rows that it projects itself, forward.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
mod cpu;

use megabatch_gpu_core::kernel::Kernel;
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;

use super::input_weights::InputWeights;
use super::operand::Operand;
use super::recurrence::kernel;
use super::recurrence_states::States;
use super::recurrent_weights::{Fragments, RecurrentWeights};
use super::work_list::WorkList;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrence_of_rows");

/// Inputs of the recurrence where nothing was projected.
#[derive(Clone, Copy, Debug)]
pub struct RowInputs<'a, T: Operand> {
    /// W_hh of each sequence.
    pub weights: &'a RecurrentWeights<T>,
    /// W_ih and the biases of each.
    pub input: &'a InputWeights<T>,
    /// x of each, `[rows, F]`, from where the list [says](WorkList::read_rows).
    pub rows: &'a Buffer<T>,
}

/// As [`recurrence`](super::recurrence()), with gates = b + W_ih · x + W_hh · h, for rows that are
/// [narrow enough](InputWeights::are_possible): for windows that share none, as then nobody else
/// needs what comes of a row. The same but for the order of sums.
///
/// # Errors
/// As [`recurrence`](super::recurrence()).
///
/// # Panics
/// As [`recurrence`](super::recurrence()), and if the list does not say where its rows are.
pub fn recurrence_of_rows<T: Operand>(
    list: &WorkList,
    inputs: &RowInputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    states.assert_fit(list);
    inputs.weights.assert_fit(list);
    inputs.input.assert_fit(list);
    assert!(inputs.rows.len() >= list.rows_end(), "rows of the list");
    list.device().assert_beside(inputs.rows.scope().device());
    match (list.device(), &inputs.weights.fragments) {
        (Device::Cuda(device), Some(fragments)) => cuda(device, list, fragments, inputs, states),
        _ => cpu_arm!(cpu::recurrence_of_rows(list, inputs, states)?),
    }
}

fn cuda<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    inputs: &RowInputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    let (name, launch) = kernel::<T>("rows", list, fragments.units);
    let kernel = Kernel { module: "nn/recurrence_of_rows", ptx: PTX, name: &name };
    let (places, tiles, first) =
        (list.on_device.places.address(), list.on_device.tiles.address(), list.on_device.first.address());
    let (input, rows) = (inputs.input, inputs.rows.address());
    let (fragments, input_fragments, bias) =
        (fragments.forward.address(), input.fragments.address(), input.bias.address());
    let (hidden, cell, gates) = (states.hidden.address(), states.cell.address(), states.gates.address());
    let (units, doublings) = (list.hidden() as u32, input.doublings());
    let arguments =
        arguments![places, tiles, units, fragments, rows, input_fragments, bias, doublings, first, hidden, cell, gates];
    // SAFETY: the list was made of rows that it was seen to have, and all other arrays were seen to
    // have its lengths; a block writes the states and gates of its own windows. What is submitted
    // to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch, &arguments) }?)
}

#[cfg(test)]
mod tests;
