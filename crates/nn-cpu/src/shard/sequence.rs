//! One timeframe's recurrent layers over its distinct windows: [`Sequence`], the owner of the
//! recurrence. Its memory, its states in and out, and the order of the forward pass are here.
//!
//! | what the order calls | file |
//! | --- | --- |
//! | a step of the recurrence | [`step`](super::step) |
//! | operands in bf16 or int8 | [`bf16`](super::bf16), [`quantized`](super::quantized) |
//! | equations of the cell and their derivatives | [`kernel`](crate::kernel), `cell` |
//! | order of the backward pass, a step, weight gradients | [`backward`](super::backward) |
//! | saved and recomputed gates and cell states | [`segments`](super::segments) |
//! | dropout and layer norm between layers | [`dropout`](super::dropout), [`norm`](super::norm) |
//! | rounding where 16-bit arithmetic is emulated | [`rounding`](super::rounding) |
//! | units shared by threads | [`step_barrier`](super::step_barrier) |
//!
//! [`tasks`](super::tasks) runs sequences of groups of windows on several threads.
//!
//! ```text
//! for each layer:
//!     project the inputs of all steps, bias added                                    (1)
//!     for each step:  gates += h · W_hhᵀ;  apply the gates' functions;  c, h          (2)
//! ```
//!
//! 1. In the first layer, where windows overlap, this is done once a bar, and each step reads the
//!    rows of its windows' bars. Elsewhere it is done for a block of steps at a time, straight into
//!    the gates, which are then still in the cache.
//! 2. Sixteen units at a time: their gates are activated right after their product.

use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::Windows;
use megabatch_nn::model::Mask;

use super::memory::{LayerMemory, ShardScratch, panel_stride};
use super::rounding::round_panels;
use super::segments::{Checkpointing, SavedCells};
use super::step_barrier::{BarrierOutcome, StepStates, UnitShare};
use super::tasks::Projections;
use super::weights::LayerWeights;
use super::window_panels;
use super::{BLOCK_STEPS, Dimensions};
use crate::carried::Initial;
use crate::compute::Purpose;
use crate::kernel::{Isa, PANEL, PanelStride, View, ViewMut};
use crate::profile::{Clock, Work};

/// One timeframe's recurrent layers on one thread's windows: dimensions, windows and the saved
/// forward pass.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) dims: Dimensions,
    pub(super) windows: Windows,
    pub(super) layers: Vec<LayerMemory>,
    /// Dropout masks of the outputs of each layer but the last; empty without dropout.
    pub(super) masks: Vec<Mask>,
    pub(super) checkpointing: Checkpointing,
    pub(super) partition: WindowPartition,
    /// This thread's units, where several threads share the recurrence.
    pub(super) unit_share: Option<UnitShare>,
    pub(super) clock: Clock,
}

/// The windows of a timeframe that a sequence computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowPartition {
    /// All windows, and all sums over them.
    Whole,
    /// A group of windows. Values per bar and sums over all windows are computed by other tasks:
    /// see [`tasks`](super::tasks).
    Group,
}

/// The windows of a sequence, one a sample.
#[derive(Clone, Copy)]
pub(super) struct SequenceInput<'a> {
    pub(super) bars: &'a [f32], // [.., F]
    /// Row among `bars` of each window's first bar.
    pub(super) starts: &'a [usize],
    /// Identity of the windows: see [`BatchView::ends`](megabatch_nn::batch::BatchView::ends).
    pub(super) ends: &'a [usize],
    /// Bars in each; T, or fewer.
    pub(super) steps: usize,
    /// Lengths of runs of consecutive samples whose windows are computed as one sequence; empty
    /// where each window is a sequence.
    pub(super) runs: &'a [usize],
}

