#![forbid(unsafe_code)]

//! Sums over all windows and steps, for some panels of gates.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Scope};

use super::super::backward::add_rows;
use super::super::bf16::{self, PairScratch};
use super::super::gradients::SharedGradients;
use super::super::memory::{place, room};
use super::super::rounding::round_panels;
use super::super::sequence::Sequence;
use super::super::weights::unpack_add;
use super::super::windows::Windows;
use super::super::{BLOCK_STEPS, Dimensions};
use super::Group;
use crate::cpu::kernel::bf16::{PairIsa, padded_words};
use crate::cpu::kernel::{self, FactorRows, Isa, PANEL, PanelRows, Place, ProductIsa, View};
use crate::cpu::profile::{Clock, Work};
use crate::cpu::step::Purpose;
use crate::error::Result;
use crate::model::lstm::LayerSlots;

/// The memory of one task that sums up.
#[derive(Debug)]
pub(super) struct PanelSums {
    panels: Range<usize>,
    /// Gradients of gates of a block of steps, all windows side by side; in bf16 alone.
    d_gates: Buffer<f32>, // [panels][block · W][16]
    /// Bars and, in bf16, states before a block of steps, then what the layer read.
    operand: Buffer<f32>, // [unit or F panels][block · W][16]
    by_bar: Buffer<f32>,             // [panels][T · W / 2][16]
    d_input_weight: Buffer<f32>,     // [panels][F or H][16]
    d_recurrent_weight: Buffer<f32>, // [panels][H][16]
    d_bias: Buffer<f32>,             // [panels][16]
    pairs: PairScratch,
    pub(super) clock: Clock,
}

/// Numbers in each buffer for so many panels, in the order of the fields.
pub(super) fn len(dims: Dimensions, purpose: Purpose, panels: usize) -> [usize; 8] {
    let (rows, block) = (dims.steps * dims.capacity, BLOCK_STEPS * dims.capacity);
    let width = (0..dims.sizes.layers).map(|l| dims.input(l)).max().unwrap_or(0);
    let bars = dims.sizes.features.div_ceil(PANEL);
    let sums = panels * PANEL;
    let [_, _, turned] = bf16::scratch_len(dims, purpose);
    let (d_gates, operand, pair_gates) = match dims.pair_isa {
        Some(_) => (panels * room(block), bars.max(dims.units()), panels * padded_words(block) * PANEL),
        None => (0, bars, 0),
    };
    [
        d_gates,
        operand * room(block),
        panels * room(rows / 2),
        sums * width,
        sums * dims.sizes.hidden,
        sums,
        pair_gates,
        turned,
    ]
}

/// All windows of one timeframe after their groups have gone back.
#[derive(Clone, Copy)]
pub(super) struct Unwound<'a> {
    pub(super) dims: Dimensions,
    pub(super) precision: Precision,
    pub(super) windows: &'a Windows,
    pub(super) groups: &'a [&'a Group],
    pub(super) bars: &'a [f32],
    /// Tasks that have not added to each layer.
    pub(super) left: &'a [AtomicUsize],
}

