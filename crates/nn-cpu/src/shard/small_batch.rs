#![forbid(unsafe_code)]

//! A step of few windows, down to a single one.
//!
//! Such a step waits for W_hh, which every step reads from the second-level cache, and for chains
//! of operations that depend on one another. So the product runs over all gates at once,
//! from either end in turn, and then the cell over all units at once: chains of many units are
//! under way beside each other.

use super::memory::{LayerMemory, ShardScratch};
use super::sequence::Sequence;
use super::tasks::Projections;
use super::weights::LayerWeights;
use crate::kernel::{self, Isa, PanelOrder, PanelProduct, PrefetchRows, Start, StatesMut, View, ViewMut};

/// Windows up to which this is the faster way; for more, the gates of sixteen units stay in the
/// first-level cache from product to cell.
pub(super) const SMALL_BATCH_ROWS: usize = 8;

/// Windows up to which it is the faster way in 16 and eight bits, where products are shorter.
pub(super) const SMALL_BATCH_ROWS_NARROW: usize = 4;

impl Sequence {
    /// gates = their projections + h · W_hhᵀ of all units that this thread computes, then their
    /// cells: the same bits as unit by unit.
    pub(super) fn step_small_batch(
        &mut self,
        isa: Isa,
        l: usize,
        weights: &LayerWeights,
        t: usize,
        projections: &[&Projections],
        ShardScratch { segment, per_bar_gates, .. }: &mut ShardScratch,
    ) {
        let (rows, hidden, own) = (self.windows.len(), self.dims.sizes.hidden, self.own_unit_panels());
        let (kind, gates_per_unit) = (self.dims.sizes.cell, self.dims.gates_per_unit());
        let (first, panels) = (own.start, gates_per_unit * own.start..gates_per_unit * own.end);
        let projected = self.projected(l, t, per_bar_gates, projections);
        let (gates_at, cell_at, states_at) = (self.gates_at(t), self.cell_at(t), self.states_at(t));
        let all_panels = self.dims.gate_panels();
        let LayerMemory { gates, hidden: states, cell } = &mut self.layers[l];
        let mut gates = gates_at.panel(panels.start).view_mut(gates, &mut segment.gates);
        let start = projected.map_or(Start::Result, Start::Rows);
        let (a, b) = (View(states.as_slice(), states_at), weights.recurrent.as_slice());
        let product = PanelProduct { rows, depth: hidden, panels: all_panels, start, a, b };
        kernel::product_with(
            isa,
            product.part(&panels, &(0..rows)),
            &mut gates,
            PanelOrder::for_step(t),
            PrefetchRows::default(),
        );
        let cell = cell_at.panel(first).view_mut(cell, &mut segment.cell);
        let states = StatesMut { hidden: ViewMut(states.as_mut_slice(), states_at.panel(first)), cell };
        kernel::forward_units(isa, kind, own.len(), rows, &mut gates, states);
    }
}
