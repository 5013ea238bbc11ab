//! Norm and dropout of the outputs that a layer reads, for a block of steps at a time, in the
//! forward pass and again in the backward pass.

use std::ops::Range;

use super::memory::{ShardScratch, panel_stride};
use super::norm::normalise;
use super::rounding::round_panels;
use super::sequence::Sequence;
use super::weights::LayerWeights;
use super::{BLOCK_STEPS, Dimensions};
use crate::kernel::{self, Isa, PANEL, PanelStride, ViewMut};

impl Sequence {
    /// A block of steps in [`ShardScratch::factors`] and [`ShardScratch::dropped`].
    pub(super) fn dropped_at(&self) -> PanelStride {
        let windows = self.windows.len();
        panel_stride(BLOCK_STEPS * windows, windows)
    }

    /// True if layer `l` reads outputs of which some are dropped.
    pub(super) fn drops_below(&self, l: usize) -> bool {
        l > 0 && !self.masks.is_empty()
    }

    /// True if layer `l` reads something else than the states of the layer below.
    pub(super) fn copies_below(&self, l: usize) -> bool {
        l > 0 && (self.dims.sizes.norm || self.drops_below(l))
    }

    /// Fills [`ShardScratch::dropped`], and [`ShardScratch::factors`] for dropout, for what layer
    /// `l`, above the first, reads at a block of steps.
    pub(super) fn copy_block(
        &self,
        isa: Isa,
        l: usize,
        weights: &[LayerWeights],
        block: Range<usize>,
        scratch: &mut ShardScratch,
    ) {
        let (at, ends) = (self.dropped_at(), self.windows.ends());
        let rows = block.len() * ends.len();
        let (below, below_at) = (&self.layers[l - 1].hidden, self.states_at(block.start + 1));
        copy_rows(self.dims, rows, below.as_slice(), below_at, scratch.dropped.as_mut_slice(), at);
        let norm = weights[l - 1].norm.as_slice();
        if !norm.is_empty() {
            normalise(self.dims.sizes.hidden, rows, norm, ViewMut(scratch.dropped.as_mut_slice(), at));
        }
        if self.drops_below(l) {
            for n in 0..self.dims.unit_panels() {
                let mut to = ViewMut(scratch.factors.as_mut_slice(), at.panel(n));
                kernel::draw(isa, self.masks[l - 1], n * PANEL, block.clone(), ends, &mut to);
            }
            multiply_rows(self.dims, rows, scratch.factors.as_slice(), at, scratch.dropped.as_mut_slice(), at);
        }
        round_panels(self.dims.arithmetic, scratch.dropped.as_mut_slice(), at, 0..self.dims.unit_panels(), rows);
    }

    /// Turns the gradients of what layer `l` read at a block of steps into those of the outputs
    /// below it.
    pub(super) fn dropout_backward(&self, block: Range<usize>, scratch: &mut ShardScratch) {
        let rows = block.len() * self.windows.len();
        multiply_rows(
            self.dims,
            rows,
            scratch.factors.as_slice(),
            self.dropped_at(),
            scratch.d_layer_output.as_mut_slice(),
            self.d_layer_output_at(block.start),
        );
    }
}

/// Copies `rows` rows of all panels of units.
pub(super) fn copy_rows(
    dims: Dimensions,
    rows: usize,
    from: &[f32],
    from_at: PanelStride,
    to: &mut [f32],
    to_at: PanelStride,
) {
    for n in 0..dims.unit_panels() {
        to[to_at.panel(n).start..][..rows * PANEL].copy_from_slice(&from[from_at.panel(n).start..][..rows * PANEL]);
    }
}

/// Multiplies `rows` rows of all panels of units, number by number.
fn multiply_rows(
    dims: Dimensions,
    rows: usize,
    factors: &[f32],
    from_at: PanelStride,
    to: &mut [f32],
    to_at: PanelStride,
) {
    for n in 0..dims.unit_panels() {
        let factors = &factors[from_at.panel(n).start..][..rows * PANEL];
        let to = &mut to[to_at.panel(n).start..][..rows * PANEL];
        to.iter_mut().zip(factors).for_each(|(to, factor)| *to *= factor);
    }
}
