//! Sums over all windows and steps, for some panels of gates.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::Windows;
use megabatch_nn::model::recurrent::LayerSlots;

use super::super::backward::add_rows;
use super::super::bf16::{self, Bf16Scratch};
use super::super::gradients::SharedGradients;
use super::super::memory::{padded_panel_len, panel_stride};
use super::super::rounding::round_panels;
use super::super::sequence::Sequence;
use super::super::weights::WeightSums;
use super::super::window_panels;
use super::super::{BLOCK_STEPS, Dimensions};
use super::Group;
use crate::compute::Purpose;
use crate::kernel::bf16::{Bf16Isa, padded_words};
use crate::kernel::{self, FactorRows, Isa, PANEL, PanelRows, PanelStride, View};
use crate::profile::{Clock, Work};

/// The memory of one task that sums up.
#[derive(Debug)]
pub(super) struct PanelSums {
    panels: Range<usize>,
    /// Gradients of gates of a block of steps, all windows side by side; in bf16 alone.
    d_gates: Buffer<f32>, // [panels][block · W][16]
    /// Bars and, in bf16, states before a block of steps, then what the layer read.
    operand: Buffer<f32>, // [unit or F panels][block · W][16]
    per_bar_gates: Buffer<f32>,      // [panels][T · W / 2][16]
    d_input_weight: Buffer<f32>,     // [panels][F or H][16]
    d_recurrent_weight: Buffer<f32>, // [panels][H][16]
    d_bias: Buffer<f32>,             // [panels][16]
    pairs: Bf16Scratch,
    pub(super) clock: Clock,
}

/// Length of each buffer for `panels` panels in numbers, in the order of the fields.
pub(super) fn len(dims: Dimensions, purpose: Purpose, panels: usize) -> [usize; 8] {
    let (rows, block) = (dims.steps * dims.capacity, BLOCK_STEPS * dims.capacity);
    let width = (0..dims.sizes.layers).map(|l| dims.input(l)).max().unwrap_or(0);
    let bars = dims.sizes.features.div_ceil(PANEL);
    let sums = panels * PANEL;
    let [_, _, transposed] = bf16::scratch_len(dims, purpose);
    let (d_gates, operand, bf16_gates) = match dims.arithmetic.bf16_isa() {
        Some(_) => {
            (panels * padded_panel_len(block), bars.max(dims.unit_panels()), panels * padded_words(block) * PANEL)
        }
        None => (0, bars, 0),
    };
    [
        d_gates,
        operand * padded_panel_len(block),
        panels * padded_panel_len(rows / 2),
        sums * width,
        sums * dims.sizes.hidden,
        sums,
        bf16_gates,
        transposed,
    ]
}

/// One timeframe's windows, after the backward pass of their groups.
#[derive(Clone, Copy)]
pub(super) struct BackwardWindows<'a> {
    pub(super) dims: Dimensions,
    pub(super) windows: &'a Windows,
    pub(super) groups: &'a [&'a Group],
    pub(super) bars: &'a [f32],
    /// Tasks that have not added to each layer.
    pub(super) left: &'a [AtomicUsize],
}

