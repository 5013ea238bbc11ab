//! Attention among the tokens of a sample, head by head.

use megabatch_gpu_core::{Device, arguments};

use super::super::lanes;
use super::{FuseMemory, FuseSizes, submit};
use crate::error::Result;

/// Weights and what tokens see with them, from q, k and v.
pub(super) fn attend(memory: &mut FuseMemory) -> Result<()> {
    let (sizes, scale) = (memory.sizes, memory.sizes.scale());
    match memory.qkv.scope().device().clone() {
        Device::Cuda(device) => {
            let (qkv, weights, seen) = (memory.qkv.address(), memory.weights.address(), memory.seen.address());
            let arguments = arguments![sizes.of_kernel(), qkv, scale, weights, seen];
            // SAFETY: a block reads and writes numbers of its sample, in buffers of the sizes.
            unsafe { submit(&device, "attend", sizes.launch(), &arguments) }
        }
        _ => {
            cpu_attend(sizes, memory.qkv.as_slice(), memory.weights.as_mut_slice(), memory.seen.as_mut_slice());
            Ok(())
        }
    }
}

/// The gradients of q, k and v from those of what tokens saw.
pub(super) fn attend_backward(memory: &mut FuseMemory) -> Result<()> {
    let (sizes, scale) = (memory.sizes, memory.sizes.scale());
    match memory.qkv.scope().device().clone() {
        Device::Cuda(device) => {
            let (qkv, weights, d_seen) = (memory.qkv.address(), memory.weights.address(), memory.d_seen.address());
            let (d_scores, d_qkv) = (memory.d_scores.address(), memory.d_qkv.address());
            let arguments = arguments![sizes.of_kernel(), qkv, scale, weights, d_seen, d_scores, d_qkv];
            // SAFETY: as in `attend`.
            unsafe { submit(&device, "attend_backward", sizes.launch(), &arguments) }
        }
        _ => {
            cpu_attend_backward(memory);
            Ok(())
        }
    }
}

/// The place of a head's part of q, k or v (`which`: 0, 1, 2) of a token, in `[n, 3H]`.
fn part(sizes: FuseSizes, head: usize, which: usize, token: usize) -> std::ops::Range<usize> {
    let start = (3 * token + which) * sizes.hidden + head * sizes.head_width();
    start..start + sizes.head_width()
}

fn cpu_attend(sizes: FuseSizes, qkv: &[f32], weights: &mut [f32], seen: &mut [f32]) {
    let FuseSizes { tokens, heads, hidden, .. } = sizes;
    let (width, scale) = (sizes.head_width(), sizes.scale());
    seen.fill(0.0);
    for (row, weights) in weights.chunks_exact_mut(tokens).enumerate() {
        let (sample, head, token) = (row / tokens / heads, row / tokens % heads, row % tokens);
        let qkv = &qkv[sample * 3 * tokens * hidden..];
        let query = &qkv[part(sizes, head, 0, token)];
        for (other, weight) in weights.iter_mut().enumerate() {
            let key = &qkv[part(sizes, head, 1, other)];
            *weight = lanes::sum(width, |k| query[k] * key[k]) * scale;
        }
        crate::cpu::pooling::softmax(weights);
        let to = &mut seen[(sample * tokens + token) * hidden + head * width..][..width];
        for (other, weight) in weights.iter().enumerate() {
            let values = &qkv[part(sizes, head, 2, other)];
            to.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
        }
    }
}

fn cpu_attend_backward(memory: &mut FuseMemory) {
    let (sizes, d_seen) = (memory.sizes, memory.d_seen.as_slice());
    let FuseSizes { tokens, heads, hidden, .. } = sizes;
    let (width, scale) = (sizes.head_width(), sizes.scale());
    let d_scores = memory.d_scores.as_mut_slice().chunks_exact_mut(tokens);
    memory.d_qkv.as_mut_slice().fill(0.0);
    for (row, (weights, d_scores)) in memory.weights.as_slice().chunks_exact(tokens).zip(d_scores).enumerate() {
        let (sample, head, token) = (row / tokens / heads, row / tokens % heads, row % tokens);
        let first = sample * 3 * tokens * hidden;
        let (qkv, d_qkv) = (&memory.qkv.as_slice()[first..], &mut memory.d_qkv.as_mut_slice()[first..]);
        let d_seen = &d_seen[(sample * tokens + token) * hidden + head * width..][..width];
        for (other, d) in d_scores.iter_mut().enumerate() {
            let values = &qkv[part(sizes, head, 2, other)];
            *d = lanes::sum(width, |k| d_seen[k] * values[k]);
        }
        let mean = weights.iter().zip(&*d_scores).fold(0.0, |sum, (weight, d)| sum + weight * d);
        d_scores.iter_mut().zip(weights).for_each(|(d, weight)| *d = weight * (*d - mean) * scale);
        let mut add = |to: (usize, usize), token: usize, factor: f32, from: &[f32]| {
            d_qkv[part(sizes, to.0, to.1, token)].iter_mut().zip(from).for_each(|(sum, x)| *sum += factor * x);
        };
        for (other, (&weight, &d_score)) in weights.iter().zip(&*d_scores).enumerate() {
            add((head, 2), other, weight, d_seen);
            add((head, 0), token, d_score, &qkv[part(sizes, head, 1, other)]);
            add((head, 1), other, d_score, &qkv[part(sizes, head, 0, token)]);
        }
    }
}
