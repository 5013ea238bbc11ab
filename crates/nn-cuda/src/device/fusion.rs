//! Fusion by attention on a device.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::memory::BOTH;
use megabatch_nn::model::Model;
use megabatch_nn::model::fusion::FusionSizes;

use super::memory_estimate::MemoryEstimate;
use crate::ops::{
    Arithmetic, FuseMemory, FuseSizes, FuseWeights, Operand, ensure_capacity, fuse, fuse_backward, round_to,
};

#[derive(Debug)]
pub(super) struct DeviceFusion {
    sizes: FusionSizes,
    /// Start of the parameters among all.
    start: usize,
    arithmetic: Arithmetic,
    /// The vectors of the timeframes, `[B, n, H]`, as much of them as the memory has room for.
    tokens: Buffer<f32>,
    memory: FuseMemory,
}

impl DeviceFusion {
    /// The fusion of `model`, if it has one; memory for batches is taken when they come.
    pub(super) fn new(scope: &Scope, model: &Model, arithmetic: Arithmetic) -> Result<Option<Self>> {
        let Some(fusion) = model.decoder().fusion else { return Ok(None) };
        let (start, batches) = (fusion.start(model.layout()), scope.child("batches"));
        let FusionSizes { tokens, hidden, heads, inner } = fusion.sizes;
        let memory = FuseMemory::zeros(&batches, FuseSizes { samples: 0, tokens, heads, hidden, inner })?;
        Ok(Some(DeviceFusion { sizes: fusion.sizes, start, arithmetic, tokens: Buffer::zeros(&batches, 0)?, memory }))
    }

    /// Counts what batches take of the fusion of a model that has one.
    pub(super) fn estimate(estimate: &mut MemoryEstimate<'_>) {
        let (model, arithmetic) = (estimate.model, estimate.config.arithmetic);
        let [samples, learnt] =
            [&estimate.batch.sizes, &estimate.batch.sizes_learnt].map(|sizes| sizes.iter().copied().max().unwrap_or(0));
        estimate.book("batches", "fusion", BOTH, |scope| {
            let Some(mut fusion) = DeviceFusion::new(scope, model, arithmetic)? else { return Ok(None) };
            fusion.ensure_capacity(samples)?;
            fusion.memory.reserve_scratch(learnt)?;
            Ok(Some(fusion))
        });
    }

    fn weights<'a>(&self, parameters: &'a Buffer<f32>) -> FuseWeights<'a> {
        FuseWeights { parameters, start: self.start, arithmetic: self.arithmetic }
    }

    /// Grows the buffers to a batch of `samples` samples.
    pub(super) fn ensure_capacity(&mut self, samples: usize) -> Result<()> {
        ensure_capacity(&mut self.tokens, samples * self.sizes.tokens * self.sizes.hidden)?;
        self.memory.ensure_capacity(samples)
    }

    /// The tokens of the batch, for writing.
    pub(super) fn tokens_mut(&mut self) -> &mut Buffer<f32> {
        &mut self.tokens
    }

    /// Rounds the tokens to `T`, and fuses them to `fused` `[B, H]`.
    pub(super) fn forward<T: Operand>(&mut self, parameters: &Buffer<f32>, fused: &mut Buffer<T>) -> Result<()> {
        let weights = self.weights(parameters);
        let DeviceFusion { tokens, memory, .. } = self;
        round_to::<T>(tokens)?;
        fuse(weights, tokens, memory, fused)
    }

    /// Backward pass from the gradient of what was fused, to that of the tokens; adds those of the
    /// parameters.
    pub(super) fn backward<T: Operand>(
        &mut self,
        d_fused: &Buffer<f32>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let weights = self.weights(parameters);
        let DeviceFusion { tokens, memory, .. } = self;
        fuse_backward::<T>(weights, tokens, d_fused, memory, gradients)
    }

    /// The gradient of the tokens, `[B, n, H]`.
    pub(super) fn d_tokens(&self) -> &Buffer<f32> {
        &self.memory.d_tokens
    }
}
