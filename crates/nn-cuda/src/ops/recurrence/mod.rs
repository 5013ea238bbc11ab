//! The recurrence of LSTM layers, forward: all steps of all timeframes.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Cuda, Device, arguments};
use megabatch_nn::Result;

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
    assert!(inputs.projected.len() >= list.projected_rows() * 4 * list.hidden(), "projected inputs of the list");
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

#[cfg(feature = "conformance")]
pub(super) mod cpu {
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
}

#[cfg(test)]
pub(super) mod tests;
