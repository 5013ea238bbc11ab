//! Attention among the tokens of a sample, head by head.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::{Device, arguments};
use megabatch_nn::Result;

#[cfg(feature = "conformance")]
use super::cpu;
use super::{FuseMemory, submit};

/// Weights and what tokens see with them, from q, k and v.
pub(super) fn attend(memory: &mut FuseMemory) -> Result<()> {
    let (sizes, scale) = (memory.sizes, memory.sizes.scale());
    match memory.qkv.scope().device().clone() {
        Device::Cuda(device) => {
            let (qkv, weights, seen) = (memory.qkv.address(), memory.weights.address(), memory.seen.address());
            let arguments = arguments![sizes.kernel_tokens(), qkv, scale, weights, seen];
            // SAFETY: a block reads and writes numbers of its sample, in buffers of the sizes.
            unsafe { submit(&device, "attend", sizes.launch(), &arguments) }
        }
        _ => cpu_arm!(cpu::attend(memory)),
    }
}

/// The gradients of q, k and v from those of what tokens saw.
pub(super) fn attend_backward(memory: &mut FuseMemory) -> Result<()> {
    let (sizes, scale) = (memory.sizes, memory.sizes.scale());
    match memory.qkv.scope().device().clone() {
        Device::Cuda(device) => {
            let (qkv, weights, d_seen) = (memory.qkv.address(), memory.weights.address(), memory.d_seen.address());
            let (d_scores, d_qkv) = (memory.d_scores.address(), memory.d_qkv.address());
            let arguments = arguments![sizes.kernel_tokens(), qkv, scale, weights, d_seen, d_scores, d_qkv];
            // SAFETY: as in `attend`.
            unsafe { submit(&device, "attend_backward", sizes.launch(), &arguments) }
        }
        _ => cpu_arm!(cpu::attend_backward(memory)),
    }
}
