#![forbid(unsafe_code)]

//! One timeframe's LSTM over its distinct windows, forward.
//!
//! ```text
//! for each layer:
//!     project the inputs of all steps, bias added                                    (1)
//!     for each step:  gates += h · W_hhᵀ;  apply the gates' functions;  c, h          (2)
//! ```
//!
//! 1. In the first layer, where windows overlap, this is done once a bar, and each step reads the rows of its windows' bars.
//!    Elsewhere it is done for a block of steps at a time, straight into the gates, which are then still in the cache.
//! 2. Sixteen units at a time: their four gates are activated right after their product.

use std::ops::Range;

use megabatch_gpu_core::Scope;

use super::memory::{LayerMemory, Scratch, gate_steps, place};
use super::weights::LayerWeights;
use super::windows::Windows;
use super::{BLOCK_STEPS, Dimensions};
use crate::carried::Initial;
use crate::dropout::Mask;
use crate::error::Result;
use crate::kernel::{self, Isa, PANEL, Place, Start, View, ViewMut};
use crate::step::Purpose;

/// What one timeframe keeps from the forward pass to the backward pass, for one thread's share of a batch.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) of: Dimensions,
    pub(super) windows: Windows,
    pub(super) layers: Vec<LayerMemory>,
    /// What is dropped of the outputs of each layer but the last; empty without dropout.
    pub(super) masks: Vec<Mask>,
    gate_steps: usize,
}

/// The windows that a sequence is run over, one a sample.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) bars: &'a [f32], // [.., F]
    /// Row among `bars` of each window's first bar.
    pub(super) starts: &'a [usize],
    /// What tells the windows apart: see [`BatchView::ends`](crate::view::BatchView::ends).
    pub(super) ends: &'a [usize],
    /// Bars in each; T, or fewer.
    pub(super) steps: usize,
}

impl Sequence {
    pub(super) fn new(scope: &Scope, of: Dimensions, purpose: Purpose) -> Result<Self> {
        let layer = |_| LayerMemory::new(scope, of, purpose);
        let layers = (0..of.sizes.layers).map(layer).collect::<Result<_>>()?;
        Ok(Sequence { of, windows: Windows::default(), layers, masks: Vec::new(), gate_steps: gate_steps(of, purpose) })
    }

    /// The gates of step `t`, where they are kept.
    pub(super) fn gates_at(&self, t: usize) -> Place {
        let windows = self.windows.len();
        place(self.gate_steps * windows, windows).row(t % self.gate_steps * windows)
    }

    /// The states before step `t`, which are those after step `t` - 1.
    pub(super) fn states_at(&self, t: usize) -> Place {
        let windows = self.windows.len();
        place((self.windows.steps() + 1) * windows, windows).row(t * windows)
    }

    /// The bars in [`Scratch::x`]: those covered where windows overlap, else step after step.
    pub(super) fn x_at(&self) -> Place {
        let rows = if self.windows.overlap() { self.windows.bars() } else { self.windows.steps() * self.windows.len() };
        place(rows, 1)
    }

    /// What is computed by bar, in [`Scratch::by_bar`].
    pub(super) fn by_bar_at(&self) -> Place {
        place(self.windows.bars(), 1)
    }

