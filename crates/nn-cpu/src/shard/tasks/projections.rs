//! Projections of some of the bars that windows share.

use std::ops::Range;

use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::batch::Windows;

use super::super::memory::{ScratchLens, ShardScratch, padded_panel_len, panel_stride};
use super::super::quantized::Activations;
use super::super::rounding::round_panels;
use super::super::weights::LayerWeights;
use super::super::window_panels::pack_bars;
use super::super::{BLOCK_STEPS, Dimensions, bf16};
use crate::compute::Purpose;
use crate::kernel::{Isa, PANEL, PanelStride, View, ViewMut};
use crate::profile::{Clock, Work};

/// Projections of one task: some bars of a timeframe.
#[derive(Debug)]
pub(in crate::shard) struct Projections {
    /// Rows among the bars that all windows cover.
    pub(super) bars: Range<usize>,
    /// Bars, projections by bar and operands in bf16; no other buffer has any length.
    scratch: ShardScratch,
    pub(super) clock: Clock,
}

/// Number of bars that fit beside their projections.
fn bars_at_once(dims: Dimensions) -> usize {
    BLOCK_STEPS * dims.capacity
}

/// Lengths of the buffers for `bars` bars, in numbers.
pub(super) fn lens(dims: Dimensions, bars: usize) -> ScratchLens {
    // Rows are packed as a prediction packs them.
    let [bf16_rows, ..] = bf16::scratch_len(dims, Purpose::Prediction);
    ScratchLens {
        x: dims.sizes.features.div_ceil(PANEL) * padded_panel_len(bars_at_once(dims)),
        per_bar_gates: dims.gate_panels() * padded_panel_len(bars),
        bf16_rows,
        ..ScratchLens::default()
    }
}

impl Projections {
    pub(super) fn new(scope: &Scope, dims: Dimensions, bars: usize) -> Result<Self> {
        let scratch = ShardScratch::new(scope, lens(dims, bars))?;
        Ok(Projections { bars: 0..0, scratch, clock: Clock::default() })
    }

    pub(super) fn ensure_int8_capacity(&mut self, scope: &Scope, dims: Dimensions) -> Result<()> {
        self.scratch.activations = Activations::new(scope, &[dims])?;
        Ok(())
    }

    fn at(&self) -> PanelStride {
        panel_stride(self.bars.len(), 1)
    }

    /// x · W_ihᵀ + b of its bars.
    pub(super) fn project(
        &mut self,
        isa: Isa,
        dims: Dimensions,
        weights: &LayerWeights,
        windows: &Windows,
        bars: &[f32],
    ) {
        let start = self.clock.start();
        let (features, at_once, at) = (dims.sizes.features, bars_at_once(dims), self.at());
        let x_at = panel_stride(at_once, 1);
        for first in self.bars.clone().step_by(at_once) {
            let rows = first..self.bars.end.min(first + at_once);
            let ShardScratch { x, per_bar_gates, pairs, activations, .. } = &mut self.scratch;
            pack_bars(windows, &rows, bars, features, x.as_mut_slice(), x_at);
            round_panels(dims.arithmetic, x.as_mut_slice(), x_at, 0..features.div_ceil(PANEL), rows.len());
            let mut to = ViewMut(per_bar_gates.as_mut_slice(), at.row(first - self.bars.start));
            let x = View(x.as_slice(), x_at);
            let product = weights.projection(rows.len(), features, x);
            let isa = dims.product_isa(isa);
            weights.project(isa, product, 0..dims.gate_panels(), pairs, activations, &mut to);
        }
        self.clock.stop_layer(start, 0, Work::Projection);
    }

    /// `count` rows from `row` on among those of all bars; `None` where it lacks one of them.
    pub(in crate::shard) fn rows(&self, row: usize, count: usize) -> Option<View<'_>> {
        let own = row.checked_sub(self.bars.start).filter(|_| row + count <= self.bars.end)?;
        Some(View(self.scratch.per_bar_gates.as_slice(), self.at().row(own)))
    }

    /// Copies those of its rows that `windows` read at step `t` to theirs among `gates`, in each of
    /// `panels` panels.
    pub(in crate::shard) fn read_step(&self, windows: &Windows, t: usize, panels: usize, gates: &mut ViewMut<'_>) {
        let (at, projected) = (self.at(), self.scratch.per_bar_gates.as_slice());
        let ViewMut(gates, gates_at) = gates;
        for (first, len, bar) in windows.runs_at(t) {
            let own = bar.max(self.bars.start)..(bar + len).min(self.bars.end);
            if own.is_empty() {
                continue;
            }
            let (row, numbers) = (first + own.start - bar, own.len() * PANEL);
            for panel in 0..panels {
                let from = at.row(own.start - self.bars.start).panel(panel).start;
                let to = gates_at.row(row).panel(panel).start;
                gates[to..to + numbers].copy_from_slice(&projected[from..from + numbers]);
            }
        }
    }
}
