//! A step of the recurrence: gates = their projections + h · W_hhᵀ, then the cell.
//!
//! | numbers of the product | h is | weights are |
//! | --- | --- | --- |
//! | fp32 | the states, where they lie | panels |
//! | bf16 | packed once a step | pairs |
//! | int8 | quantised once a step | quantised panels |
//!
//! A step goes over the units in one of two orders, to the same bits.
//!
//! 1. Sixteen units at a time: the gates stay in the first-level cache from product to cell. What
//!    the next step needs is prefetched, in fp32 during the product, which is bound by its
//!    multiplications, and in bf16 during the cell.
//! 2. All units at once, for few windows. Such a step waits for W_hh, which every step reads from
//!    the second-level cache, and for chains of operations that depend on one another. So the
//!    product runs over all gates, from either end in turn, and then the cell over all units:
//!    chains of many units are under way beside each other.

use std::ops::Range;

use super::bf16::Bf16Scratch;
use super::memory::{LayerMemory, ShardScratch};
use super::quantized::{Activations, QuantizedLayer};
use super::sequence::Sequence;
use super::tasks::Projections;
use super::weights::LayerWeights;
use crate::kernel::bf16::{self, Bf16Isa, padded_words};
use crate::kernel::quantized::{self as int8, Int8Isa, Int8Product, Int8Rows};
use crate::kernel::{
    self, Isa, PANEL, PanelOrder, PanelProduct, Prefetch, PrefetchRows, ProductIsa, Start, StatesMut, View, ViewMut,
};

/// Windows up to which all units at once are faster in fp32.
const SMALL_BATCH_ROWS: usize = 8;

/// Windows up to which they are faster in 16 and eight bits, where products are shorter.
const SMALL_BATCH_ROWS_NARROW: usize = 4;

/// h · W_hhᵀ of `rows` windows, in the numbers that it is multiplied in.
pub(super) struct RecurrentProduct<'a> {
    rows: usize,
    hidden: usize,
    operands: Operands<'a>,
}

/// Instructions, h where it is copied, and weights.
enum Operands<'a> {
    Fp32(Isa, &'a LayerWeights),
    Bf16(Bf16Isa, View<'a>, &'a LayerWeights),
    Int8(Int8Isa, Int8Rows<'a>, &'a QuantizedLayer),
}

impl<'a> RecurrentProduct<'a> {
    /// The product of `h`, [rows, hidden] as `shape` says, packed or quantised where the weights
    /// are.
    pub(super) fn new(
        isa: ProductIsa,
        weights: &'a LayerWeights,
        shape: [usize; 2],
        h: View<'_>,
        pairs: &'a mut Bf16Scratch,
        activations: &'a mut Activations,
    ) -> Self {
        let [rows, hidden] = shape;
        let operands = match (&weights.quantized, isa.bf16_isa) {
            (Some(quantized), _) => {
                let int8_isa = activations.isa();
                Operands::Int8(int8_isa, activations.take(rows, hidden, h), quantized)
            }
            (None, Some(bf16_isa)) => Operands::Bf16(bf16_isa, pairs.take_rows(bf16_isa, rows, hidden, h), weights),
            (None, None) => Operands::Fp32(isa.isa, weights),
        };
        RecurrentProduct { rows, hidden, operands }
    }

    /// True if there are so few rows that all units at once are faster, products and cells.
    fn is_small_batch(&self) -> bool {
        match self.operands {
            Operands::Fp32(..) => self.rows <= SMALL_BATCH_ROWS,
            Operands::Bf16(..) | Operands::Int8(..) => self.rows <= SMALL_BATCH_ROWS_NARROW,
        }
    }

    /// True if one product of all units is faster than one of sixteen at a time, whatever the rows.
    pub(super) fn takes_all_units(&self) -> bool {
        matches!(self.operands, Operands::Bf16(isa, ..) if isa.multiplies_whole_steps())
    }

