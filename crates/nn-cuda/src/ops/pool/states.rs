//! From the keys to the weights of states and the states summed up with them, and back.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::Kernel;
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;

use super::super::operand::{Operand, TensorSlice};
#[cfg(feature = "conformance")]
use super::cpu;
use super::{PTX, PoolMemory};

/// The weights of the states, and the states summed up with them.
pub(super) fn sum_states<T: Operand>(states: TensorSlice<'_, T>, memory: &mut PoolMemory) -> Result<()> {
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
        _ => cpu_arm!(cpu::sum_states(states.elements(), memory)),
    }
}

/// From the gradients of the sums to those of the states, and of the keys by window.
pub(super) fn sum_states_backward<T: Operand>(
    states: TensorSlice<'_, T>,
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
            let d_states = TensorSlice { buffer: d_states, start }.address();
            let arguments =
                arguments![memory.sizes, states.address(), keys, weights, d_sums, d_scores, d_states, d_keys];
            // SAFETY: as in `sum_states`; `pool_backward` has seen that `d_states` has the same
            // shape.
            Ok(unsafe { kernel.submit(&device, memory.sizes.launch(), &arguments) }?)
        }
        _ => cpu_arm!(cpu::sum_states_backward(states.elements(), memory, &mut d_states.as_mut_slice()[start..])),
    }
}
