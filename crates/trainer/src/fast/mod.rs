#![forbid(unsafe_code)]

//! The fast form of the model: the same mathematics as the plain one, in another order.
//!
//! 1. Samples whose windows of a timeframe are equal share one run through all its layers; its gradient is the sum of theirs.
//! 2. Where windows overlap, the first layer's input projection is done once a bar, and the gate gradients are summed by bar.
//! 3. All matrices are panel-major (see [`kernel`](crate::kernel)); weights are packed once an optimizer step.
//! 4. A thread takes its windows through all steps; what a step needs stays in its caches.
//!
//! All sums are formed in an order that depends on the samples alone.

mod backward;
mod dropout;
mod memory;
mod sequence;
mod state;
mod weights;
mod windows;

use megabatch_gpu_core::Scope;
use rayon::prelude::*;

use crate::carried::Initial;
use crate::decoder::{Decoding, passes};
use crate::error::Result;
use crate::form::Shard;
use crate::graph::{AttentionPass, PackedAttention};
use crate::kernel::{Isa, PANEL};
use crate::lstm::Sizes;
use crate::model::Model;
use crate::step::{Purpose, Room};
use crate::tensor::TensorSet;
use memory::Scratch;
use sequence::{Input, Sequence};
use weights::LayerWeights;

/// Steps whose gate gradients are kept until they are folded into the weights': 32 windows' of H = 128 are 512 KiB.
const BLOCK_STEPS: usize = 8;

/// Sizes of one timeframe's LSTM, in panels.
#[derive(Clone, Copy, Debug)]
struct Dimensions {
    sizes: Sizes,
    /// Windows that there is room for.
    capacity: usize,
}

impl Dimensions {
    /// Panels of units.
    fn units(self) -> usize {
        self.sizes.hidden.div_ceil(PANEL)
    }

    /// Panels of gates.
    fn gates(self) -> usize {
        4 * self.units()
    }

    /// Width of what layer `l` reads.
    fn input(self, l: usize) -> usize {
        self.sizes.input(l)
    }
}

fn dimensions(model: &Model, capacity: usize) -> Vec<Dimensions> {
    model.lstms().iter().map(|lstm| Dimensions { sizes: lstm.sizes, capacity }).collect()
}

/// A model's weights of LSTMs and attention as the kernels read them.
#[derive(Debug)]
pub(crate) struct PackedWeights {
    timeframes: Vec<Vec<LayerWeights>>,
    attention: Option<PackedAttention>,
}

impl PackedWeights {
    /// Room for the weights of `model`, booked on `scope`.
    pub(crate) fn new(scope: &Scope, model: &Model, purpose: Purpose) -> Result<Self> {
        let layers = |of: Dimensions| {
            let layer = |l| LayerWeights::new(scope, of, l, purpose);
            (0..of.sizes.layers).map(layer).collect::<Result<Vec<_>>>()
        };
        let attention = model.decoder().attention();
        Ok(PackedWeights {
            timeframes: dimensions(model, 0).into_iter().map(layers).collect::<Result<_>>()?,
            attention: attention.map(|of| PackedAttention::new(scope, of, passes(purpose))).transpose()?,
        })
    }

    /// Copies the weights as they are now, on the threads of the pool that this is called in.
    pub(crate) fn pack(&mut self, model: &Model, parameters: &TensorSet<f32>) {
        self.timeframes.par_iter_mut().zip(model.lstms()).for_each(|(layers, lstm)| {
            for (layer, slots) in layers.iter_mut().zip(&lstm.layers) {
                layer.pack(lstm.sizes.hidden, slots, parameters);
            }
        });
        if let (Some(packed), Some(attention)) = (&mut self.attention, model.decoder().attention()) {
            packed.pack(attention, parameters);
        }
    }

    /// Numbers in the weights of `model`.
    pub(crate) fn len(model: &Model, purpose: Purpose) -> usize {
        let layers = |of: Dimensions| (0..of.sizes.layers).flat_map(move |l| weights::weights_len(of, l, purpose));
        let attention = model.decoder().attention().map_or(0, |of| PackedAttention::len(of, passes(purpose)));
        dimensions(model, 0).into_iter().flat_map(layers).sum::<usize>() + attention
    }
}

/// The memory with which one thread takes some samples through the model: the fast form's [`Pass`](crate::Pass).
#[derive(Debug)]
pub(crate) struct Pass {
    isa: Isa,
    sequences: Vec<Sequence>,
    scratch: Scratch,
    decoding: Decoding<f32, AttentionPass>,
}

impl Pass {
    /// Memory for up to `room`, booked on `scope`.
    pub(crate) fn new(scope: &Scope, model: &Model, room: Room, purpose: Purpose) -> Result<Self> {
        let all = dimensions(model, room.samples);
        Ok(Pass {
            isa: Isa::best(),
            scratch: Scratch::new(scope, &all, purpose)?,
            sequences: all.into_iter().map(|of| Sequence::new(scope, of, purpose)).collect::<Result<_>>()?,
            decoding: Decoding::new(scope, model.decoder(), room, purpose)?,
        })
    }

