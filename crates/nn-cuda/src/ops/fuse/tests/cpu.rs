#![forbid(unsafe_code)]

//! Attention among tokens and element-wise operations of a fusion on the CPU.

use super::{FuseMemory, FuseSizes};
use crate::ops::lanes;
use crate::ops::operand::Operand;

pub(super) fn rectify(x: &mut [f32]) {
    x.iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = 0.0);
}

pub(super) fn rectify_backward(x: &[f32], d: &mut [f32]) {
    d.iter_mut().zip(x).filter(|(_, x)| **x == 0.0).for_each(|(d, _)| *d = 0.0);
}

pub(super) fn mean_of_tokens<T: Operand>(memory: &FuseMemory, fused: &mut [T]) {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    let samples = memory.second.as_slice().chunks_exact(sizes.tokens * sizes.hidden).take(sizes.samples);
    for (fused, tokens) in fused.chunks_exact_mut(sizes.hidden).zip(samples) {
        for (unit, fused) in fused.iter_mut().enumerate() {
            let numbers = tokens[unit..].iter().step_by(sizes.hidden);
            *fused = T::narrow(numbers.fold(0.0, |sum, x| sum + x * share));
        }
    }
}

pub(super) fn spread_to_tokens(d_fused: &[f32], memory: &mut FuseMemory) {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    let rows = memory.d_tokens.as_mut_slice().chunks_exact_mut(sizes.hidden).take(sizes.rows());
    for (row, to) in rows.enumerate() {
        let from = &d_fused[row / sizes.tokens * sizes.hidden..];
        to.iter_mut().zip(from).for_each(|(to, d)| *to = d * share);
    }
}

/// The place of a head's part of q, k or v (`which`: 0, 1, 2) of a token, in `[n, 3H]`.
fn part(sizes: FuseSizes, head: usize, which: usize, token: usize) -> std::ops::Range<usize> {
    let start = (3 * token + which) * sizes.hidden + head * sizes.head_width();
    start..start + sizes.head_width()
}

/// Scores become weights that sum to one.
fn softmax(scores: &mut [f32]) {
    let most = scores.iter().fold(scores[0], |most, &score| if score > most { score } else { most });
    scores.iter_mut().for_each(|score| *score = (*score - most).exp());
    let sum = scores.iter().fold(0.0, |sum, weight| sum + weight);
    scores.iter_mut().for_each(|weight| *weight /= sum);
}

pub(super) fn attend(memory: &mut FuseMemory) {
    let FuseMemory { sizes, qkv, weights, seen, .. } = memory;
    let (sizes, qkv) = (*sizes, qkv.as_slice());
    let (weights, seen) = (weights.as_mut_slice(), seen.as_mut_slice());
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
        softmax(weights);
        let to = &mut seen[(sample * tokens + token) * hidden + head * width..][..width];
        for (other, weight) in weights.iter().enumerate() {
            let values = &qkv[part(sizes, head, 2, other)];
            to.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
        }
    }
}

pub(super) fn attend_backward(memory: &mut FuseMemory) {
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