impl Unwound<'_> {
    fn sequence(&self) -> &Sequence {
        &self.groups[0].sequence
    }

    /// A block of steps of all windows.
    fn block_at(&self) -> Place {
        let windows = self.windows.len();
        place(BLOCK_STEPS * windows, windows)
    }

    /// Row of a group's first window at step `t` among those of a block of all windows.
    fn row_in_block(&self, block: &Range<usize>, group: &Group, t: usize) -> usize {
        (t - block.start) * self.windows.len() + group.windows.start
    }

    /// Factors of the gradients of the weights that read `operand` at the steps of a block: rows of
    /// all groups, in the order of one sequence over all windows. `operand` gives those of a group
    /// from a step on; the gradients of gates are those of layer `l` from panel `panel` on.
    fn factors<'g>(
        &'g self,
        l: usize,
        panel: usize,
        block: &Range<usize>,
        operand: impl Fn(&'g Group, usize) -> View<'g>,
    ) -> Vec<FactorRows<'g>> {
        // The steps of the only group follow one another.
        let steps = if self.groups.len() == 1 { block.len() } else { 1 };
        let places = block.clone().step_by(steps).flat_map(|t| self.groups.iter().map(move |&group| (t, group)));
        let factors = places.map(|(t, group)| {
            let rows = steps * group.windows.len();
            FactorRows { rows, a: operand(group, t), d: group.d_gates(l, t).panel(panel) }
        });
        factors.collect()
    }

    /// Rows to prefetch during a block: the factors of dW_hh in the block before it, which is
    /// computed next.
    fn ahead(&self, l: usize, panels: &Range<usize>, block: &Range<usize>) -> Vec<PanelRows> {
        let Some(t) = block.start.checked_sub(BLOCK_STEPS) else { return Vec::new() };
        let group_rows = |group: &&Group| {
            let rows = BLOCK_STEPS * group.windows.len();
            let d_gates = group.d_gates(l, t).panel(panels.start);
            [PanelRows::new(d_gates, panels.len(), rows), PanelRows::new(group.states(l, t), self.dims.units(), rows)]
        };
        self.groups.iter().flat_map(group_rows).collect()
    }

    /// Copies, in each of `panels`, the rows of all groups at the steps of a block to rows of all
    /// windows: `rows` gives those of a group at a step.
    fn gather<'g>(
        &'g self,
        block: &Range<usize>,
        panels: &Range<usize>,
        rows: impl Fn(&'g Group, usize) -> View<'g>,
        to: &mut [f32],
    ) {
        let at = self.block_at();
        for group in self.groups {
            let len = group.windows.len() * PANEL;
            for t in block.clone() {
                let View(from, from_at) = rows(group, t);
                let to_at = at.row(self.row_in_block(block, group, t));
                for panel in panels.clone() {
                    let from = &from[from_at.panel(panel).start..][..len];
                    to[to_at.panel(panel - panels.start).start..][..len].copy_from_slice(from);
                }
            }
        }
    }
}

impl Group {
    /// The gradients of the gates of layer `l` from step `t` on.
    fn d_gates(&self, l: usize, t: usize) -> View<'_> {
        let Group { sequence, scratch, .. } = self;
        sequence.d_gates(l, t, &scratch.segment, &scratch.d_gates)
    }

    /// The states of layer `l` before step `t` and those after it.
    fn states(&self, l: usize, t: usize) -> View<'_> {
        View(self.sequence.layers[l].hidden.as_slice(), self.sequence.states_at(t))
    }
}

impl PanelSums {
    pub(super) fn new(scope: &Scope, dims: Dimensions, purpose: Purpose, panels: Range<usize>) -> Result<Self> {
        let [d_gates, operand, by_bar, d_input, d_recurrent, d_bias, pair_gates, turned] =
            len(dims, purpose, panels.len());
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(PanelSums {
            panels,
            d_gates: zeros(d_gates)?,
            operand: zeros(operand)?,
            by_bar: zeros(by_bar)?,
            d_input_weight: zeros(d_input)?,
            d_recurrent_weight: zeros(d_recurrent)?,
            d_bias: zeros(d_bias)?,
            pairs: PairScratch::new(scope, [0, pair_gates, turned])?,
            clock: Clock::default(),
        })
    }

    /// Number of its panels of gates.
    pub(super) fn panels(&self) -> usize {
        self.panels.len()
    }

