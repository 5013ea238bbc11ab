#![forbid(unsafe_code)]

//! Sums over all windows and steps, for some panels of gates.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Scope};

use super::super::backward::add_rows;
use super::super::gradients::SharedGradients;
use super::super::memory::{place, room};
use super::super::pairs::{self, PairScratch};
use super::super::rounding::round_panels;
use super::super::sequence::Sequence;
use super::super::weights::unpack_add;
use super::super::windows::Windows;
use super::super::{BLOCK_STEPS, Dimensions};
use super::Group;
use crate::cpu::kernel::pairs::padded_words;
use crate::cpu::kernel::{self, Isa, PANEL, Place, ProductIsa, View};
use crate::cpu::profile::{Clock, Work};
use crate::cpu::step::Purpose;
use crate::error::Result;
use crate::model::lstm::LayerSlots;

/// The memory of one task that sums up.
#[derive(Debug)]
pub(super) struct PanelSums {
    panels: Range<usize>,
    /// Gradients of gates of a block of steps, all windows side by side.
    d_gates: Buffer<f32>, // [panels][block · W][16]
    /// States before these steps, then what the layer read; bars at the end.
    operand: Buffer<f32>, // [unit or F panels][block · W][16]
    by_bar: Buffer<f32>,             // [panels][T · W / 2][16]
    d_input_weight: Buffer<f32>,     // [panels][F or H][16]
    d_recurrent_weight: Buffer<f32>, // [panels][H][16]
    d_bias: Buffer<f32>,             // [panels][16]
    pairs: PairScratch,
    pub(super) clock: Clock,
}

/// Numbers in each buffer for so many panels, in the order of the fields.
pub(super) fn len(of: Dimensions, purpose: Purpose, panels: usize) -> [usize; 8] {
    let (rows, block) = (of.steps * of.capacity, BLOCK_STEPS * of.capacity);
    let width = (0..of.sizes.layers).map(|l| of.input(l)).max().unwrap_or(0);
    let operand = of.units().max(of.sizes.features.div_ceil(PANEL)) * room(block);
    let sums = panels * PANEL;
    let [_, _, turned] = pairs::scratch_len(of, purpose);
    let pair_gates = if of.pair_isa.is_some() { panels * padded_words(block) * PANEL } else { 0 };
    [
        panels * room(block),
        operand,
        panels * room(rows / 2),
        sums * width,
        sums * of.sizes.hidden,
        sums,
        pair_gates,
        turned,
    ]
}

/// All windows of one timeframe after their groups have gone back.
#[derive(Clone, Copy)]
pub(super) struct Unwound<'a> {
    pub(super) of: Dimensions,
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

    /// Copies, in each of `panels`, the rows of all groups at the steps of a block to rows of all
    /// windows: `rows` gives those of a group at a step.
    fn gather<'g>(
        &'g self,
        block: &Range<usize>,
        panels: &Range<usize>,
        rows: impl Fn(&'g Group, usize) -> View<'g>,
        to: &mut [f32],
    ) {
        let (at, windows) = (self.block_at(), self.windows.len());
        for group in self.groups {
            let len = group.windows.len() * PANEL;
            for t in block.clone() {
                let View(from, from_at) = rows(group, t);
                let to_at = at.row((t - block.start) * windows + group.windows.start);
                for panel in panels.clone() {
                    let from = &from[from_at.panel(panel).start..][..len];
                    to[to_at.panel(panel - panels.start).start..][..len].copy_from_slice(from);
                }
            }
        }
    }

    /// The states of layer `l` before the steps of a block or, `after` steps later, after them.
    fn gather_states(&self, l: usize, block: &Range<usize>, after: usize, to: &mut [f32]) {
        let states = |sequence: &'_ Sequence, t: usize| sequence.states_at(t + after);
        self.gather(
            block,
            &(0..self.of.units()),
            |group, t| View(group.sequence.layers[l].hidden.as_slice(), states(&group.sequence, t)),
            to,
        );
    }
}

