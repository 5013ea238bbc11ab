//! The recurrence of LSTM layers, backward: all steps of all timeframes.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
mod cpu;

use megabatch_gpu_core::kernel::Kernel;
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;

use super::cell;
use super::group::{self, Groups};
use super::operand::Operand;
use super::recurrence::kernel;
use super::recurrence_f32;
use super::recurrence_states::{Gradients, States};
use super::recurrent_weights::{Fragments, RecurrentWeights};
use super::work_list::WorkList;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrence_backward");
pub(super) const PTX_OF_GROUPS: &str = megabatch_gpu_core::ptx!("recurrence_group_backward");

/// Backward pass from the last step of every window to its first. The gradient of a hidden state
/// stays in f32; those of gates are rounded before they are multiplied.
///
/// # Errors
/// As [`recurrence`](super::recurrence()).
///
/// # Panics
/// As [`recurrence`](super::recurrence()).
pub fn recurrence_backward<T: Operand>(
    list: &WorkList,
    weights: &RecurrentWeights<T>,
    states: &States<T>,
    gradients: &mut Gradients<T>,
) -> Result<()> {
    states.assert_fit(list);
    weights.assert_fit(list);
    gradients.assert_fit(list);
    match (list.device(), &weights.fragments) {
        (Device::Cuda(device), Some(fragments)) if fragments.are_of_a_block() => {
            persistent(device, list, fragments, states, gradients)
        }
        (Device::Cuda(device), Some(fragments)) if !list.is_step_by_step() => {
            by_groups(device, list, weights, fragments, states, gradients)
        }
        (Device::Cuda(device), _) => cell::backward(device, list, weights, states, gradients),
        _ => cpu_arm!(
            list.places().iter().for_each(|place| cpu::recurrence_backward(list, place, weights, states, gradients))
        ),
    }
}

fn persistent<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    states: &States<T>,
    gradients: &mut Gradients<T>,
) -> Result<()> {
    if !T::IS_NARROW {
        return recurrence_f32::backward(device, list, fragments, states, gradients);
    }
    let (name, launch) = kernel::<T>("backward", list, fragments.units);
    let kernel = Kernel { module: "nn/recurrence_backward", ptx: PTX, name: &name };
    let (places, tiles) = (list.on_device.places.address(), list.on_device.tiles.address());
    let (fragments, cell, gates) = (fragments.backward.address(), states.cell.address(), states.gates.address());
    let d_outputs = gradients.outputs.as_ref().map_or(0, Buffer::address);
    let (d_hidden, d_cell, d_gates) = (gradients.hidden.address(), gradients.cell.address(), gradients.gates.address());
    let arguments =
        arguments![places, tiles, list.hidden() as u32, fragments, cell, gates, d_outputs, d_hidden, d_cell, d_gates];
    // SAFETY: all arrays were seen to have the lengths of the list; a block writes the gradients of
    // its own windows. What is submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch, &arguments) }?)
}

/// As [`persistent`], by groups of blocks where there is room for one.
fn by_groups<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    weights: &RecurrentWeights<T>,
    fragments: &Fragments,
    states: &States<T>,
    gradients: &mut Gradients<T>,
) -> Result<()> {
    let name = group::kernel_name::<T>("backward", fragments.units);
    let kernel = Kernel { module: "nn/recurrence_group_backward", ptx: PTX_OF_GROUPS, name: &name };
    let Some(groups) = Groups::for_launch(&kernel, fragments.units, device, list, &mut gradients.scratch)? else {
        return cell::backward(device, list, weights, states, gradients);
    };
    let (places, tiles, arrived) = (list.on_device.places.address(), list.on_device.tiles.address(), groups.arrived);
    let [tile_count, each, width, units] = groups.shares.numbers(list);
    let (fragments, cell, gates) = (fragments.backward.address(), states.cell.address(), states.gates.address());
    let d_outputs = gradients.outputs.as_ref().map_or(0, Buffer::address);
    let (d_hidden, d_cell, d_gates) = (gradients.hidden.address(), gradients.cell.address(), gradients.gates.address());
    let arguments = arguments![
        places, tiles, tile_count, each, width, units, fragments, cell, gates, d_outputs, d_hidden, d_cell, d_gates,
        arrived
    ];
    // SAFETY: as in `persistent`, but that a block writes the gradients of its own units of its
    // group's windows, and reads those of the other blocks when they have announced them, in
    // `arrived`, which has a number for each block. All of them run at once.
    Ok(unsafe { kernel.submit(device, groups.launch, &arguments) }?)
}

#[cfg(test)]
mod tests;
