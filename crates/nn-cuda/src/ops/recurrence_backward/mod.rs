//! The recurrence of LSTM layers, backward: all steps of all timeframes.

#![allow(unsafe_code, reason = "kernels are launched")]

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
        _ => cpu_arm!(list.places().iter().for_each(|place| cpu(list, place, weights, states, gradients))),
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

#[cfg(feature = "conformance")]
fn cpu<T: Operand>(
    list: &WorkList,
    place: &super::work_list::SequenceOffsets,
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

#[cfg(test)]
mod tests;