impl Sequence {
    pub(super) fn new(scope: &Scope, dims: Dimensions, purpose: Purpose, partition: WindowPartition) -> Result<Self> {
        let layer = |_| LayerMemory::new(scope, dims, purpose);
        let layers = (0..dims.sizes.layers).map(layer).collect::<Result<_>>()?;
        let (windows, masks) = (Windows::default(), Vec::new());
        Ok(Sequence {
            dims,
            windows,
            layers,
            masks,
            checkpointing: Checkpointing::new(dims, purpose),
            partition,
            unit_share: None,
            clock: Clock::default(),
        })
    }

    /// The states before step `t`, which are those after step `t` - 1.
    pub(super) fn states_at(&self, t: usize) -> PanelStride {
        let windows = self.windows.len();
        panel_stride((self.windows.steps() + 1) * windows, windows).row(t * windows)
    }

    /// Number of bars that fit in [`ShardScratch::x`] at once.
    fn bars_at_once(&self) -> usize {
        BLOCK_STEPS * self.dims.capacity
    }

    /// Layout of the bars in [`ShardScratch::x`].
    pub(super) fn x_at(&self) -> PanelStride {
        panel_stride(self.bars_at_once(), 1)
    }

    /// The covered bars in ranges that fit in [`ShardScratch::x`].
    pub(super) fn bars_in_parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (bars, at_once) = (self.windows.bars(), self.bars_at_once());
        (0..bars).step_by(at_once).map(move |first| first..bars.min(first + at_once))
    }

    /// Packs some of the covered bars into [`ShardScratch::x`].
    pub(super) fn take_bars(&self, rows: &Range<usize>, bars: &[f32], scratch: &mut ShardScratch) {
        let features = self.dims.sizes.features;
        window_panels::pack_bars(&self.windows, rows, bars, features, scratch.x.as_mut_slice(), self.x_at());
        self.round_bars(rows.len(), scratch);
    }

    /// Packs the first layer's inputs of a block of steps into [`ShardScratch::x`].
    pub(super) fn take_block(&self, block: &Range<usize>, bars: &[f32], scratch: &mut ShardScratch) {
        let features = self.dims.sizes.features;
        window_panels::pack_steps(&self.windows, block, bars, features, scratch.x.as_mut_slice(), self.x_at());
        self.round_bars(block.len() * self.windows.len(), scratch);
    }

    /// Rounds `rows` bars in [`ShardScratch::x`].
    fn round_bars(&self, rows: usize, scratch: &mut ShardScratch) {
        let panels = 0..self.dims.sizes.features.div_ceil(PANEL);
        round_panels(self.dims.arithmetic, scratch.x.as_mut_slice(), self.x_at(), panels, rows);
    }

    /// Layout of [`ShardScratch::per_bar_gates`], one row a bar.
    pub(super) fn per_bar_at(&self) -> PanelStride {
        panel_stride(self.windows.bars(), 1)
    }

    /// The rows of all windows at step `t` of layer `l` in [`ShardScratch::per_bar_gates`], where
    /// it is computed by bar and they follow one another.
    pub(super) fn per_bar_in_step(&self, l: usize, t: usize) -> Option<PanelStride> {
        let is_here = self.projects_per_bar(l) && self.partition == WindowPartition::Whole;
        is_here.then(|| self.windows.rows_in_step(t))?.map(|row| self.per_bar_at().row(row))
    }

    /// The steps, in blocks of [`BLOCK_STEPS`].
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let steps = self.windows.steps();
        (0..steps.div_ceil(BLOCK_STEPS)).map(move |block| block * BLOCK_STEPS..((block + 1) * BLOCK_STEPS).min(steps))
    }

    /// Runs every layer over the windows of `input`, from the states of `initial`.
    pub(super) fn forward(
        &mut self,
        isa: Isa,
        all: &[LayerWeights],
        input: SequenceInput<'_>,
        initial: Initial<'_>,
        scratch: &mut ShardScratch,
    ) {
        self.windows.set(input.starts, input.ends, input.steps, input.runs);
        self.forward_windows(isa, all, input.bars, initial, &[], scratch);
    }

    /// Runs every layer over the windows that are set. A group that is computed by bar reads its
    /// projections from `projections`.
    pub(super) fn forward_windows(
        &mut self,
        isa: Isa,
        all: &[LayerWeights],
        bars: &[f32],
        initial: Initial<'_>,
        projections: &[&Projections],
        scratch: &mut ShardScratch,
    ) {
        let start = self.clock.start();
        if self.projects_per_bar(0) && self.partition == WindowPartition::Whole {
            self.project_bars(isa, &all[0], bars, scratch);
        }
        self.clock.stop_layer(start, 0, Work::Projection);
        for (l, weights) in all.iter().enumerate() {
            self.set_initial_state(l, initial);
            for block in self.blocks() {
                let start = self.clock.start();
                self.begin_segment(l, &block, scratch);
                if !self.projects_per_bar(l) {
                    self.take_input(isa, l, all, &block, bars, scratch);
                    self.project_block(isa, l, weights, block.clone(), scratch);
                }
                self.clock.stop_layer(start, l, Work::Projection);
                let start = self.clock.start();
                for t in block.clone() {
                    self.step(isa, l, weights, t, projections, scratch);
                    match self.meet(l, t) {
                        BarrierOutcome::Complete => {}
                        BarrierOutcome::Abandoned => return,
                        BarrierOutcome::TakenOver => {
                            // The gates of the others' units are not there.
                            if !self.projects_per_bar(l) {
                                self.project_block(isa, l, weights, block.clone(), scratch);
                            }
                            self.step(isa, l, weights, t, projections, scratch);
                        }
                    }
                    let (at, hidden) = (self.states_at(t + 1), self.layers[l].hidden.as_mut_slice());
                    round_panels(self.dims.arithmetic, hidden, at, 0..self.dims.unit_panels(), self.windows.len());
                }
                self.end_segment(l, &block, scratch);
                self.clock.stop_layer(start, l, Work::Recurrence);
            }
        }
    }

    /// The panels of units that this thread computes.
    pub(super) fn own_unit_panels(&self) -> Range<usize> {
        let units = self.dims.unit_panels();
        self.unit_share.as_ref().map_or(0..units, |share| share.own_panels(units))
    }

    /// Publishes the states of layer `l` after step `t`, and copies those of the other members.
    pub(super) fn meet(&mut self, l: usize, t: usize) -> BarrierOutcome {
        let Some(share) = &self.unit_share else { return BarrierOutcome::Complete };
        let place =
            StepStates { at: self.states_at(t + 1), units: self.dims.unit_panels(), windows: self.windows.len() };
        let step = l * self.windows.steps() + t;
        let LayerMemory { hidden, cell, .. } = &mut self.layers[l];
        let mut states = [hidden.as_mut_slice(), cell.as_mut_slice()];
        let met = share.meet(step, place, &mut states[..self.dims.sizes.cell.states()]);
        if met != BarrierOutcome::Complete {
            self.unit_share = None;
        }
        met
    }

    /// Writes the projections of all windows at step `t` of the first layer to its gates, where
    /// they are computed by bar.
    pub(super) fn read_projections(
        &mut self,
        t: usize,
        per_bar_gates: &Buffer<f32>,
        projections: &[&Projections],
        segment_gates: &mut Buffer<f32>,
    ) {
        let (from, to, panels) = (self.per_bar_at(), self.gates_at(t), self.dims.gate_panels());
        let mut gates = to.view_mut(&mut self.layers[0].gates, segment_gates);
        match self.partition {
            WindowPartition::Whole => {
                let ViewMut(gates, to) = gates;
                window_panels::read_step(&self.windows, t, panels, per_bar_gates.as_slice(), from, gates, to);
            }
            WindowPartition::Group => {
                projections.iter().for_each(|part| part.read_step(&self.windows, t, panels, &mut gates));
            }
        }
    }

    /// The projections of all windows at step `t` of layer `l`, where they are computed by bar and
    /// follow one another in `per_bar_gates` or, of a group, in one of `projections`.
    pub(super) fn projected<'a>(
        &self,
        l: usize,
        t: usize,
        per_bar_gates: &'a Buffer<f32>,
        projections: &[&'a Projections],
    ) -> Option<View<'a>> {
        match self.partition {
            WindowPartition::Whole => self.per_bar_in_step(l, t).map(|at| View(per_bar_gates.as_slice(), at)),
            WindowPartition::Group if self.projects_per_bar(l) => {
                let row = self.windows.rows_in_step(t)?;
                projections.iter().find_map(|part| part.rows(row, self.windows.len()))
            }
            WindowPartition::Group => None,
        }
    }

    /// by_bar = x · W_ihᵀ + b for every bar that the windows cover.
    fn project_bars(&self, isa: Isa, weights: &LayerWeights, bars: &[f32], scratch: &mut ShardScratch) {
        for rows in self.bars_in_parts() {
            self.take_bars(&rows, bars, scratch);
            let mut to = ViewMut(scratch.per_bar_gates.as_mut_slice(), self.per_bar_at().row(rows.start));
            let (depth, x) = (self.dims.sizes.features, View(scratch.x.as_slice(), self.x_at()));
            let (product, panels) = (weights.projection(rows.len(), depth, x), 0..self.dims.gate_panels());
            let isa = self.dims.product_isa(isa);
            weights.project(isa, product, panels, &mut scratch.pairs, &mut scratch.activations, &mut to);
        }
    }

    /// Writes the input of layer `l` at a block of steps to where [`Sequence::input_at`] says,
    /// unless it is already there.
    pub(super) fn take_input(
        &self,
        isa: Isa,
        l: usize,
        all: &[LayerWeights],
        block: &Range<usize>,
        bars: &[f32],
        scratch: &mut ShardScratch,
    ) {
        if l == 0 {
            self.take_block(block, bars, scratch);
        } else if self.copies_below(l) {
            self.copy_block(isa, l, all, block.clone(), scratch);
        }
    }

    /// gates = x · W_ihᵀ + b for the windows at a block of steps, after [`Sequence::take_input`].
    pub(super) fn project_block(
        &mut self,
        isa: Isa,
        l: usize,
        weights: &LayerWeights,
        block: Range<usize>,
        scratch: &mut ShardScratch,
    ) {
        let shape = [block.len() * self.windows.len(), self.dims.input(l)];
        let own = self.own_unit_panels();
        let panels = self.dims.gates_per_unit();
        let gate_panels = panels * own.start..panels * own.end;
        let (input_at, gates_at) = (self.input_at(l, block.start), self.gates_at(block.start));
        let dropped = self.copies_below(l).then_some(scratch.dropped.as_slice());
        let (below, here) = self.layers.split_at_mut(l);
        let input = input(below.last(), scratch.x.as_slice(), dropped);
        let mut gates = gates_at.view_mut(&mut here[0].gates, &mut scratch.segment.gates);
        let product = weights.projection(shape[0], shape[1], View(input, input_at));
        let isa = self.dims.product_isa(isa);
        weights.project(isa, product, gate_panels, &mut scratch.pairs, &mut scratch.activations, &mut gates);
    }

    /// Input of layer `l` from step `t` on, which begins a block, for windows laid out step after
    /// step: the bars, or the states below after that step, or what norm and dropout made of them.
    pub(super) fn input_at(&self, l: usize, t: usize) -> PanelStride {
        match l {
            0 => self.x_at(),
            _ if self.copies_below(l) => self.dropped_at(),
            _ => self.states_at(t + 1),
        }
    }
}

