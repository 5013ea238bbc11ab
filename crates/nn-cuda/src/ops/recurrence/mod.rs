//! The recurrence of LSTM layers, forward: all steps of all timeframes.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
pub(super) mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Cuda, Device, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::cell;
use super::group::{self, Groups};
use super::operand::Operand;
use super::recurrence_f32;
use super::recurrence_states::{RecurrenceInputs, States};
use super::recurrent_weights::Fragments;
use super::work_list::WorkList;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrence");
pub(super) const PTX_OF_GROUPS: &str = megabatch_gpu_core::ptx!("recurrence_group");

/// Runs every window of a list from its first step to its last: with gates = projected row + W_hh ·
/// h, c' = f·c + i·g and h' = o·tanh(c'). Hidden states are rounded to `T` after each step;
/// everything else is in f32 until it is kept.
///
/// On a GPU this is one launch with H ≤ 128, even in 16 bits, where no block waits for another, and
/// of 16 bits with 128 < H ≤ 512, where a group of blocks shares the units if the GPU has room for
/// one group at least and the list is not to be taken step by step. Else there are two launches for
/// every step.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch; that there is
/// no memory, on the scope of the states, for what blocks tell each other or for the products of a
/// step of the general path.
///
/// # Panics
/// If anything has not room for the list, if arrays are on several devices, and if a list for
/// groups has 2³² rows of states.
pub fn recurrence<T: Operand>(list: &WorkList, inputs: &RecurrenceInputs<'_, T>, states: &mut States<T>) -> Result<()> {
    states.assert_fit(list);
    assert!(inputs.projected.len() >= list.projected_rows() * GATES * list.hidden(), "projected inputs of the list");
    inputs.weights.assert_fit(list);
    list.device().assert_beside(inputs.projected.scope().device());
    match (list.device(), &inputs.weights.fragments) {
        (Device::Cuda(device), Some(fragments)) if fragments.are_of_a_block() => {
            persistent(device, list, fragments, inputs, states)
        }
        (Device::Cuda(device), Some(fragments)) if !list.is_step_by_step() => {
            by_groups(device, list, fragments, inputs, states)
        }
        (Device::Cuda(device), _) => cell::forward(device, list, inputs, states),
        _ => cpu_arm!(cpu::recurrence(list, inputs, states)),
    }
}

fn persistent<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    inputs: &RecurrenceInputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    if !T::IS_NARROW {
        return recurrence_f32::forward(device, list, fragments, inputs.projected, states);
    }
    let (name, launch) = kernel::<T>("forward", list, fragments.units);
    let kernel = Kernel { module: "nn/recurrence", ptx: PTX, name: &name };
    let (places, tiles, first) =
        (list.on_device.places.address(), list.on_device.tiles.address(), list.on_device.first.address());
    let (fragments, projected) = (fragments.forward.address(), inputs.projected.address());
    let (hidden, cell, gates) = (states.hidden.address(), states.cell.address(), states.gates.address());
    let arguments = arguments![places, tiles, list.hidden() as u32, fragments, projected, first, hidden, cell, gates];
    // SAFETY: the list was made of rows within the projected inputs, and all arrays were seen to
    // have its lengths; a block writes the states and gates of its own windows. What is submitted
    // to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch, &arguments) }?)
}

/// As [`persistent`], by groups of blocks where there is room for one.
fn by_groups<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    inputs: &RecurrenceInputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    let name = group::kernel_name::<T>("forward", fragments.units);
    let kernel = Kernel { module: "nn/recurrence_group", ptx: PTX_OF_GROUPS, name: &name };
    let Some(groups) = Groups::for_launch(&kernel, fragments.units, device, list, &mut states.scratch)? else {
        return cell::forward(device, list, inputs, states);
    };
    let (places, tiles, first) =
        (list.on_device.places.address(), list.on_device.tiles.address(), list.on_device.first.address());
    let [tile_count, each, width, units] = groups.shares.numbers(list);
    let (fragments, projected, arrived) = (fragments.forward.address(), inputs.projected.address(), groups.arrived);
    let (hidden, cell, gates) = (states.hidden.address(), states.cell.address(), states.gates.address());
    let arguments = arguments![
        places, tiles, tile_count, each, width, units, fragments, projected, first, hidden, cell, gates, arrived
    ];
    // SAFETY: as in `persistent`, but that a block writes the states and gates of its own units of
    // its group's windows, and reads those of the other blocks when they have announced them, in
    // `arrived`, which has a number for each block. All of them run at once.
    Ok(unsafe { kernel.submit(device, groups.launch, &arguments) }?)
}

/// Name and grid of a persistent kernel.
pub(super) fn kernel<T: Operand>(direction: &str, list: &WorkList, units: usize) -> (String, Option<Launch>) {
    let name = format!("{direction}_{}_{units}_{}", T::SUFFIX, list.tile_windows());
    (name, Launch::for_blocks(list.tiles()).map(|launch| launch.with_threads(2 * units as u32)))
}

#[cfg(test)]
pub(super) mod tests;
