#![forbid(unsafe_code)]

//! Fusion by attention on a device.

use megabatch_gpu_core::{Buffer, Scope};

use super::rooms::Rooms;
use super::tally::Tally;
use crate::error::Result;
use crate::footprint::BOTH;
use crate::fusion::Sizes;
use crate::model::Model;
use crate::ops::{Arithmetic, FuseMemory, FuseSizes, FuseWeights, Operand, fuse, fuse_backward, round_to};

#[derive(Debug)]
pub(super) struct Fusion {
    batches: Scope,
    sizes: Sizes,
    /// Where the parameters begin among all.
    start: usize,
    arithmetic: Arithmetic,
    rooms: Rooms<Room>,
}

#[derive(Debug)]
struct Room {
    /// The vectors of the timeframes, `[B, n, H]`.
    tokens: Buffer<f32>,
    memory: FuseMemory,
}

impl Fusion {
    /// The fusion of `model`, if it has one.
    pub(super) fn new(scope: &Scope, model: &Model, arithmetic: Arithmetic) -> Option<Self> {
        let of = model.decoder().fusion()?;
        let start = of.start(model.layout());
        Some(Fusion { batches: scope.child("batches"), sizes: of.sizes, start, arithmetic, rooms: Rooms::default() })
    }

    /// Counts what batches take of the fusion of a model that has one.
    pub(super) fn tally(tally: &mut Tally<'_>) {
        let Some(of) = tally.model.decoder().fusion() else { return };
        let Sizes { tokens, hidden, heads, inner } = of.sizes;
        for &samples in &tally.batch.sizes {
            let sizes = FuseSizes { samples, tokens, heads, hidden, inner };
            let is_learnt = tally.batch.sizes_learnt.contains(&samples);
            let scratch = if is_learnt { FuseMemory::scratch_bytes_on_gpu(sizes) } else { 0 };
            let bytes = samples * tokens * hidden * size_of::<f32>() + FuseMemory::bytes(sizes) + scratch;
            tally.put("batches", format!("fusion of {samples} samples"), bytes, BOTH);
        }
    }

    fn weights<'a>(&self, parameters: &'a Buffer<f32>) -> FuseWeights<'a> {
        FuseWeights { parameters, start: self.start, arithmetic: self.arithmetic }
    }

    /// Makes ready for a batch of so many samples.
    pub(super) fn begin(&mut self, samples: usize) -> Result<()> {
        let (scope, Sizes { tokens, hidden, heads, inner }) = (&self.batches, self.sizes);
        self.rooms.enter(samples, || {
            let sizes = FuseSizes { samples, tokens, heads, hidden, inner };
            let tokens = Buffer::zeros(scope, samples * tokens * hidden)?;
            Ok(Room { tokens, memory: FuseMemory::zeros(scope, sizes)? })
        })
    }

    /// The tokens of the batch, for writing.
    pub(super) fn tokens_mut(&mut self) -> &mut Buffer<f32> {
        &mut self.rooms.now_mut().tokens
    }

    /// Rounds the tokens to `T`, and fuses them to `fused` `[B, H]`.
    pub(super) fn forward<T: Operand>(&mut self, parameters: &Buffer<f32>, fused: &mut Buffer<T>) -> Result<()> {
        let weights = self.weights(parameters);
        let Room { tokens, memory } = self.rooms.now_mut();
        round_to::<T>(tokens)?;
        fuse(weights, tokens, memory, fused)
    }

    /// Goes back from the gradient of what was fused, to that of the tokens; adds those of the parameters.
    pub(super) fn backward<T: Operand>(
        &mut self,
        d_fused: &Buffer<f32>,
        (parameters, gradients): (&Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<()> {
        let weights = self.weights(parameters);
        let Room { tokens, memory } = self.rooms.now_mut();
        fuse_backward::<T>(weights, (tokens, d_fused), memory, gradients)
    }

    /// The gradient of the tokens, `[B, n, H]`.
    pub(super) fn d_tokens(&self) -> &Buffer<f32> {
        &self.rooms.now().memory.d_tokens
    }
}