impl BackwardWindows<'_> {
    fn sequence(&self) -> &Sequence {
        &self.groups[0].sequence
    }

    /// A block of steps of all windows.
    fn block_at(&self) -> PanelStride {
        let windows = self.windows.len();
        panel_stride(BLOCK_STEPS * windows, windows)
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
    fn prefetch(&self, l: usize, panels: &Range<usize>, block: &Range<usize>) -> Vec<PanelRows> {
        let Some(t) = block.start.checked_sub(BLOCK_STEPS) else { return Vec::new() };
        let group_rows = |group: &&Group| {
            let rows = BLOCK_STEPS * group.windows.len();
            let d_gates = group.d_gates(l, t).panel(panels.start);
            [
                PanelRows::new(d_gates, panels.len(), rows),
                PanelRows::new(group.states(l, t), self.dims.unit_panels(), rows),
            ]
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
        let [d_gates, operand, per_bar_gates, d_input, d_recurrent, d_bias, bf16_gates, transposed] =
            len(dims, purpose, panels.len());
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(PanelSums {
            panels,
            d_gates: zeros(d_gates)?,
            operand: zeros(operand)?,
            per_bar_gates: zeros(per_bar_gates)?,
            d_input_weight: zeros(d_input)?,
            d_recurrent_weight: zeros(d_recurrent)?,
            d_bias: zeros(d_bias)?,
            pairs: Bf16Scratch::new(scope, [0, bf16_gates, transposed])?,
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
        backward_windows: BackwardWindows<'_>,
        slots: &[LayerSlots],
        gradients: &SharedGradients<'_>,
    ) {
        for (l, slots) in slots.iter().enumerate().rev() {
            let start = self.clock.start();
            self.sum(isa, backward_windows, l);
            self.unpack(backward_windows.dims, slots, gradients);
            if backward_windows.left[l].fetch_sub(1, Ordering::AcqRel) == 1 {
                gradients.complete_layer(slots);
            }
            self.clock.stop_layer(start, l, Work::WeightGradients);
        }
    }

    /// Sums of layer `l`, in the order of [`Sequence::backward`] over all windows.
    fn sum(&mut self, isa: Isa, backward_windows: BackwardWindows<'_>, l: usize) {
        let windows = backward_windows.windows;
        for sums in [&mut self.d_input_weight, &mut self.d_recurrent_weight, &mut self.d_bias] {
            sums.as_mut_slice().fill(0.0);
        }
        let (per_bar_gates, sequence) = (backward_windows.sequence().projects_per_bar(l), backward_windows.sequence());
        let bars_at = panel_stride(windows.bars(), 1);
        if per_bar_gates {
            self.per_bar_gates.as_mut_slice()[..self.panels.len() * bars_at.stride].fill(0.0);
        }
        for block in sequence.blocks().rev() {
            if per_bar_gates {
                self.add_per_bar(isa, backward_windows, l, &block);
            }
            match backward_windows.dims.arithmetic.bf16_isa() {
                Some(bf16_isa) => self.add_block_bf16(bf16_isa, backward_windows, l, &block),
                None => self.add_block(isa, backward_windows, l, &block),
            }
        }
        if per_bar_gates {
            self.add_bars(isa, backward_windows);
        }
    }

    /// Adds the gradients of gates at the steps of a block to the sums by bar.
    fn add_per_bar(&mut self, isa: Isa, backward_windows: BackwardWindows<'_>, l: usize, block: &Range<usize>) {
        let (bars_at, sums) = (panel_stride(backward_windows.windows.bars(), 1), self.per_bar_gates.as_mut_slice());
        for t in block.clone().rev() {
            for group in backward_windows.groups {
                let d_gates = group.d_gates(l, t).panel(self.panels.start);
                window_panels::add_step(&group.sequence.windows, isa, t, self.panels.len(), d_gates, sums, bars_at);
            }
        }
    }

    /// Adds a block's share of dW_hh and, unless they are formed by bar, of dW_ih and db.
    fn add_block(&mut self, isa: Isa, backward_windows: BackwardWindows<'_>, l: usize, block: &Range<usize>) {
        let (dims, panels) = (backward_windows.dims, self.panels.len());
        let add = |columns, rows: &[FactorRows<'_>], prefetch: &[PanelRows], sums: &mut Buffer<f32>| {
            kernel::outer_of(isa, columns, panels, rows, prefetch, sums.as_mut_slice());
        };
        let rows = backward_windows.factors(l, self.panels.start, block, |group, t| group.states(l, t));
        let prefetch = backward_windows.prefetch(l, &self.panels, block);
        add(dims.sizes.hidden, &rows, &prefetch, &mut self.d_recurrent_weight);
        if backward_windows.sequence().projects_per_bar(l) {
            return;
        }
        rows.iter().for_each(|rows| add_rows(rows.rows, rows.d, self.d_bias.as_mut_slice()));
        let rows = match l {
            0 => {
                let at = self.take_block(backward_windows, block);
                let x = self.operand.as_slice();
                let row = |group: &Group, t| View(x, at.row(backward_windows.row_in_block(block, group, t)));
                backward_windows.factors(l, self.panels.start, block, row)
            }
            _ => backward_windows.factors(l, self.panels.start, block, |group, t| group.states(l - 1, t + 1)),
        };
        add(dims.input(l), &rows, &[], &mut self.d_input_weight);
    }

    /// [`PanelSums::add_block`] of numbers in bf16, which are packed from rows that follow one
    /// another.
    fn add_block_bf16(
        &mut self,
        bf16_isa: Bf16Isa,
        backward_windows: BackwardWindows<'_>,
        l: usize,
        block: &Range<usize>,
    ) {
        let BackwardWindows { dims, windows, .. } = backward_windows;
        let (rows, panels, at) = (block.len() * windows.len(), self.panels.len(), backward_windows.block_at());
        let units = 0..dims.unit_panels();
        backward_windows.gather(block, &self.panels, |group, t| group.d_gates(l, t), self.d_gates.as_mut_slice());
        let d_gates = View(self.d_gates.as_slice(), at);
        self.pairs.take_d_gates(bf16_isa, rows, panels, d_gates);
        backward_windows.gather(block, &units, |group, t| group.states(l, t), self.operand.as_mut_slice());
        let (before, sums) = (View(self.operand.as_slice(), at), self.d_recurrent_weight.as_mut_slice());
        self.pairs.add_product(bf16_isa, rows, dims.sizes.hidden, panels, before, sums);
        if backward_windows.sequence().projects_per_bar(l) {
            return;
        }
        add_rows(rows, d_gates, self.d_bias.as_mut_slice());
        let input_at = match l {
            0 => self.take_block(backward_windows, block),
            _ => {
                backward_windows.gather(
                    block,
                    &units,
                    |group, t| group.states(l - 1, t + 1),
                    self.operand.as_mut_slice(),
                );
                at
            }
        };
        let (input, sums) = (View(self.operand.as_slice(), input_at), self.d_input_weight.as_mut_slice());
        self.pairs.add_product(bf16_isa, rows, dims.input(l), panels, input, sums);
    }

    /// Brings the bars of all windows at a block of steps to `operand`; their place.
    fn take_block(&mut self, backward_windows: BackwardWindows<'_>, block: &Range<usize>) -> PanelStride {
        let BackwardWindows { dims, windows, bars, .. } = backward_windows;
        let (features, at) = (dims.sizes.features, panel_stride(BLOCK_STEPS * dims.capacity, 1));
        window_panels::pack_steps(windows, block, bars, features, self.operand.as_mut_slice(), at);
        let (panels, rows) = (0..features.div_ceil(PANEL), block.len() * windows.len());
        round_panels(dims.arithmetic, self.operand.as_mut_slice(), at, panels, rows);
        at
    }

    /// dW_ih and db of the first layer, once a bar.
    fn add_bars(&mut self, isa: Isa, backward_windows: BackwardWindows<'_>) {
        let BackwardWindows { dims, windows, bars, .. } = backward_windows;
        let (features, at_once, panels) = (dims.sizes.features, BLOCK_STEPS * dims.capacity, self.panels.len());
        let (x_at, bars_at) = (panel_stride(at_once, 1), panel_stride(windows.bars(), 1));
        for first in (0..windows.bars()).step_by(at_once) {
            let rows = first..windows.bars().min(first + at_once);
            window_panels::pack_bars(windows, &rows, bars, features, self.operand.as_mut_slice(), x_at);
            round_panels(dims.arithmetic, self.operand.as_mut_slice(), x_at, 0..features.div_ceil(PANEL), rows.len());
            let d_gates = View(self.per_bar_gates.as_slice(), bars_at.row(first));
            let x = View(self.operand.as_slice(), x_at);
            let isa = dims.product_isa(isa);
            kernel::outer_by(isa, rows.len(), features, panels, x, d_gates, self.d_input_weight.as_mut_slice());
            add_rows(rows.len(), d_gates, self.d_bias.as_mut_slice());
        }
    }

    /// Adds the sums of a layer to its parameters' gradients.
    fn unpack(&self, dims: Dimensions, slots: &LayerSlots, gradients: &SharedGradients<'_>) {
        let sums = WeightSums {
            input: self.d_input_weight.as_slice(),
            recurrent: self.d_recurrent_weight.as_slice(),
            bias: self.d_bias.as_slice(),
        };
        gradients.add(|gradients| sums.add_to(dims.sizes, &self.panels, slots, gradients));
    }
}
