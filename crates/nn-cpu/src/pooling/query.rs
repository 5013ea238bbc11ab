//! From the query to the key of each head, and back, in single precision: vectors times matrices,
//! once an optimizer step forward and once a shard backward.

use megabatch_nn::model::TensorSet;
use megabatch_nn::model::pooling::AttentionPooling;

use crate::matmul::{Matrix, Output, multiply};

/// The keys u [heads, H], whose products with the states are the scores.
pub(crate) fn find_keys(pooling: &AttentionPooling, parameters: &TensorSet, keys: &mut [f32]) {
    let (hidden, width) = (pooling.hidden, pooling.head_width());
    let query = scaled_query(pooling, parameters);
    let weight_k = &parameters.slot(pooling.in_weight)[hidden * hidden..2 * hidden * hidden];
    let heads = query.chunks_exact(width).zip(weight_k.chunks_exact(width * hidden));
    for ((query, weight_k), key) in heads.zip(keys.chunks_exact_mut(hidden)) {
        let weight_k = Matrix::new(weight_k, width, hidden);
        multiply(Matrix::new(query, 1, width), weight_k, Output::Overwrite, key);
    }
}

/// Adds the gradients of W_q, W_k, b_q and the query from those of the keys [heads, H].
pub(crate) fn keys_backward(
    pooling: &AttentionPooling,
    parameters: &TensorSet,
    d_keys: &[f32],
    gradients: &mut TensorSet,
) {
    let (hidden, width) = (pooling.hidden, pooling.head_width());
    let square = hidden * hidden;
    let scaled = scaled_query(pooling, parameters);
    let mut d_q = vec![0.0; hidden];
    for (head, d_key) in d_keys.chunks_exact(hidden).enumerate() {
        let (rows, own) = (square + head * width * hidden, head * width..(head + 1) * width);
        let weight_k = Matrix::new(&parameters.slot(pooling.in_weight)[rows..][..width * hidden], width, hidden);
        multiply(weight_k, Matrix::new(d_key, hidden, 1), Output::Overwrite, &mut d_q[own.clone()]);
        let d_weight_k = &mut gradients.slot_mut(pooling.in_weight)[rows..][..width * hidden];
        multiply(Matrix::new(&scaled[own], width, 1), Matrix::new(d_key, 1, hidden), Output::Add, d_weight_k);
    }
    let scale = scale(pooling);
    d_q.iter_mut().for_each(|d| *d *= scale);

    let query = Matrix::new(parameters.slot(pooling.query), 1, hidden);
    let d_weight_q = &mut gradients.slot_mut(pooling.in_weight)[..square];
    multiply(Matrix::new(&d_q, hidden, 1), query, Output::Add, d_weight_q);
    gradients.slot_mut(pooling.in_bias).iter_mut().zip(&d_q).for_each(|(sum, &term)| *sum += term);
    let weight_q = Matrix::new(&parameters.slot(pooling.in_weight)[..square], hidden, hidden);
    multiply(Matrix::new(&d_q, 1, hidden), weight_q, Output::Add, gradients.slot_mut(pooling.query));
}

/// (W_q query + b_q) / √d, [H].
fn scaled_query(pooling: &AttentionPooling, parameters: &TensorSet) -> Vec<f32> {
    let hidden = pooling.hidden;
    let mut q = parameters.slot(pooling.in_bias)[..hidden].to_vec();
    let weight_q = Matrix::new(&parameters.slot(pooling.in_weight)[..hidden * hidden], hidden, hidden);
    multiply(weight_q, Matrix::new(parameters.slot(pooling.query), hidden, 1), Output::Add, &mut q);
    let scale = scale(pooling);
    q.iter_mut().for_each(|q| *q *= scale);
    q
}

/// 1 / √d.
fn scale(pooling: &AttentionPooling) -> f32 {
    (1.0 / (pooling.head_width() as f64).sqrt()) as f32
}
