//! Gradient checkpointing: what the forward pass does not keep for the backward pass, and how it
//! comes back there.
//!
//! A segment is a block of steps. Hidden states are kept for all steps, since layers above, pooling
//! and the weights' gradients read them. With checkpointing there are beside them, a layer,
//!
//! ```text
//! the gates of the later half of the steps                                            (1)
//! the cell state before each segment, and after the last                              (2)
//! ```
//!
//! and one segment's gates and cell states, recomputed, for all layers and timeframes. A cell
//! without a cell state has (1) alone. Backward,
//! before a segment:
//!
//! ```text
//! earlier half:  gates = functions of (x · W_ihᵀ + h · W_hhᵀ + b)                     (3)
//! every segment: c' = f · c + i · g, step after step
//! ```
//!
//! 1. Where backward begins, so that what the forward pass did last is still in the caches.
//! 2. A run that carries states from step to step reads the cell states of any step afterwards: it
//!    keeps all of them.
//! 3. All steps of the segment in one product, for their hidden states are known.
//!
//! Each number is the sum of the same terms in the same order as in the forward pass, and thus the
//! same to the bit. After Chen et al., *Training deep nets with sublinear memory cost*, 2016.

use std::ops::Range;

use megabatch_gpu_core::Buffer;

use super::dropout::copy_rows;
use super::memory::{Segment, ShardScratch, panel_stride};
use super::sequence::Sequence;
use super::step::RecurrentProduct;
use super::weights::LayerWeights;
use super::{BLOCK_STEPS, Dimensions};
use crate::compute::{CheckpointPolicy, Purpose};
use crate::kernel::{self, Isa, PANEL, PanelOrder, PanelStride, PrefetchRows, Start, View, ViewMut};

/// Steps after which a layer's cell state is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavedCells {
    /// All, after the initial state.
    EveryStep,
    /// States before each segment, and after the last.
    EverySegment,
}

/// Steps whose gates and cell states a layer saves for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checkpointing {
    /// Steps whose gates are kept: the last ones.
    pub(super) gate_steps: usize,
    /// True if the other steps' gates are computed again in the backward pass.
    again: bool,
    pub(super) cells: SavedCells,
}

impl Checkpointing {
    pub(super) fn new(dims: Dimensions, purpose: Purpose) -> Self {
        // Too few steps for two segments are kept as a whole.
        let half = dims.steps / 2 / BLOCK_STEPS * BLOCK_STEPS;
        let (again, cells) = match purpose {
            Purpose::Prediction => (dims.steps, SavedCells::EveryStep),
            Purpose::Training { kept: CheckpointPolicy::Everything, .. } => (0, SavedCells::EveryStep),
            Purpose::Training { kept: CheckpointPolicy::Half, .. } if half > 0 && dims.sizes.cell.has_cell_state() => {
                (half, SavedCells::EverySegment)
            }
            Purpose::Training { .. } => (half, SavedCells::EveryStep),
        };
        Checkpointing { gate_steps: dims.steps - again, again: again > 0, cells }
    }

    /// Rows of each window in the cell states that are kept.
    pub(super) fn cell_rows(self, dims: Dimensions) -> usize {
        match self.cells {
            _ if !dims.sizes.cell.has_cell_state() => 0,
            SavedCells::EveryStep => dims.steps + 1,
            SavedCells::EverySegment => dims.steps.div_ceil(BLOCK_STEPS) + 1,
        }
    }

    /// Rows of each window in the gates and in the cell states of the current segment.
    pub(super) fn segment_rows(self) -> [usize; 2] {
        let gates = if self.again { BLOCK_STEPS } else { 0 };
        let cells = if self.cells == SavedCells::EverySegment { BLOCK_STEPS + 1 } else { 0 };
        [gates, cells]
    }
}

/// Location of a step's gates or cell states.
#[derive(Clone, Copy, Debug)]
pub(super) enum StateLocation {
    /// In the layer's own buffer.
    Layer(PanelStride),
    /// In the buffer of the current segment.
    Segment(PanelStride),
}

impl StateLocation {
    /// The same from panel `panel` on.
    pub(super) fn panel(self, panel: usize) -> StateLocation {
        match self {
            StateLocation::Layer(at) => StateLocation::Layer(at.panel(panel)),
            StateLocation::Segment(at) => StateLocation::Segment(at.panel(panel)),
        }
    }

