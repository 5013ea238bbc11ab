//! Element-wise operations between the products of a fusion.

use megabatch_gpu_core::kernel::Launch;
use megabatch_gpu_core::{Buffer, Device, arguments};

use super::super::operand::Operand;
use super::{FuseMemory, submit};
use crate::error::Result;

/// ReLU, in place.
pub(super) fn rectify(x: &mut Buffer<f32>) -> Result<()> {
    match x.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![x.address(), x.len() as u64];
            // SAFETY: a thread changes an element.
            unsafe { submit(&device, "rectify", Launch::over(x.len()), &arguments) }
        }
        _ => {
            x.as_mut_slice().iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = 0.0);
            Ok(())
        }
    }
}

/// The gradient of what [`rectify`] left as `x` becomes that of what it was given.
pub(super) fn rectify_backward(x: &Buffer<f32>, d: &mut Buffer<f32>) -> Result<()> {
    assert_eq!(x.len(), d.len(), "numbers and their gradients");
    match d.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![x.address(), d.address(), x.len() as u64];
            // SAFETY: a thread changes an element, and reads one of as many.
            unsafe { submit(&device, "rectify_backward", Launch::over(x.len()), &arguments) }
        }
        _ => {
            let pairs = d.as_mut_slice().iter_mut().zip(x.as_slice());
            pairs.filter(|(_, x)| **x == 0.0).for_each(|(d, _)| *d = 0.0);
            Ok(())
        }
    }
}

/// The mean of each sample's tokens, rounded to `T`.
pub(super) fn mean_of_tokens<T: Operand>(memory: &FuseMemory, fused: &mut Buffer<T>) -> Result<()> {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    match fused.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![sizes.of_kernel(), memory.second.address(), fused.address(), share];
            // SAFETY: a thread writes an element of `fused`, which `fuse` has seen to be there,
            // from those of its sample's tokens.
            unsafe { submit(&device, &mean_kernel::<T>(), Launch::over(sizes.samples * sizes.hidden), &arguments) }
        }
        _ => {
            let samples = memory.second.as_slice().chunks_exact(sizes.tokens * sizes.hidden).take(sizes.samples);
            for (fused, tokens) in fused.as_mut_slice().chunks_exact_mut(sizes.hidden).zip(samples) {
                for (unit, fused) in fused.iter_mut().enumerate() {
                    let numbers = tokens[unit..].iter().step_by(sizes.hidden);
                    *fused = T::narrow(numbers.fold(0.0, |sum, x| sum + x * share));
                }
            }
            Ok(())
        }
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
            let arguments = arguments![sizes.of_kernel(), d_fused.address(), memory.d_tokens.address(), share];
            // SAFETY: a thread writes an element of `d_tokens`, from one of its sample's.
            unsafe { submit(&device, "spread_to_tokens", Launch::over(sizes.rows() * sizes.hidden), &arguments) }
        }
        _ => {
            let rows = memory.d_tokens.as_mut_slice().chunks_exact_mut(sizes.hidden).take(sizes.rows());
            for (row, to) in rows.enumerate() {
                let from = &d_fused.as_slice()[row / sizes.tokens * sizes.hidden..];
                to.iter_mut().zip(from).for_each(|(to, d)| *to = d * share);
            }
            Ok(())
        }
    }
}
