//! From the keys to the weights of states and the states summed up with them, and back.

use megabatch_gpu_core::kernel::Kernel;
use megabatch_gpu_core::{Buffer, Device, arguments};

use super::super::lanes;
use super::super::operand::{Operand, Part};
use super::{PTX, PoolMemory, PoolSizes};
use crate::error::Result;

/// The weights of the states, and the states summed up with them.
pub(super) fn sum_states<T: Operand>(states: Part<'_, T>, memory: &mut PoolMemory) -> Result<()> {
    match memory.keys.scope().device().clone() {
        Device::Cuda(device) => {
            let name = format!("pool_{}", T::SUFFIX);
            let kernel = Kernel { module: "nn/pool", ptx: PTX, name: &name };
            let (keys, weights, sums) = (memory.keys.address(), memory.weights.address(), memory.sums.address());
            let arguments = arguments![memory.sizes, states.address(), keys, weights, sums];
            // SAFETY: a block reads the states of its window, of which `pool` has seen that they
            // are there, and writes its own weights and sums. What is submitted to the default
            // stream later runs after it.
            Ok(unsafe { kernel.submit(&device, memory.sizes.launch(), &arguments) }?)
        }
        _ => {
            let PoolMemory { sizes, keys, weights, sums, .. } = memory;
            cpu(*sizes, states.elements(), keys.as_slice(), weights.as_mut_slice(), sums.as_mut_slice());
            Ok(())
        }
    }
}

/// From the gradients of the sums to those of the states, and of the keys by window.
pub(super) fn sum_states_backward<T: Operand>(
    states: Part<'_, T>,
    memory: &mut PoolMemory,
    d_states: &mut Buffer<f32>,
    start: usize,
) -> Result<()> {
    match memory.keys.scope().device().clone() {
        Device::Cuda(device) => {
            let name = format!("pool_backward_{}", T::SUFFIX);
            let kernel = Kernel { module: "nn/pool", ptx: PTX, name: &name };
            let (keys, weights, d_sums) = (memory.keys.address(), memory.weights.address(), memory.d_sums.address());
            let (d_scores, d_keys) = (memory.d_scores.address(), memory.d_keys_of.address());
            let d_states = Part { buffer: d_states, start }.address();
            let arguments =
                arguments![memory.sizes, states.address(), keys, weights, d_sums, d_scores, d_states, d_keys];
            // SAFETY: as in `sum_states`; `pool_backward` has seen that `d_states` has the same
            // shape.
            Ok(unsafe { kernel.submit(&device, memory.sizes.launch(), &arguments) }?)
        }
        _ => {
            let d_states = &mut d_states.as_mut_slice()[start..];
            cpu_backward(states.elements(), memory, d_states);
            Ok(())
        }
    }
}

fn cpu<T: Operand>(sizes: PoolSizes, states: &[T], keys: &[f32], weights: &mut [f32], sums: &mut [f32]) {
    let [steps, windows, heads, hidden] = sizes.wide();
    for (row, weights) in weights.chunks_exact_mut(steps).take(windows * heads).enumerate() {
        let (window, head) = (row / heads, row % heads);
        let key = &keys[head * hidden..][..hidden];
        let state = |t: usize| &states[(t * windows + window) * hidden..][..hidden];
        for (t, weight) in weights.iter_mut().enumerate() {
            *weight = lanes::sum(hidden, |k| key[k] * state(t)[k].widen());
        }
        let most = weights.iter().fold(f32::NEG_INFINITY, |most, &score| if score > most { score } else { most });
        weights.iter_mut().for_each(|weight| *weight = (*weight - most).exp());
        let sum = lanes::sum(steps, |t| weights[t]);
        weights.iter_mut().for_each(|weight| *weight /= sum);
        let sums = &mut sums[(head * windows + window) * hidden..][..hidden];
        for (k, sum) in sums.iter_mut().enumerate() {
            *sum = weights.iter().enumerate().fold(0.0, |sum, (t, weight)| sum + weight * state(t)[k].widen());
        }
    }
}

fn cpu_backward<T: Operand>(states: &[T], memory: &mut PoolMemory, d_states: &mut [f32]) {
    let [steps, windows, heads, hidden] = memory.sizes.wide();
    let (keys, d_sums) = (memory.keys.as_slice(), memory.d_sums.as_slice());
    let state = |t: usize, window: usize| &states[(t * windows + window) * hidden..][..hidden];
    let rows =
        memory.weights.as_slice().chunks_exact(steps).zip(memory.d_scores.as_mut_slice().chunks_exact_mut(steps));
    d_states[..steps * windows * hidden].fill(0.0);
    for (row, (weights, d_scores)) in rows.take(windows * heads).enumerate() {
        let (window, head) = (row / heads, row % heads);
        let (key, d_sum) = (&keys[head * hidden..][..hidden], &d_sums[(head * windows + window) * hidden..][..hidden]);
        for (t, d) in d_scores.iter_mut().enumerate() {
            *d = lanes::sum(hidden, |k| d_sum[k] * state(t, window)[k].widen());
        }
        let mean = lanes::sum(steps, |t| weights[t] * d_scores[t]);
        d_scores.iter_mut().zip(weights).for_each(|(d, weight)| *d = weight * (*d - mean));
        for (t, (weight, d_score)) in weights.iter().zip(&*d_scores).enumerate() {
            let d_state = &mut d_states[(t * windows + window) * hidden..][..hidden];
            for ((d, d_sum), key) in d_state.iter_mut().zip(d_sum).zip(key) {
                *d = *d + weight * d_sum + d_score * key;
            }
        }
        let d_key = &mut memory.d_keys_of.as_mut_slice()[(window * heads + head) * hidden..][..hidden];
        for (k, d_key) in d_key.iter_mut().enumerate() {
            *d_key = d_scores.iter().enumerate().fold(0.0, |sum, (t, d)| sum + d * state(t, window)[k].widen());
        }
    }
}
