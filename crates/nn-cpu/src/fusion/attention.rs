//! Attention among the tokens of a sample, head by head.

use megabatch_nn::model::fusion::FusionSizes;

/// Numbers of one sample: the tokens' q, k and v side by side [n, 3H], and weights [heads, n, n].
#[derive(Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) qkv: &'a [f32],
    pub(super) weights: &'a [f32],
}

/// The place of a head's part of q, k or v (`which`: 0, 1, 2) of a token, in [n, 3H].
fn part(sizes: FusionSizes, head: usize, which: usize, token: usize) -> std::ops::Range<usize> {
    let start = (3 * token + which) * sizes.hidden + head * sizes.head_width();
    start..start + sizes.head_width()
}

/// Weights [heads, n, n] and what the tokens see with them [n, H].
pub(super) fn forward(sizes: FusionSizes, qkv: &[f32], weights: &mut [f32], seen: &mut [f32]) {
    let scale = (1.0 / (sizes.head_width() as f64).sqrt()) as f32;
    seen.fill(0.0);
    for (row, weights) in weights.chunks_exact_mut(sizes.tokens).enumerate() {
        let (head, token) = (row / sizes.tokens, row % sizes.tokens);
        let query = &qkv[part(sizes, head, 0, token)];
        for (other, weight) in weights.iter_mut().enumerate() {
            *weight = dot(query, &qkv[part(sizes, head, 1, other)]) * scale;
        }
        crate::pooling::softmax(weights);
        let to = &mut seen[token * sizes.hidden + head * sizes.head_width()..][..sizes.head_width()];
        for (other, &weight) in weights.iter().enumerate() {
            add_scaled(to, weight, &qkv[part(sizes, head, 2, other)]);
        }
    }
}

/// Writes the gradient of q, k and v [n, 3H] from that of what the tokens saw [n, H].
pub(super) fn backward(sizes: FusionSizes, sample: Sample<'_>, d_seen: &[f32], d_qkv: &mut [f32]) {
    let scale = (1.0 / (sizes.head_width() as f64).sqrt()) as f32;
    d_qkv.fill(0.0);
    for (row, weights) in sample.weights.chunks_exact(sizes.tokens).enumerate() {
        let (head, token) = (row / sizes.tokens, row % sizes.tokens);
        let d_seen = &d_seen[token * sizes.hidden + head * sizes.head_width()..][..sizes.head_width()];
        let d_weight = |other: usize| dot(d_seen, &sample.qkv[part(sizes, head, 2, other)]);
        let mean = weights.iter().enumerate().fold(0.0, |sum, (other, &weight)| sum + weight * d_weight(other));
        for (other, &weight) in weights.iter().enumerate() {
            let d_score = weight * (d_weight(other) - mean) * scale;
            add_scaled(&mut d_qkv[part(sizes, head, 2, other)], weight, d_seen);
            add_scaled(&mut d_qkv[part(sizes, head, 0, token)], d_score, &sample.qkv[part(sizes, head, 1, other)]);
            add_scaled(&mut d_qkv[part(sizes, head, 1, other)], d_score, &sample.qkv[part(sizes, head, 0, token)]);
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (&a, &b)| sum + a * b)
}

fn add_scaled(sums: &mut [f32], factor: f32, terms: &[f32]) {
    sums.iter_mut().zip(terms).for_each(|(sum, &term)| *sum += factor * term);
}