    /// The steps in blocks.
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let steps = self.windows.steps();
        (0..steps.div_ceil(BLOCK_STEPS)).map(move |block| block * BLOCK_STEPS..((block + 1) * BLOCK_STEPS).min(steps))
    }

    /// Runs every layer over the windows of `input`, from the states of `initial`.
    pub(super) fn forward(
        &mut self,
        isa: Isa,
        weights: &[LayerWeights],
        (input, initial): (Input<'_>, Initial<'_>),
        scratch: &mut Scratch,
    ) {
        self.windows.set((input.starts, input.ends), input.steps);
        let by_bar = self.windows.overlap();
        self.windows.pack((input.bars, self.of.sizes.features), (scratch.x.as_mut_slice(), self.x_at()));
        if by_bar {
            self.project_bars(isa, &weights[0], scratch);
        }
        for (l, weights) in weights.iter().enumerate() {
            self.set_initial_state(l, initial);
            for block in self.blocks() {
                if l > 0 || !by_bar {
                    self.project_block(isa, (l, weights), block.clone(), scratch);
                }
                for t in block {
                    if l == 0 && by_bar {
                        let (from, to) = (self.by_bar_at(), self.gates_at(t));
                        let gates = self.layers[0].gates.as_mut_slice();
                        self.windows.read_step(t, self.of.gates(), (scratch.by_bar.as_slice(), from), (gates, to));
                    }
                    self.step(isa, (l, weights), t);
                }
            }
        }
    }

    /// by_bar = x · W_ihᵀ + b for every bar that the windows cover.
    fn project_bars(&self, isa: Isa, weights: &LayerWeights, scratch: &mut Scratch) {
        let shape = [self.windows.bars(), self.of.sizes.features, self.of.gates()];
        let x = View(scratch.x.as_slice(), self.x_at());
        let mut to = ViewMut(scratch.by_bar.as_mut_slice(), self.by_bar_at());
        kernel::product(isa, shape, (Start::Row(weights.bias.as_slice()), x, weights.input.as_slice()), &mut to);
    }

    /// gates = x · W_ihᵀ + b for the windows at a block of steps.
    fn project_block(
        &mut self,
        isa: Isa,
        (l, weights): (usize, &LayerWeights),
        block: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let shape = [block.len() * self.windows.len(), self.of.input(l), self.of.gates()];
        let gates_at = self.gates_at(block.start);
        if self.drops_below(l) {
            self.drop_block(isa, l, block.clone(), scratch);
        }
        let input_at = self.input_at(l, block.start);
        let dropped = self.drops_below(l).then_some(scratch.dropped.as_slice());
        let (below, here) = self.layers.split_at_mut(l);
        let input = input(below.last(), scratch.x.as_slice(), dropped);
        let operands = (Start::Row(weights.bias.as_slice()), View(input, input_at), weights.input.as_slice());
        kernel::product(isa, shape, operands, &mut ViewMut(here[0].gates.as_mut_slice(), gates_at));
    }

    /// What layer `l` reads from step `t` on, which begins a block, for windows laid out step after step: the bars, or the
    /// states below after that step, or what dropout left of them.
    pub(super) fn input_at(&self, l: usize, t: usize) -> Place {
        match l {
            0 => self.x_at().row(t * self.windows.len()),
            _ if self.drops_below(l) => self.dropped_at(),
            _ => self.states_at(t + 1),
        }
    }

    /// gates += h · W_hhᵀ, then the cell.
    fn step(&mut self, isa: Isa, (l, weights): (usize, &LayerWeights), t: usize) {
        let (rows, hidden) = (self.windows.len(), self.of.sizes.hidden);
        let (gates_at, before, after) = (self.gates_at(t), self.states_at(t), self.states_at(t + 1));
        let LayerMemory { gates, hidden: states, cell } = &mut self.layers[l];
        let weight_len = 4 * hidden * PANEL;
        for (n, weight) in weights.recurrent.as_slice().chunks_exact(weight_len).enumerate() {
            let mut gates = ViewMut(gates.as_mut_slice(), gates_at.panel(4 * n));
            let operands = (Start::Result, View(states.as_slice(), before), weight);
            kernel::product(isa, [rows, hidden, 4], operands, &mut gates);
            let mut cell = ViewMut(cell.as_mut_slice(), before.panel(n));
            let mut after = ViewMut(states.as_mut_slice(), after.panel(n));
            kernel::forward(isa, rows, &mut gates, (&mut cell, &mut after));
        }
    }
}

/// Where a layer reads its inputs: the bars, what the layer below gives, or what dropout left of that.
pub(super) fn input<'a>(below: Option<&'a LayerMemory>, x: &'a [f32], dropped: Option<&'a [f32]>) -> &'a [f32] {
    dropped.unwrap_or(below.map_or(x, |below| below.hidden.as_slice()))
}