    /// Writes `start` + h · W_hhᵀ at the panels `panels` of the gates to `to`.
    ///
    /// `h` is that of [`RecurrentProduct::new`].
    pub(super) fn write(
        &self,
        panels: &Range<usize>,
        h: View<'_>,
        start: Start<'_>,
        to: &mut ViewMut<'_>,
        order: PanelOrder,
        prefetch: PrefetchRows,
    ) {
        let (rows, depth, first, panels) = (self.rows, self.hidden, panels.start, panels.len());
        match &self.operands {
            Operands::Fp32(isa, weights) => {
                let b = &weights.recurrent.as_slice()[first * depth * PANEL..];
                kernel::product_with(*isa, PanelProduct { rows, depth, panels, start, a: h, b }, to, order, prefetch);
            }
            Operands::Bf16(isa, h, weights) => {
                let b = &weights.recurrent.as_slice()[first * padded_words(depth) * PANEL..];
                bf16::product(*isa, PanelProduct { rows, depth, panels, start, a: *h, b }, to, order);
            }
            Operands::Int8(isa, h, weights) => {
                let product = Int8Product { depth, panels, start, x: *h, weights: weights.recurrent_from(first) };
                int8::product(*isa, product, to, order);
            }
        }
    }
}

impl Sequence {
    /// Gates and states of layer `l` at step `t`, of the units that this thread computes.
    /// Projections are read where they are: in the gates, unless they were made by bar and the
    /// windows' bars follow one another.
    pub(super) fn step(
        &mut self,
        isa: Isa,
        l: usize,
        weights: &LayerWeights,
        t: usize,
        projections: &[&Projections],
        scratch: &mut ShardScratch,
    ) {
        let ShardScratch { segment, per_bar_gates, pairs, activations, .. } = scratch;
        let (rows, hidden, own) = (self.windows.len(), self.dims.sizes.hidden, self.own_unit_panels());
        let (kind, panels) = (self.dims.sizes.cell, self.dims.gates_per_unit());
        let projected = self.projected(l, t, per_bar_gates, projections);
        if projected.is_none() && self.projects_per_bar(l) {
            self.read_projections(t, per_bar_gates, projections, &mut segment.gates);
        }
        let (gates_at, cell_at, before) = (self.gates_at(t), self.cell_at(t), self.states_at(t));
        let (next_gates, next_cell, after) = (self.gates_at(t + 1), self.cell_at(t + 1), self.states_at(t + 1));
        let LayerMemory { gates, hidden: states, cell } = &mut self.layers[l];
        let h = View(states.as_slice(), before);
        let isa = self.dims.product_isa(isa);
        let product = RecurrentProduct::new(isa, weights, [rows, hidden], h, pairs, activations);
        let is_small_batch = product.is_small_batch();
        let at_once = if is_small_batch || product.takes_all_units() { own.len().max(1) } else { 1 };
        let (prefetches_in_product, prefetch_in_cell) = match product.operands {
            Operands::Fp32(..) => (!is_small_batch, Prefetch::Nothing),
            Operands::Bf16(..) => (false, Prefetch::NextStep),
            Operands::Int8(..) => (false, Prefetch::Nothing),
        };
        let order = if prefetches_in_product { PanelOrder::Ascending } else { PanelOrder::for_step(t) };
        for first in own.step_by(at_once) {
            let mut prefetch = PrefetchRows::default();
            if prefetches_in_product {
                let View(next, next_at) = next_gates.panel(panels * first).view(gates, &segment.gates);
                let View(next_state, next_state_at) = next_cell.panel(first).view(cell, &segment.cell);
                prefetch = prefetch
                    .and(next, next_at, panels, rows)
                    .and(next_state, next_state_at.row(rows), usize::from(kind.has_cell_state()), rows)
                    .and(states.as_slice(), after.panel(first).row(rows), 1, rows);
            }
            let own_panels = panels * first..panels * (first + at_once);
            let start = projected.map_or(Start::Result, |rows| Start::Rows(rows.panel(own_panels.start)));
            let h = View(states.as_slice(), before);
            let mut unit_gates = gates_at.panel(own_panels.start).view_mut(gates, &mut segment.gates);
            product.write(&own_panels, h, start, &mut unit_gates, order, prefetch);
            if is_small_batch {
                let cell = cell_at.panel(first).view_mut(cell, &mut segment.cell);
                let states = StatesMut { hidden: ViewMut(states.as_mut_slice(), before.panel(first)), cell };
                kernel::forward_units(isa.isa, kind, at_once, rows, &mut unit_gates, states);
                continue;
            }
            for n in first..first + at_once {
                let mut gates = gates_at.panel(panels * n).view_mut(gates, &mut segment.gates);
                let cell = cell_at.panel(n).view_mut(cell, &mut segment.cell);
                let states = StatesMut { hidden: ViewMut(states.as_mut_slice(), before.panel(n)), cell };
                kernel::forward(isa.isa, kind, rows, &mut gates, states, prefetch_in_cell);
            }
        }
    }
}
