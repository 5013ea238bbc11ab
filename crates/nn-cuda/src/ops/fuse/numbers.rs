//! Element-wise operations between the products of a fusion.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::Launch;
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;

use super::super::operand::Operand;
#[cfg(feature = "conformance")]
use super::cpu;
use super::{FuseMemory, submit};

/// ReLU, in place.
pub(super) fn rectify(x: &mut Buffer<f32>) -> Result<()> {
    match x.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![x.address(), x.len() as u64];
            // SAFETY: a thread changes an element.
            unsafe { submit(&device, "rectify", Launch::for_threads(x.len()), &arguments) }
        }
        _ => cpu_arm!(cpu::rectify(x.as_mut_slice())),
    }
}

/// The gradient of what [`rectify`] left as `x` becomes that of what it was given.
pub(super) fn rectify_backward(x: &Buffer<f32>, d: &mut Buffer<f32>) -> Result<()> {
    assert_eq!(x.len(), d.len(), "numbers and their gradients");
    match d.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![x.address(), d.address(), x.len() as u64];
            // SAFETY: a thread changes an element, and reads one of as many.
            unsafe { submit(&device, "rectify_backward", Launch::for_threads(x.len()), &arguments) }
        }
        _ => cpu_arm!(cpu::rectify_backward(x.as_slice(), d.as_mut_slice())),
    }
}

/// The mean of each sample's tokens, rounded to `T`.
pub(super) fn mean_of_tokens<T: Operand>(memory: &FuseMemory, fused: &mut Buffer<T>) -> Result<()> {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    match fused.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![sizes.kernel_tokens(), memory.second.address(), fused.address(), share];
            // SAFETY: a thread writes an element of `fused`, which `fuse` has seen to be there,
            // from those of its sample's tokens.
            unsafe {
                submit(&device, &mean_kernel::<T>(), Launch::for_threads(sizes.samples * sizes.hidden), &arguments)
            }
        }
        _ => cpu_arm!(cpu::mean_of_tokens(memory, fused.as_mut_slice())),
    }
}

pub(super) fn mean_kernel<T: Operand>() -> String {
    format!("mean_of_tokens_{}", T::SUFFIX)
}

/// The gradient of that mean, for each token.
pub(super) fn spread_to_tokens(d_fused: &Buffer<f32>, memory: &mut FuseMemory) -> Result<()> {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    assert!(d_fused.len() >= sizes.samples * sizes.hidden, "a gradient for every sample");
    match d_fused.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![sizes.kernel_tokens(), d_fused.address(), memory.d_tokens.address(), share];
            // SAFETY: a thread writes an element of `d_tokens`, from one of its sample's.
            unsafe { submit(&device, "spread_to_tokens", Launch::for_threads(sizes.rows() * sizes.hidden), &arguments) }
        }
        _ => cpu_arm!(cpu::spread_to_tokens(d_fused.as_slice(), memory)),
    }
}
