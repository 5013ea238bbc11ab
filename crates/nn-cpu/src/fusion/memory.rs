use megabatch_amp::NonFiniteTrace;
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::fusion::{AttentionFusion, FusionSizes};

use super::attention::{self, Sample};
use crate::arithmetic::CpuArithmetic;
use crate::compute::Purpose;
use crate::linear;
use crate::matmul::Output;
use crate::norm::{self, Normalised};

/// The memory in which samples' tokens are fused, forward and, if made for training, backward. N =
/// B · n tokens.
#[derive(Debug)]
pub(crate) struct FusionMemory {
    /// N now.
    tokens: usize,
    arithmetic: CpuArithmetic,
    qkv: Buffer<f32>,     // [N, 3H]
    weights: Buffer<f32>, // [B, heads, n, n]
    seen: Buffer<f32>,    // [N, H]: what the tokens see of each other
    first: Buffer<f32>,   // [N, H]: after the first norm
    norm1: Normalised,
    inner: Buffer<f32>,  // [N, inner]: after ReLU
    second: Buffer<f32>, // [N, H]: after the second norm
    norm2: Normalised,
    fused: Buffer<f32>, // [B, H]
    /// Gradients, empty for prediction: of `qkv`, of `inner`, of `seen`, and of the tokens on their
    /// way down.
    d_qkv: Buffer<f32>,
    d_inner: Buffer<f32>,
    d_seen: Buffer<f32>,
    d_rows: Buffer<f32>,
}

/// Numbers in the buffers for up to `capacity` samples, in the order of the fields, without those
/// of the norms.
fn lens(sizes: FusionSizes, capacity: usize, purpose: Purpose) -> [usize; 10] {
    let rows = capacity * sizes.tokens;
    let (states, wide, inner) = (rows * sizes.hidden, 3 * rows * sizes.hidden, rows * sizes.inner);
    let weights = capacity * sizes.weights_len();
    let [d_wide, d_inner, d_states] = match purpose {
        Purpose::Training { .. } => [wide, inner, states],
        Purpose::Prediction => [0; 3],
    };
    [wide, weights, states, states, inner, states, capacity * sizes.hidden, d_wide, d_inner, d_states]
}

impl FusionMemory {
    /// Memory for up to `capacity` samples, booked on `scope`.
    pub(crate) fn new(scope: &Scope, sizes: FusionSizes, capacity: usize, purpose: Purpose) -> Result<Self> {
        let [qkv, weights, seen, first, inner, second, fused, d_qkv, d_inner, d_states] =
            lens(sizes, capacity, purpose);
        let zeros = |len| Buffer::zeros(scope, len);
        let norm = || Normalised::new(scope, sizes.hidden, capacity * sizes.tokens);
        Ok(FusionMemory {
            tokens: 0,
            arithmetic: CpuArithmetic::Fp32,
            qkv: zeros(qkv)?,
            weights: zeros(weights)?,
            seen: zeros(seen)?,
            first: zeros(first)?,
            norm1: norm()?,
            inner: zeros(inner)?,
            second: zeros(second)?,
            norm2: norm()?,
            fused: zeros(fused)?,
            d_qkv: zeros(d_qkv)?,
            d_inner: zeros(d_inner)?,
            d_seen: zeros(d_states)?,
            d_rows: zeros(d_states)?,
        })
    }

    /// Length of each buffer in numbers, in the order of the fields.
    pub(crate) fn lens(sizes: FusionSizes, capacity: usize, purpose: Purpose) -> Vec<usize> {
        let [qkv, weights, seen, first, inner, second, fused, d_qkv, d_inner, d_states] =
            lens(sizes, capacity, purpose);
        let norm = Normalised::lens(sizes.hidden, capacity * sizes.tokens);
        let first = [qkv, weights, seen, first].into_iter().chain(norm);
        let second = first.chain([inner, second]).chain(norm);
        second.chain([fused, d_qkv, d_inner, d_states, d_states]).collect()
    }

    /// Sets the arithmetic of products. Their results, which the next products read, are rounded to
    /// its precision.
    pub(crate) fn set_arithmetic(&mut self, arithmetic: CpuArithmetic) {
        self.arithmetic = arithmetic;
    }

