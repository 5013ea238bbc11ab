//! The recurrence of LSTM layers, backward: all steps of all timeframes.

use megabatch_gpu_core::kernel::Kernel;
use megabatch_gpu_core::{Buffer, Cuda, Device, Scope, arguments};
use megabatch_nn::Result;

use super::capacity::ensure_capacity;
use super::cell;
use super::group::{self, Groups};
use super::operand::Operand;
use super::recurrence::{States, kernel};
use super::recurrence_f32;
use super::recurrent_weights::{Fragments, RecurrentWeights, persistent_units};
use super::scratch::Scratch;
use super::work_list::WorkList;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrence_backward");
pub(super) const PTX_OF_GROUPS: &str = megabatch_gpu_core::ptx!("recurrence_group_backward");

/// Gradients through the recurrence, sequence after sequence; behind it there may be room for more.
#[derive(Debug)]
pub struct Gradients<T: Operand> {
    /// `[Σ T·B, H]`: of the hidden state after each step, from above; none where only the last one
    /// is read.
    pub outputs: Option<Buffer<f32>>,
    /// `[Σ B, H]`: of the last hidden states; they become those of the first ones.
    pub hidden: Buffer<f32>,
    /// The same of the cells.
    pub cell: Buffer<f32>,
    /// `[Σ T·B, H, 4]`: of the gates before their functions, rounded as the products read them that
    /// follow.
    pub gates: Buffer<T>,
    /// For what blocks tell each other.
    scratch: Scratch,
}

impl<T: Operand> Gradients<T> {
    /// Zeroed buffers for the gradients of a list of which only the last states are read.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn zeros(scope: &Scope, list: &WorkList) -> Result<Self> {
        let len = list.windows() * list.hidden();
        let gates = Buffer::zeros(scope, list.rows() * 4 * list.hidden())?;
        let (hidden, cell) = (Buffer::zeros(scope, len)?, Buffer::zeros(scope, len)?);
        Ok(Gradients { outputs: None, hidden, cell, gates, scratch: Scratch::empty(scope)? })
    }

    /// Ensures capacity for the gradients of a list, those of every output apart; what
    /// was there may be lost.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn ensure_capacity(&mut self, list: &WorkList) -> Result<()> {
        ensure_capacity(&mut self.hidden, list.windows() * list.hidden())?;
        ensure_capacity(&mut self.cell, list.windows() * list.hidden())?;
        ensure_capacity(&mut self.gates, list.rows() * 4 * list.hidden())
    }

    /// Bytes with room for so many rows and windows, those of every output apart.
    pub(crate) fn bytes(rows: usize, windows: usize, hidden: usize) -> usize {
        2 * windows * hidden * size_of::<f32>() + rows * 4 * hidden * size_of::<T>()
    }

    /// Bytes of what a GPU needs between the launches of a list whose sequences have so many
    /// windows at most.
    pub(crate) fn scratch_bytes_on_gpu(windows: &[usize], hidden: usize) -> usize {
        let units = persistent_units::<T>(hidden);
        units.map_or(0, |units| Scratch::bytes::<u32>(group::arrived_max(windows, units)))
    }

    fn assert_fit(&self, list: &WorkList) {
        let (edge, steps) = (list.windows() * list.hidden(), list.rows() * list.hidden());
        let lens = [self.hidden.len(), self.cell.len(), self.gates.len()];
        let needed = [edge, edge, 4 * steps];
        assert!(lens.iter().zip(needed).all(|(&len, needed)| len >= needed), "gradients of the list");
        assert!(self.outputs.as_ref().is_none_or(|outputs| outputs.len() >= steps), "gradients of every output");
        let outputs = self.outputs.as_ref().map(Buffer::scope);
        let scopes = [self.hidden.scope(), self.cell.scope(), self.gates.scope()].into_iter().chain(outputs);
        scopes.for_each(|scope| list.device().assert_beside(scope.device()));
    }
}

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
