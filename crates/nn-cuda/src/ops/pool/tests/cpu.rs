//! Attention pooling on the CPU.

use super::keys::{AffineOffsets, WARPS};
use super::{PoolMemory, PoolSizes, PoolSlots, PoolWeights};
use crate::ops::lanes;
use crate::ops::operand::Operand;

pub(super) fn find_keys(weights: PoolWeights<'_>, memory: &mut PoolMemory) {
    let PoolSlots { query, in_weight, in_bias, out_weight, out_bias } = weights.slots;
    let [_, _, _, hidden] = memory.sizes.wide();
    let parameter = |start: usize| weights.parameter(start).elements();
    let PoolMemory { sizes, query: scaled, keys, bias, .. } = memory;
    let scaled = scaled.as_mut_slice();
    scaled_query(*sizes, parameter(query), parameter(in_weight), parameter(in_bias), scaled);
    keys_of(*sizes, scaled, parameter(in_weight + hidden * hidden), keys.as_mut_slice());
    bias_of(parameter(in_bias + 2 * hidden), parameter(out_weight), parameter(out_bias), bias.as_mut_slice());
}

pub(super) fn affine_backward(weights: PoolWeights<'_>, d: &[f32], place: AffineOffsets, gradients: &mut [f32]) {
    let (hidden, AffineOffsets { x, weight, bias }) = (d.len(), place);
    let (x_of, weight_of) = (weights.parameter(x).elements(), weights.parameter(weight).elements());
    for column in 0..hidden {
        let warp = |warp: usize| {
            let rows = (warp..hidden).step_by(WARPS);
            rows.fold(0.0, |sum, row| sum + d[row] * weight_of[row * hidden + column])
        };
        gradients[x + column] += (1..WARPS).fold(warp(0), |sum, other| sum + warp(other));
        gradients[bias + column] += d[column];
        for row in 0..hidden {
            gradients[weight + row * hidden + column] += d[row] * x_of[column];
        }
    }
}

fn product(weight: &[f32], row: usize, x: &[f32], hidden: usize) -> f32 {
    lanes::sum(hidden, |k| weight[row * hidden + k] * x[k])
}

/// (W_q query + b_q) / √d.
fn scaled_query(sizes: PoolSizes, query: &[f32], weight: &[f32], bias: &[f32], scaled: &mut [f32]) {
    let [_, _, _, hidden] = sizes.wide();
    for (row, scaled) in scaled.iter_mut().enumerate() {
        *scaled = (product(weight, row, query, hidden) + bias[row]) * sizes.scale();
    }
}

/// W_kᵀ of the scaled query, head by head.
fn keys_of(sizes: PoolSizes, scaled: &[f32], weight: &[f32], keys: &mut [f32]) {
    let ([_, _, _, hidden], width) = (sizes.wide(), sizes.head_width());
    for (k, key) in keys.iter_mut().enumerate() {
        let rows = (k / hidden * width..).take(width);
        *key = rows.fold(0.0, |sum, row| sum + scaled[row] * weight[row * hidden + k % hidden]);
    }
}

/// W_o b_v + b_o.
fn bias_of(bias_v: &[f32], weight_o: &[f32], bias_o: &[f32], bias: &mut [f32]) {
    let hidden = bias.len();
    for (row, bias) in bias.iter_mut().enumerate() {
        *bias = product(weight_o, row, bias_v, hidden) + bias_o[row];
    }
}

/// From the gradients of the keys to those of the scaled query's input and of W_k.
pub(super) fn keys_backward(
    sizes: PoolSizes,
    d_keys: &[f32],
    scaled: &[f32],
    weight: &[f32],
    d_query: &mut [f32],
    d_weight: &mut [f32],
) {
    let ([_, _, _, hidden], width) = (sizes.wide(), sizes.head_width());
    for (row, d) in d_query.iter_mut().enumerate() {
        let d_key = &d_keys[row / width * hidden..][..hidden];
        *d = lanes::sum(hidden, |k| d_key[k] * weight[row * hidden + k]) * sizes.scale();
        for (d, d_key) in d_weight[row * hidden..][..hidden].iter_mut().zip(d_key) {
            *d += scaled[row] * d_key;
        }
    }
}

pub(super) fn sum_states<T: Operand>(states: &[T], memory: &mut PoolMemory) {
    let PoolMemory { sizes, keys, weights, sums, .. } = memory;
    let (keys, weights, sums) = (keys.as_slice(), weights.as_mut_slice(), sums.as_mut_slice());
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

pub(super) fn sum_states_backward<T: Operand>(states: &[T], memory: &mut PoolMemory, d_states: &mut [f32]) {
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