    /// Fuses the tokens of B samples, `x` [B, n, H], to [B, H].
    pub(crate) fn forward(&mut self, fusion: &AttentionFusion, parameters: &TensorSet, x: &[f32]) -> &[f32] {
        let FusionSizes { tokens, hidden, inner, .. } = fusion.sizes;
        self.tokens = x.len() / hidden;
        let (rows, samples) = (self.tokens, self.tokens / tokens);
        let isa = self.arithmetic.bf16_isa();
        let qkv = &mut self.qkv.as_mut_slice()[..3 * rows * hidden];
        linear::forward(fusion.input, isa, parameters, x, qkv, Output::Overwrite);
        self.arithmetic.round(qkv);
        let weights = self.weights.as_mut_slice().chunks_exact_mut(fusion.sizes.weights_len());
        let seen = self.seen.as_mut_slice().chunks_exact_mut(tokens * hidden);
        for (qkv, to) in qkv.chunks_exact(3 * tokens * hidden).zip(weights.zip(seen)) {
            attention::forward(fusion.sizes, qkv, to.0, to.1);
        }
        self.arithmetic.round(&mut self.seen.as_mut_slice()[..rows * hidden]);
        let first = &mut self.first.as_mut_slice()[..rows * hidden];
        first.copy_from_slice(x);
        let seen = &self.seen.as_slice()[..rows * hidden];
        linear::forward(fusion.output, isa, parameters, seen, first, Output::Add);
        norm::forward(&fusion.norm1, parameters, first, &mut self.norm1);

        let wide = &mut self.inner.as_mut_slice()[..rows * inner];
        linear::forward(fusion.widen, isa, parameters, first, wide, Output::Overwrite);
        wide.iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = 0.0);
        self.arithmetic.round(wide);
        let second = &mut self.second.as_mut_slice()[..rows * hidden];
        second.copy_from_slice(first);
        linear::forward(fusion.narrow, isa, parameters, wide, second, Output::Add);
        norm::forward(&fusion.norm2, parameters, second, &mut self.norm2);

        let fused = &mut self.fused.as_mut_slice()[..samples * hidden];
        let share = (1.0 / tokens as f64) as f32;
        for (fused, tokens) in fused.chunks_exact_mut(hidden).zip(second.chunks_exact(tokens * hidden)) {
            fused.fill(0.0);
            for token in tokens.chunks_exact(hidden) {
                fused.iter_mut().zip(token).for_each(|(sum, &x)| *sum += x * share);
            }
        }
        self.arithmetic.round(fused);
        fused
    }

    /// The weights [heads, n, n] with which the tokens of a sample looked at each other, after
    /// [`FusionMemory::forward`]: a row a token that looks, which sums to one.
    pub(crate) fn weights(&self, fusion: &AttentionFusion, sample: usize) -> &[f32] {
        &self.weights.as_slice()[sample * fusion.sizes.weights_len()..][..fusion.sizes.weights_len()]
    }

    /// Fused samples, [B, H], after [`FusionMemory::forward`].
    pub(crate) fn fused(&self, fusion: &AttentionFusion) -> &[f32] {
        &self.fused.as_slice()[..self.tokens / fusion.sizes.tokens * fusion.sizes.hidden]
    }

    /// Looks at all that [`FusionMemory::forward`] computed, in its order.
    pub(crate) fn trace(&self, sizes: FusionSizes, trace: &mut NonFiniteTrace) {
        let (FusionSizes { tokens, hidden, inner, .. }, weights) = (sizes, sizes.weights_len());
        let (rows, samples) = (self.tokens, self.tokens / tokens);
        for (tensor, buffer, len) in [
            ("queries, keys and values [B · n, 3H]", &self.qkv, 3 * rows * hidden),
            ("weights of attention [B, heads, n, n]", &self.weights, samples * weights),
            ("what tokens see [B · n, H]", &self.seen, rows * hidden),
            ("the first norm [B · n, H]", &self.first, rows * hidden),
            ("the feed-forward network [B · n, inner]", &self.inner, rows * inner),
            ("the second norm [B · n, H]", &self.second, rows * hidden),
            ("the mean [B, H]", &self.fused, samples * hidden),
        ] {
            trace.look("fusion", tensor, &buffer.as_slice()[..len]);
        }
    }

    /// Writes the gradient of the tokens [B, n, H] to `d_x`, from `d_fused` [B, H], after
    /// [`FusionMemory::forward`] of the same; adds the parameters' gradients to `gradients`.
    pub(crate) fn backward(
        &mut self,
        fusion: &AttentionFusion,
        parameters: &TensorSet,
        x: &[f32],
        d_fused: &[f32],
        d_x: &mut [f32],
        gradients: &mut TensorSet,
    ) {
        let FusionSizes { tokens, hidden, inner, .. } = fusion.sizes;
        let (rows, share) = (self.tokens, (1.0 / tokens as f64) as f32);
        let isa = self.arithmetic.bf16_isa();
        let d_rows = &mut self.d_rows.as_mut_slice()[..rows * hidden];
        for (row, d_rows) in d_rows.chunks_exact_mut(hidden).enumerate() {
            let d_fused = &d_fused[row / tokens * hidden..][..hidden];
            d_rows.iter_mut().zip(d_fused).for_each(|(to, &d)| *to = d * share);
        }
        norm::backward(&fusion.norm2, parameters, &self.norm2, d_rows, gradients);
        let (wide, d_wide) = (&self.inner.as_slice()[..rows * inner], &mut self.d_inner.as_mut_slice()[..rows * inner]);
        linear::backward(fusion.narrow, isa, parameters, wide, d_rows, d_wide, Output::Overwrite, gradients);
        self.arithmetic.round(d_wide);
        d_wide.iter_mut().zip(wide).filter(|(_, x)| **x == 0.0).for_each(|(d, _)| *d = 0.0);
        let first = &self.first.as_slice()[..rows * hidden];
        linear::backward(fusion.widen, isa, parameters, first, d_wide, d_rows, Output::Add, gradients);

        norm::backward(&fusion.norm1, parameters, &self.norm1, d_rows, gradients);
        let (seen, d_seen) = (&self.seen.as_slice()[..rows * hidden], &mut self.d_seen.as_mut_slice()[..rows * hidden]);
        linear::backward(fusion.output, isa, parameters, seen, d_rows, d_seen, Output::Overwrite, gradients);
        let sample = 3 * tokens * hidden;
        let d_qkv = &mut self.d_qkv.as_mut_slice()[..3 * rows * hidden];
        let qkv = self.qkv.as_slice().chunks_exact(sample);
        let weights = self.weights.as_slice().chunks_exact(fusion.sizes.weights_len());
        let d = d_seen.chunks_exact(tokens * hidden).zip(d_qkv.chunks_exact_mut(sample));
        for ((qkv, weights), (d_seen, d_qkv)) in qkv.zip(weights).zip(d) {
            attention::backward(fusion.sizes, Sample { qkv, weights }, d_seen, d_qkv);
        }
        self.arithmetic.round(d_qkv);
        d_x.copy_from_slice(d_rows);
        linear::backward(fusion.input, isa, parameters, x, d_qkv, d_x, Output::Add, gradients);
    }
}