impl PanelSums {
    pub(super) fn new(scope: &Scope, of: Dimensions, purpose: Purpose, panels: Range<usize>) -> Result<Self> {
        let [d_gates, operand, by_bar, d_input, d_recurrent, d_bias, pair_gates, turned] =
            len(of, purpose, panels.len());
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
            self.unpack(unwound.of, l, slots, gradients);
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
            let gates = |group: &'_ Group, t: usize| group.sequence.gates_at(t);
            let d_gates = self.d_gates.as_mut_slice();
            unwound.gather(
                &block,
                &self.panels,
                |group, t| gates(group, t).view(&group.sequence.layers[l].gates, &group.scratch.segment.gates),
                d_gates,
            );
            if by_bar {
                for t in block.clone().rev() {
                    let from = unwound.block_at().row((t - block.start) * windows.len());
                    let sums = self.by_bar.as_mut_slice();
                    windows.add_step(t, self.panels.len(), self.d_gates.as_slice(), from, sums, bars_at);
                }
            }
            self.add_block(isa, unwound, l, &block);
        }
        if by_bar {
            self.add_bars(isa, unwound);
        }
    }

    /// Adds a block's share of dW_hh and, unless they are formed by bar, of dW_ih and db.
    fn add_block(&mut self, isa: Isa, unwound: Unwound<'_>, l: usize, block: &Range<usize>) {
        let Unwound { of, windows, precision, bars, .. } = unwound;
        let (rows, panels, at) = (block.len() * windows.len(), self.panels.len(), unwound.block_at());
        let d_gates = View(self.d_gates.as_slice(), at);
        if let Some(pair_isa) = of.pair_isa {
            self.pairs.take_d_gates(pair_isa, rows, panels, d_gates);
        }
        unwound.gather_states(l, block, 0, self.operand.as_mut_slice());
        let product = |pairs: &mut PairScratch, columns, a: View<'_>, sums: &mut [f32]| match of.pair_isa {
            Some(pair_isa) => pairs.add_product(pair_isa, rows, columns, panels, a, sums),
            None => kernel::outer(isa, rows, columns, panels, a, d_gates, sums),
        };
        let before = View(self.operand.as_slice(), at);
        product(&mut self.pairs, of.sizes.hidden, before, self.d_recurrent_weight.as_mut_slice());
        if unwound.sequence().is_by_bar(l) {
            return;
        }
        let input_at = match l {
            0 => {
                let (features, at) = (of.sizes.features, place(BLOCK_STEPS * of.capacity, 1));
                windows.pack_steps(block, bars, features, self.operand.as_mut_slice(), at);
                round_panels(precision, self.operand.as_mut_slice(), at, 0..features.div_ceil(PANEL), rows);
                at
            }
            _ => {
                unwound.gather_states(l - 1, block, 1, self.operand.as_mut_slice());
                at
            }
        };
        let input = View(self.operand.as_slice(), input_at);
        product(&mut self.pairs, of.input(l), input, self.d_input_weight.as_mut_slice());
        add_rows(rows, d_gates, self.d_bias.as_mut_slice());
    }

    /// dW_ih and db of the first layer, once a bar.
    fn add_bars(&mut self, isa: Isa, unwound: Unwound<'_>) {
        let Unwound { of, windows, precision, bars, .. } = unwound;
        let (features, at_once, panels) = (of.sizes.features, BLOCK_STEPS * of.capacity, self.panels.len());
        let (x_at, bars_at) = (place(at_once, 1), place(windows.bars(), 1));
        for first in (0..windows.bars()).step_by(at_once) {
            let rows = first..windows.bars().min(first + at_once);
            windows.pack_bars(&rows, bars, features, self.operand.as_mut_slice(), x_at);
            round_panels(precision, self.operand.as_mut_slice(), x_at, 0..features.div_ceil(PANEL), rows.len());
            let d_gates = View(self.by_bar.as_slice(), bars_at.row(first));
            let x = View(self.operand.as_slice(), x_at);
            let isa = ProductIsa { isa, pair_isa: of.pair_isa };
            kernel::outer_by(isa, rows.len(), features, panels, x, d_gates, self.d_input_weight.as_mut_slice());
            add_rows(rows.len(), d_gates, self.d_bias.as_mut_slice());
        }
    }

    /// Adds the sums of layer `l` to its parameters' gradients.
    fn unpack(&self, of: Dimensions, l: usize, slots: &LayerSlots, gradients: &SharedGradients<'_>) {
        let (hidden, width) = (of.sizes.hidden, self.panels.len() * PANEL);
        gradients.add(|gradients| {
            let mut unpack = |sums: &Buffer<f32>, len, slot| {
                unpack_add(hidden, &self.panels, &sums.as_slice()[..len], slot, gradients);
            };
            unpack(&self.d_input_weight, width * of.input(l), slots.weight_ih);
            unpack(&self.d_recurrent_weight, width * hidden, slots.weight_hh);
            slots.bias.into_iter().flatten().for_each(|slot| unpack(&self.d_bias, width, slot));
        });
    }
}