/// States in and out: `[layers, S, H]` a window, the hidden and then, if the cell has one, the cell
/// state of each layer.
impl Sequence {
    /// Sets the state that layer `l` starts each window from.
    pub(super) fn set_initial_state(&mut self, l: usize, initial: Initial<'_>) {
        let (len, hidden) = (self.windows.len() * PANEL, self.dims.sizes.hidden);
        let (hidden_at, cell_at) = (self.states_at(0), self.saved_cell_at(0));
        let layer = &mut self.layers[l];
        let mut kinds = [(layer.hidden.as_mut_slice(), hidden_at), (layer.cell.as_mut_slice(), cell_at)];
        let kinds = &mut kinds[..self.dims.sizes.cell.states()];
        for (states, at) in &mut *kinds {
            (0..self.dims.unit_panels()).for_each(|panel| states[at.panel(panel).start..][..len].fill(0.0));
        }
        for (w, &end) in self.windows.ends().iter().enumerate() {
            let Some(state) = initial.window_state(end) else { continue };
            let own = state[l * kinds.len() * hidden..].chunks_exact(hidden);
            for (from, (to, at)) in own.zip(&mut *kinds) {
                for (panel, part) in from.chunks(PANEL).enumerate() {
                    to[at.row(w).panel(panel).start..][..part.len()].copy_from_slice(part);
                }
            }
        }
    }