    /// Adds the gradients of its panels of all layers at `slots` to `gradients`. The last task that
    /// adds to a layer completes it.
    pub(super) fn add(
        &mut self,
        isa: Isa,
        unwound: Unwound<'_>,
        slots: &[LayerSlots],
        gradients: &SharedGradients<'_>,
    ) {
        for (l, slots) in slots.iter().enumerate().rev() {
            let start = self.clock.start();
            self.sum(isa, unwound, l);
            self.unpack(unwound.dims, l, slots, gradients);
            if unwound.left[l].fetch_sub(1, Ordering::AcqRel) == 1 {
                gradients.complete_layer(slots);
            }
            self.clock.stop_layer(start, l, Work::WeightGradients);
        }
    }

    /// Sums of layer `l`, in the order of [`Sequence::backward`] over all windows.
    fn sum(&mut self, isa: Isa, unwound: Unwound<'_>, l: usize) {
        let windows = unwound.windows;
        for sums in [&mut self.d_input_weight, &mut self.d_recurrent_weight, &mut self.d_bias] {
            sums.as_mut_slice().fill(0.0);
        }
        let (by_bar, sequence) = (unwound.sequence().is_by_bar(l), unwound.sequence());
        let bars_at = place(windows.bars(), 1);
        if by_bar {
            self.by_bar.as_mut_slice()[..self.panels.len() * bars_at.stride].fill(0.0);
        }
        for block in sequence.blocks().rev() {
            if by_bar {
                self.add_by_bar(isa, unwound, l, &block);
            }
            match unwound.dims.pair_isa {
                Some(pair_isa) => self.add_block_pairs(pair_isa, unwound, l, &block),
                None => self.add_block(isa, unwound, l, &block),
            }
        }
        if by_bar {
            self.add_bars(isa, unwound);
        }
    }

    /// Adds the gradients of gates at the steps of a block to the sums by bar.
    fn add_by_bar(&mut self, isa: Isa, unwound: Unwound<'_>, l: usize, block: &Range<usize>) {
        let (bars_at, sums) = (place(unwound.windows.bars(), 1), self.by_bar.as_mut_slice());
        for t in block.clone().rev() {
            for group in unwound.groups {
                let d_gates = group.d_gates(l, t).panel(self.panels.start);
                group.sequence.windows.add_step(isa, t, self.panels.len(), d_gates, sums, bars_at);
            }
        }
    }

    /// Adds a block's share of dW_hh and, unless they are formed by bar, of dW_ih and db.
    fn add_block(&mut self, isa: Isa, unwound: Unwound<'_>, l: usize, block: &Range<usize>) {
        let (dims, panels) = (unwound.dims, self.panels.len());
        let add = |columns, rows: &[FactorRows<'_>], ahead: &[PanelRows], sums: &mut Buffer<f32>| {
            kernel::outer_of(isa, columns, panels, rows, ahead, sums.as_mut_slice());
        };
        let rows = unwound.factors(l, self.panels.start, block, |group, t| group.states(l, t));
        let ahead = unwound.ahead(l, &self.panels, block);
        add(dims.sizes.hidden, &rows, &ahead, &mut self.d_recurrent_weight);
        if unwound.sequence().is_by_bar(l) {
            return;
        }
        rows.iter().for_each(|rows| add_rows(rows.rows, rows.d, self.d_bias.as_mut_slice()));
        let rows = match l {
            0 => {
                let at = self.take_block(unwound, block);
                let x = self.operand.as_slice();
                let row = |group: &Group, t| View(x, at.row(unwound.row_in_block(block, group, t)));
                unwound.factors(l, self.panels.start, block, row)
            }
            _ => unwound.factors(l, self.panels.start, block, |group, t| group.states(l - 1, t + 1)),
        };
        add(dims.input(l), &rows, &[], &mut self.d_input_weight);
    }