    pub(super) fn view<'a>(self, layer: &'a Buffer<f32>, segment: &'a Buffer<f32>) -> View<'a> {
        match self {
            StateLocation::Layer(at) => View(layer.as_slice(), at),
            StateLocation::Segment(at) => View(segment.as_slice(), at),
        }
    }

    pub(super) fn view_mut<'a>(self, layer: &'a mut Buffer<f32>, segment: &'a mut Buffer<f32>) -> ViewMut<'a> {
        match self {
            StateLocation::Layer(at) => ViewMut(layer.as_mut_slice(), at),
            StateLocation::Segment(at) => ViewMut(segment.as_mut_slice(), at),
        }
    }
}

impl Sequence {
    /// Steps, the first ones, whose gates are not kept.
    fn steps_again(&self) -> usize {
        self.windows.steps().saturating_sub(self.checkpointing.gate_steps).next_multiple_of(BLOCK_STEPS)
    }

    /// The gates of step `t`.
    pub(super) fn gates_at(&self, t: usize) -> StateLocation {
        let (windows, again) = (self.windows.len(), self.steps_again());
        match t.checked_sub(again) {
            Some(kept) => {
                StateLocation::Layer(panel_stride(self.checkpointing.gate_steps * windows, windows).row(kept * windows))
            }
            None => StateLocation::Segment(self.segment_gates_at(t % BLOCK_STEPS)),
        }
    }

    /// The gates after `steps` steps of the current segment.
    pub(super) fn segment_gates_at(&self, steps: usize) -> PanelStride {
        let windows = self.windows.len();
        panel_stride(BLOCK_STEPS * windows, windows).row(steps * windows)
    }

    /// The cell state before step `t` and, in the rows that follow, that after it.
    pub(super) fn cell_at(&self, t: usize) -> StateLocation {
        match self.checkpointing.cells {
            SavedCells::EveryStep => StateLocation::Layer(self.states_at(t)),
            SavedCells::EverySegment => StateLocation::Segment(self.segment_cell_at(t % BLOCK_STEPS)),
        }
    }

    /// The cell state after `steps` steps of the current segment.
    fn segment_cell_at(&self, steps: usize) -> PanelStride {
        let windows = self.windows.len();
        panel_stride((BLOCK_STEPS + 1) * windows, windows).row(steps * windows)
    }

    /// The cell state before step `t`, with which a segment begins or which there is not, among
    /// those that the layer keeps.
    pub(super) fn saved_cell_at(&self, t: usize) -> PanelStride {
        let windows = self.windows.len();
        match self.checkpointing.cells {
            SavedCells::EveryStep => self.states_at(t),
            SavedCells::EverySegment => {
                let segments = self.windows.steps().div_ceil(BLOCK_STEPS);
                panel_stride((segments + 1) * windows, windows).row(t.div_ceil(BLOCK_STEPS) * windows)
            }
        }
    }

    /// Copies the saved cell state before a segment of layer `l` to the segment's buffer.
    pub(super) fn begin_segment(&self, l: usize, segment: &Range<usize>, scratch: &mut ShardScratch) {
        if self.checkpointing.cells == SavedCells::EverySegment {
            copy_rows(
                self.dims,
                self.windows.len(),
                self.layers[l].cell.as_slice(),
                self.saved_cell_at(segment.start),
                scratch.segment.cell.as_mut_slice(),
                self.segment_cell_at(0),
            );
        }
    }

    /// Saves the cell state of layer `l` after a segment.
    pub(super) fn end_segment(&mut self, l: usize, segment: &Range<usize>, scratch: &ShardScratch) {
        if self.checkpointing.cells == SavedCells::EverySegment {
            let at = self.saved_cell_at(segment.end);
            copy_rows(
                self.dims,
                self.windows.len(),
                scratch.segment.cell.as_slice(),
                self.segment_cell_at(segment.len()),
                self.layers[l].cell.as_mut_slice(),
                at,
            );
        }
    }