    /// The state of window `w` after step `t`, which is in `to` afterwards.
    ///
    /// # Panics
    /// If cell states are not kept after every step, unless it is the last.
    pub(super) fn read_state(&self, w: usize, t: usize, to: &mut [f32]) {
        let kept = self.checkpointing.cells == SavedCells::EveryStep || t + 1 == self.windows.steps();
        assert!(kept, "the cell state after step {t} of {}", self.windows.steps());
        let (hidden_at, cell_at) = (self.states_at(t + 1).row(w), self.saved_cell_at(t + 1).row(w));
        let hidden = self.dims.sizes.hidden;
        let states = self.dims.sizes.cell.states();
        for (layer, to) in self.layers.iter().zip(to.chunks_exact_mut(states * hidden)) {
            let kinds = [(&layer.hidden, hidden_at), (&layer.cell, cell_at)];
            for ((states, at), to) in kinds.into_iter().zip(to.chunks_exact_mut(hidden)) {
                self.read_kind(states, at, to);
            }
        }
    }

    /// True if there are cell states after every step.
    pub(super) fn keeps_cells(&self) -> bool {
        self.dims.sizes.cell.has_cell_state() && self.checkpointing.cells == SavedCells::EveryStep
    }

    /// The hidden state [H] of layer `l` in window `w` after step `t`, which is in `to` afterwards.
    pub(super) fn read_hidden(&self, l: usize, w: usize, t: usize, to: &mut [f32]) {
        self.read_kind(&self.layers[l].hidden, self.states_at(t + 1).row(w), to);
    }

    /// The cell state likewise, where [`Sequence::keeps_cells`].
    pub(super) fn read_cell(&self, l: usize, w: usize, t: usize, to: &mut [f32]) {
        self.read_kind(&self.layers[l].cell, self.saved_cell_at(t + 1).row(w), to);
    }

    fn read_kind(&self, states: &Buffer<f32>, at: PanelStride, to: &mut [f32]) {
        for (panel, part) in to.chunks_mut(PANEL).enumerate() {
            part.copy_from_slice(&states.as_slice()[at.panel(panel).start..][..part.len()]);
        }
    }

    /// The top layer's hidden state [H] of window `w` after step `t`, which is in `to` afterwards.
    pub(super) fn read_top(&self, w: usize, t: usize, to: &mut [f32]) {
        self.read_hidden(self.layers.len() - 1, w, t, to);
    }
}

/// Inputs of a layer: the bars, the output of the layer below, or that after norm and dropout.
pub(super) fn input<'a>(below: Option<&'a LayerMemory>, x: &'a [f32], dropped: Option<&'a [f32]>) -> &'a [f32] {
    dropped.unwrap_or(below.map_or(x, |below| below.hidden.as_slice()))
}