    /// [`PanelSums::add_block`] of numbers in bf16, which are packed from rows that follow one
    /// another.
    fn add_block_pairs(&mut self, pair_isa: PairIsa, unwound: Unwound<'_>, l: usize, block: &Range<usize>) {
        let Unwound { dims, windows, .. } = unwound;
        let (rows, panels, at) = (block.len() * windows.len(), self.panels.len(), unwound.block_at());
        let units = 0..dims.units();
        unwound.gather(block, &self.panels, |group, t| group.d_gates(l, t), self.d_gates.as_mut_slice());
        let d_gates = View(self.d_gates.as_slice(), at);
        self.pairs.take_d_gates(pair_isa, rows, panels, d_gates);
        unwound.gather(block, &units, |group, t| group.states(l, t), self.operand.as_mut_slice());
        let (before, sums) = (View(self.operand.as_slice(), at), self.d_recurrent_weight.as_mut_slice());
        self.pairs.add_product(pair_isa, rows, dims.sizes.hidden, panels, before, sums);
        if unwound.sequence().is_by_bar(l) {
            return;
        }
        add_rows(rows, d_gates, self.d_bias.as_mut_slice());
        let input_at = match l {
            0 => self.take_block(unwound, block),
            _ => {
                unwound.gather(block, &units, |group, t| group.states(l - 1, t + 1), self.operand.as_mut_slice());
                at
            }
        };
        let (input, sums) = (View(self.operand.as_slice(), input_at), self.d_input_weight.as_mut_slice());
        self.pairs.add_product(pair_isa, rows, dims.input(l), panels, input, sums);
    }

    /// Brings the bars of all windows at a block of steps to `operand`; their place.
    fn take_block(&mut self, unwound: Unwound<'_>, block: &Range<usize>) -> Place {
        let Unwound { dims, precision, windows, bars, .. } = unwound;
        let (features, at) = (dims.sizes.features, place(BLOCK_STEPS * dims.capacity, 1));
        windows.pack_steps(block, bars, features, self.operand.as_mut_slice(), at);
        let (panels, rows) = (0..features.div_ceil(PANEL), block.len() * windows.len());
        round_panels(precision, self.operand.as_mut_slice(), at, panels, rows);
        at
    }

    /// dW_ih and db of the first layer, once a bar.
    fn add_bars(&mut self, isa: Isa, unwound: Unwound<'_>) {
        let Unwound { dims, windows, precision, bars, .. } = unwound;
        let (features, at_once, panels) = (dims.sizes.features, BLOCK_STEPS * dims.capacity, self.panels.len());
        let (x_at, bars_at) = (place(at_once, 1), place(windows.bars(), 1));
        for first in (0..windows.bars()).step_by(at_once) {
            let rows = first..windows.bars().min(first + at_once);
            windows.pack_bars(&rows, bars, features, self.operand.as_mut_slice(), x_at);
            round_panels(precision, self.operand.as_mut_slice(), x_at, 0..features.div_ceil(PANEL), rows.len());
            let d_gates = View(self.by_bar.as_slice(), bars_at.row(first));
            let x = View(self.operand.as_slice(), x_at);
            let isa = ProductIsa { isa, pair_isa: dims.pair_isa };
            kernel::outer_by(isa, rows.len(), features, panels, x, d_gates, self.d_input_weight.as_mut_slice());
            add_rows(rows.len(), d_gates, self.d_bias.as_mut_slice());
        }
    }

    /// Adds the sums of layer `l` to its parameters' gradients.
    fn unpack(&self, dims: Dimensions, l: usize, slots: &LayerSlots, gradients: &SharedGradients<'_>) {
        let (hidden, width) = (dims.sizes.hidden, self.panels.len() * PANEL);
        gradients.add(|gradients| {
            let mut unpack = |sums: &Buffer<f32>, len, slot| {
                unpack_add(hidden, &self.panels, &sums.as_slice()[..len], slot, gradients);
            };
            unpack(&self.d_input_weight, width * dims.input(l), slots.weight_ih);
            unpack(&self.d_recurrent_weight, width * hidden, slots.weight_hh);
            slots.bias.into_iter().flatten().for_each(|slot| unpack(&self.d_bias, width, slot));
        });
    }
}