    /// Brings back a segment's gates and cell states where they were not kept, for the backward
    /// pass; after [`Sequence::take_input`], unless layer `l` is computed by bar.
    pub(super) fn restore(
        &mut self,
        isa: Isa,
        l: usize,
        weights: &LayerWeights,
        segment: &Range<usize>,
        bars: &[f32],
        scratch: &mut ShardScratch,
    ) {
        self.begin_segment(l, segment, scratch);
        let again = segment.start < self.steps_again();
        match again {
            true if self.projects_per_bar(l) => self.project_segment_per_bar(isa, weights, segment, bars, scratch),
            true => self.project_block(isa, l, weights, segment.clone(), scratch),
            false => {}
        }
        if again {
            self.gates_again(isa, l, weights, segment, scratch);
        }
        if self.checkpointing.cells == SavedCells::EverySegment {
            (0..self.dims.unit_panels()).for_each(|n| self.cells_again(isa, l, n, segment, scratch));
        }
    }

    /// As [`Sequence::project_block`], where windows overlap: each bar once of those that a
    /// segment's steps read.
    fn project_segment_per_bar(
        &self,
        isa: Isa,
        weights: &LayerWeights,
        segment: &Range<usize>,
        bars: &[f32],
        scratch: &mut ShardScratch,
    ) {
        let (features, gates, windows) = (self.dims.sizes.features, self.dims.gate_panels(), self.windows.len());
        // No gradients of gates are there yet.
        let bars_at = self.d_gates_at(0);
        let to_at = self.segment_gates_at(0);
        for (run, rows) in self.windows.bars_of(segment) {
            self.take_bars(&rows, bars, scratch);
            let x = View(scratch.x.as_slice(), self.x_at());
            let product = weights.projection(rows.len(), features, x);
            let mut per_bar_gates = ViewMut(scratch.d_gates.as_mut_slice(), bars_at);
            let isa = self.dims.product_isa(isa);
            weights.project(isa, product, 0..gates, &mut scratch.pairs, &mut scratch.activations, &mut per_bar_gates);
            let to = scratch.segment.gates.as_mut_slice();
            for (panel, t) in (0..gates).flat_map(|panel| (0..segment.len()).map(move |t| (panel, t))) {
                let from = &per_bar_gates.0[bars_at.panel(panel).row(t).start..][..run.len() * PANEL];
                to[to_at.panel(panel).row(t * windows + run.start).start..][..from.len()].copy_from_slice(from);
            }
        }
    }

    /// The gates of all units at all steps of a segment, from their projections.
    fn gates_again(
        &self,
        isa: Isa,
        l: usize,
        weights: &LayerWeights,
        segment: &Range<usize>,
        scratch: &mut ShardScratch,
    ) {
        let ShardScratch { segment: Segment { gates, .. }, pairs, activations, .. } = scratch;
        let (rows, units) = (segment.len() * self.windows.len(), self.dims.unit_panels());
        let (kind, panels, gates_at) = (self.dims.sizes.cell, self.dims.gates_per_unit(), self.segment_gates_at(0));
        let before = View(self.layers[l].hidden.as_slice(), self.states_at(segment.start));
        let shape = [rows, self.dims.sizes.hidden];
        let product = RecurrentProduct::new(self.dims.product_isa(isa), weights, shape, before, pairs, activations);
        let at_once = if product.takes_all_units() { units } else { 1 };
        for first in (0..units).step_by(at_once) {
            let own = panels * first..panels * (first + at_once);
            let mut to = ViewMut(gates.as_mut_slice(), gates_at.panel(own.start));
            product.write(&own, before, Start::Result, &mut to, PanelOrder::Ascending, PrefetchRows::default());
            for n in 0..at_once {
                kernel::activate(isa, kind, rows, &mut to.panel(panels * n));
            }
        }
    }

    /// The cell states of sixteen units after each step of a segment, from their gates.
    fn cells_again(&self, isa: Isa, l: usize, n: usize, segment: &Range<usize>, scratch: &mut ShardScratch) {
        let (kind, panels, layer) = (self.dims.sizes.cell, self.dims.gates_per_unit(), &self.layers[l]);
        for t in segment.clone() {
            let gates = self.gates_at(t).panel(panels * n).view(&layer.gates, &scratch.segment.gates);
            let at = self.segment_cell_at(t - segment.start).panel(n);
            kernel::cells(isa, kind, self.windows.len(), gates, &mut ViewMut(scratch.segment.cell.as_mut_slice(), at));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
