#![forbid(unsafe_code)]

//! The memory of a shard, by shape.

use megabatch_gpu_core::{Buffer, Scope};

use super::norm::norm_len;
use super::pairs::{self, PairScratch};
use super::quantized::Activations;
use super::segments::Extent;
use super::{BLOCK_STEPS, Dimensions};
use crate::cpu::kernel::{PANEL, Place};
use crate::cpu::step::Purpose;
use crate::error::Result;
use crate::memory::{BACKWARD, BOTH, StepPhase};

/// Numbers in 4 KiB, after which addresses fall into the same set of the first-level cache.
const CACHE_WAY: usize = 1024;

/// The place of a matrix of `rows` rows that is worked on `step_rows` rows at a time. The stride
/// makes the blocks of neighbouring panels follow one another in the cache instead of displacing
/// each other.
pub(super) fn place(rows: usize, step_rows: usize) -> Place {
    let len = rows * PANEL;
    let ahead = (step_rows * PANEL + CACHE_WAY - len % CACHE_WAY) % CACHE_WAY;
    Place { start: 0, stride: len + ahead }
}

/// Numbers in a panel of up to `rows` rows, whatever its stride.
pub(super) fn room(rows: usize) -> usize {
    rows * PANEL + CACHE_WAY
}

/// Saved forward pass of one layer.
#[derive(Debug)]
pub(super) struct LayerMemory {
    /// Before, then after their functions; of as many of the last steps as [`Extent`] says: none
    /// for prediction.
    pub(super) gates: Buffer<f32>, // [gate panels][steps · B][16]
    /// The initial state, then the state after each step.
    pub(super) hidden: Buffer<f32>, // [unit panels][(T + 1) · B][16]
    /// The same; or, as [`Extent`] says, the state before each segment.
    pub(super) cell: Buffer<f32>, // [unit panels][(T + 1) · B][16]
}

pub(super) fn layer_len(of: Dimensions, purpose: Purpose) -> [usize; 3] {
    let extent = Extent::new(of, purpose);
    let states = |rows: usize| of.units() * room(rows * of.capacity);
    let gates = match extent.gate_steps {
        0 => 0,
        steps => of.gates() * room(steps * of.capacity),
    };
    [gates, states(of.steps + 1), states(extent.cell_rows(of))]
}

impl LayerMemory {
    pub(super) fn new(scope: &Scope, of: Dimensions, purpose: Purpose) -> Result<Self> {
        let [gates, hidden, cell] = layer_len(of, purpose);
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(LayerMemory { gates: zeros(gates)?, hidden: zeros(hidden)?, cell: zeros(cell)? })
    }
}

/// The segment in work, as far as layers do not keep its steps.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) gates: Buffer<f32>, // [gate panels][block · B][16]
    /// The state before it, then the state after each of its steps.
    pub(super) cell: Buffer<f32>, // [unit panels][(block + 1) · B][16]
}

/// Scratch buffers, used by one timeframe after another.
#[derive(Debug)]
pub(super) struct ShardScratch {
    pub(super) segment: Segment,
    /// Bars: those of a block of steps or, where windows overlap, as many of those that they cover.
    pub(super) x: Buffer<f32>, // [F panels][block · B][16]
    /// Projections by bar, for windows that overlap; their gradients in the backward pass.
    pub(super) by_bar: Buffer<f32>, // [gate panels][T · B / 2][16]
    /// Gradients of a block of steps, before the gates' functions.
    pub(super) d_gates: Buffer<f32>, // [gate panels][block · B][16]
    pub(super) d_hidden: Buffer<f32>, // [unit panels][B][16]
    pub(super) d_cell: Buffer<f32>,   // [unit panels][B][16]
    /// Gradients of a layer's outputs, to begin with those that pooling gave the top one's; read by
    /// it and then overwritten with those of the layer below.
    pub(super) d_between: Buffer<f32>, // [unit panels][T · B][16]
    /// Dropout factors of the outputs below a layer at a block of steps, and the layer's input:
    /// these products, or the outputs after their norm.
    pub(super) factors: Buffer<f32>, // [unit panels][block · B][16]
    pub(super) dropped: Buffer<f32>,  // [unit panels][block · B][16]
    pub(super) d_input_weight: Buffer<f32>, // [gate panels][F or H][16]
    pub(super) d_recurrent_weight: Buffer<f32>, // [gate panels][H][16]
    pub(super) d_bias: Buffer<f32>,   // [gate panels][16]
    pub(super) d_norm: Buffer<f32>,   // [2][unit panels][16]
    /// For products of pairs.
    pub(super) pairs: PairScratch,
    /// For weights in eight bits.
    pub(super) activations: Activations,
}