    /// Numbers in the memory for `room`.
    pub(crate) fn len(model: &Model, room: Room, purpose: Purpose) -> usize {
        let all = dimensions(model, room.samples);
        let layers = |of: &Dimensions| of.sizes.layers * memory::layer_len(*of, purpose).iter().sum::<usize>();
        let decoding = model.decoder().fast_len(room, purpose);
        all.iter().map(layers).sum::<usize>() + memory::scratch_len(&all, purpose).iter().sum::<usize>() + decoding
    }

    /// Computes the outputs of the samples of `shard`.
    pub(crate) fn forward(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        weights: &PackedWeights,
        shard: &Shard<'_>,
    ) {
        let (hidden, width) = (model.config().hidden, model.decoder().width());
        let encodings = self.decoding.encodings_mut(shard.samples.len());
        if self.sequences.is_empty() {
            shard.last_bars(encodings);
        }
        for (k, (sequence, weights)) in self.sequences.iter_mut().zip(&weights.timeframes).enumerate() {
            let steps = sequence.of.sizes.steps;
            let input = Input { bars: shard.batch.bars(k), starts: shard.starts(k), ends: shard.ends(k), steps };
            sequence.masks.clear();
            sequence.masks.extend((1..weights.len()).filter_map(|above| shard.mask(k, above - 1)));
            sequence.forward(self.isa, weights, (input, shard.initial(k)), &mut self.scratch);
            let (top, last) = (&sequence.layers[sequence.layers.len() - 1], sequence.states_at(steps));
            let rows = encodings.chunks_exact_mut(width);
            for (row, &window) in rows.zip(sequence.windows.of_sample()) {
                for (panel, part) in row[k * hidden..][..hidden].chunks_mut(PANEL).enumerate() {
                    let at = last.row(window).panel(panel).start;
                    part.copy_from_slice(&top.hidden.as_slice()[at..at + part.len()]);
                }
            }
        }
        self.decoding.forward(model.decoder(), (parameters, weights.attention.as_ref()), shard.graph);
    }

    /// The outputs [R, K] and, for writing, their gradient.
    pub(crate) fn outputs_and_gradient_mut(&mut self) -> (&[f32], &mut [f32]) {
        self.decoding.outputs_and_gradient_mut()
    }

    /// Goes back from the outputs' gradient, after [`Pass::forward`] of the same samples; adds the gradients to `gradients`.
    pub(crate) fn backward(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        weights: &PackedWeights,
        shard: &Shard<'_>,
        gradients: &mut TensorSet<f32>,
    ) {
        let (hidden, width) = (model.config().hidden, model.decoder().width());
        self.decoding.backward(model.decoder(), (parameters, weights.attention.as_ref()), shard.graph, gradients);
        for (k, (sequence, weights)) in self.sequences.iter().zip(&weights.timeframes).enumerate() {
            let (at, d_hidden) = (sequence.d_state_at(), self.scratch.d_hidden.as_mut_slice());
            d_hidden.fill(0.0);
            for (row, &window) in self.decoding.d_encodings().chunks_exact(width).zip(sequence.windows.of_sample()) {
                for (panel, part) in row[k * hidden..][..hidden].chunks(PANEL).enumerate() {
                    let sums = &mut d_hidden[at.row(window).panel(panel).start..];
                    sums.iter_mut().zip(part).for_each(|(sum, term)| *sum += term);
                }
            }
            let layers = (weights.as_slice(), model.lstms()[k].layers.as_slice());
            sequence.backward(self.isa, layers, (shard.batch.bars(k), &mut self.scratch), gradients);
        }
    }

    /// Goes on from `state` [layers, 2, H] of timeframe `k` over `bars` [n, F], at most T of them; `state` is then that after them.
    pub(crate) fn advance(&mut self, weights: &PackedWeights, (k, bars): (usize, &[f32]), state: &mut [f32]) {
        let sequence = &mut self.sequences[k];
        let steps = bars.len() / sequence.of.sizes.features;
        let input = Input { bars, starts: &[0], ends: &[0], steps };
        sequence.masks.clear();
        let from = (input, Initial::State(state));
        sequence.forward(self.isa, &weights.timeframes[k], from, &mut self.scratch);
        sequence.read_state((0, steps - 1), state);
    }

    /// Writes the state [layers, 2, H] of the sample `sample` in timeframe `k` after step `t`.
    pub(crate) fn read_state(&self, k: usize, (sample, t): (usize, usize), to: &mut [f32]) {
        let sequence = &self.sequences[k];
        sequence.read_state((sequence.windows.of_sample()[sample], t), to);
    }
}