#[cfg(test)]
mod tests {
    use megabatch_amp::{Precision, round_to};
    use megabatch_gpu_core::Device;
    use megabatch_nn::model::Layout;

    use super::*;
    use crate::compute::CheckpointPolicy;

    #[test]
    fn what_products_give_is_rounded_to_the_precision_of_the_run() {
        let sizes = FusionSizes { tokens: 3, hidden: 4, heads: 2, inner: 16 };
        let mut layout = Layout::default();
        let fusion = AttentionFusion::new(sizes, &mut layout);
        let scope = Device::cpu().scope("test");
        let mut parameters = TensorSet::zeros(&scope, &std::sync::Arc::new(layout)).unwrap();
        let wave = |(i, x): (usize, &mut f32)| *x = (i as f32 * 0.7).sin();
        parameters.values_mut().iter_mut().enumerate().for_each(wave);
        let x: Vec<f32> = (0..2 * 3 * 4).map(|i| (i as f32 * 1.3).cos()).collect();
        let purpose = Purpose::Training { dropout: false, runs: None, kept: CheckpointPolicy::Everything };
        let results = |precision| {
            let mut memory = FusionMemory::new(&scope, sizes, 2, purpose).unwrap();
            memory.set_arithmetic(CpuArithmetic::new(precision, None));
            memory.forward(&fusion, &parameters, &x);
            let [qkv, seen, inner, fused] = [&memory.qkv, &memory.seen, &memory.inner, &memory.fused];
            [qkv, seen, inner, fused].map(|buffer| buffer.as_slice().to_vec())
        };
        let full = results(Precision::Fp32);
        for precision in [Precision::Bf16, Precision::Fp16] {
            for (found, full) in results(precision).iter().zip(&full) {
                let mut rounded = found.clone();
                round_to(precision, &mut rounded);
                assert_eq!(*found, rounded, "{precision}");
                // Three roundings of numbers of a few units, one after another, at 2⁻⁸ or better
                // each.
                assert!(found.iter().zip(full).all(|(a, b)| (a - b).abs() < 0.2), "{found:?} for {full:?}");
                assert_ne!(found, full, "{precision}");
            }
        }
    }
}