/// Numbers in the gates and in the cell states of the segment in work.
fn segment_len(of: Dimensions, purpose: Purpose) -> [usize; 2] {
    let panels = [of.gates(), of.units()].into_iter().zip(Extent::new(of, purpose).segment_rows());
    let mut len = panels.map(|(panels, rows)| if rows == 0 { 0 } else { panels * room(rows * of.capacity) });
    std::array::from_fn(|_| len.next().unwrap_or(0))
}

/// Numbers in each buffer for one timeframe, in the order of the fields.
pub(super) fn scratch_len_of(of: Dimensions, purpose: Purpose) -> [usize; 17] {
    let (rows, gates, units) = (of.steps * of.capacity, of.gates(), of.units());
    let [segment_gates, segment_cell] = segment_len(of, purpose);
    let x = of.sizes.features.div_ceil(PANEL) * room(BLOCK_STEPS * of.capacity);
    // Windows overlap where the bars are at most half as many as the windows' steps.
    let by_bar = gates * room(rows / 2);
    let copied = units * room(BLOCK_STEPS * of.capacity);
    let normed = if of.sizes.norm && of.sizes.layers > 1 { copied } else { 0 };
    let [pair_rows, pair_gates, pair_turned] = pairs::scratch_len(of, purpose);
    match purpose {
        Purpose::Prediction => {
            [segment_gates, segment_cell, x, by_bar, 0, 0, 0, 0, 0, normed, 0, 0, 0, 0, pair_rows, 0, 0]
        }
        Purpose::Training { dropout, .. } => {
            let width = (0..of.sizes.layers).map(|l| of.input(l)).max().unwrap_or(0);
            let state = units * room(of.capacity);
            let between = if of.sizes.has_d_between() { units * room(rows) } else { 0 };
            let recurrent = gates * PANEL * of.sizes.hidden;
            let block = gates * room(BLOCK_STEPS * of.capacity);
            let factors = if dropout { copied } else { 0 };
            let [input, bias] = [gates * PANEL * width, gates * PANEL];
            [
                segment_gates,
                segment_cell,
                x,
                by_bar,
                block,
                state,
                state,
                between,
                factors,
                factors.max(normed),
                input,
                recurrent,
                bias,
                norm_len(of),
                pair_rows,
                pair_gates,
                pair_turned,
            ]
        }
    }
}

/// Name of each buffer, and the phases that use it.
pub(super) const SCRATCH: [(&str, &[StepPhase]); 17] = [
    ("gates of a segment", BOTH),
    ("cell states of a segment", BOTH),
    ("bars", BOTH),
    ("projections by bar", BOTH),
    ("gradients of gates", BACKWARD),
    ("gradients of hidden states", BACKWARD),
    ("gradients of cell states", BACKWARD),
    ("gradients of a layer's outputs", BACKWARD),
    ("factors of dropout", BOTH),
    ("what dropout or a norm left", BOTH),
    ("gradient of W_ih", BACKWARD),
    ("gradient of W_hh", BACKWARD),
    ("gradient of the bias", BACKWARD),
    ("gradient of the norm", BACKWARD),
    ("operands in bf16", BOTH),
    ("gradients of gates in bf16", BACKWARD),
    ("transposed operands in bf16", BACKWARD),
];

/// Numbers in each buffer for all timeframes.
pub(super) fn scratch_len(all: &[Dimensions], purpose: Purpose) -> [usize; 17] {
    let each = all.iter().map(|&of| scratch_len_of(of, purpose));
    each.fold([0; 17], |most, len| std::array::from_fn(|i| most[i].max(len[i])))
}

impl ShardScratch {
    pub(super) fn new(scope: &Scope, all: &[Dimensions], purpose: Purpose) -> Result<Self> {
        ShardScratch::with_lens(scope, scratch_len(all, purpose))
    }

    /// Buffers of these lengths, in the order of the fields.
    pub(super) fn with_lens(scope: &Scope, lens: [usize; 17]) -> Result<Self> {
        let [segment_gates, segment_cell, rest @ ..] = lens;
        let [x, by_bar, d_gates, d_hidden, d_cell, d_between, factors, dropped, rest @ ..] = rest;
        let [d_input, d_recurrent, d_bias, d_norm, pair_rows, pair_gates, pair_turned] = rest;
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(ShardScratch {
            segment: Segment { gates: zeros(segment_gates)?, cell: zeros(segment_cell)? },
            x: zeros(x)?,
            by_bar: zeros(by_bar)?,
            d_gates: zeros(d_gates)?,
            d_hidden: zeros(d_hidden)?,
            d_cell: zeros(d_cell)?,
            d_between: zeros(d_between)?,
            factors: zeros(factors)?,
            dropped: zeros(dropped)?,
            d_input_weight: zeros(d_input)?,
            d_recurrent_weight: zeros(d_recurrent)?,
            d_bias: zeros(d_bias)?,
            d_norm: zeros(d_norm)?,
            pairs: PairScratch::new(scope, [pair_rows, pair_gates, pair_turned])?,
            activations: Activations::none(scope)?,
        })
    }
}
