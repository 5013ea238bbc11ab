//! The memory of a shard, by shape.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::memory::{BACKWARD, BOTH, StepPhase};

use super::bf16::{self, Bf16Scratch};
use super::norm::norm_len;
use super::quantized::Activations;
use super::segments::Checkpointing;
use super::{BLOCK_STEPS, Dimensions};
use crate::compute::Purpose;
use crate::kernel::{PANEL, PanelStride};

/// Numbers in 4 KiB: addresses this far apart share a set of the first-level cache.
const CACHE_WAY: usize = 1024;

/// The place of a matrix of `rows` rows that is worked on `step_rows` rows at a time. The stride
/// makes the blocks of neighbouring panels follow one another in the cache instead of displacing
/// each other.
pub(super) fn panel_stride(rows: usize, step_rows: usize) -> PanelStride {
    let len = rows * PANEL;
    let ahead = (step_rows * PANEL + CACHE_WAY - len % CACHE_WAY) % CACHE_WAY;
    PanelStride { start: 0, stride: len + ahead }
}

/// Upper bound on the length of a panel of `rows` rows, padding of the stride included.
pub(super) fn padded_panel_len(rows: usize) -> usize {
    rows * PANEL + CACHE_WAY
}

/// Saved forward pass of one layer.
#[derive(Debug)]
pub(super) struct LayerMemory {
    /// Before, then after their functions; of as many of the last steps as [`Checkpointing`] says:
    /// none for prediction.
    pub(super) gates: Buffer<f32>, // [gate panels][steps · B][16]
    /// The initial state, then the state after each step.
    pub(super) hidden: Buffer<f32>, // [unit panels][(T + 1) · B][16]
    /// The same; or, as [`Checkpointing`] says, the state before each segment. Empty for a cell
    /// without a cell state.
    pub(super) cell: Buffer<f32>, // [unit panels][(T + 1) · B][16]
}

pub(super) fn layer_len(dims: Dimensions, purpose: Purpose) -> [usize; 3] {
    let checkpointing = Checkpointing::new(dims, purpose);
    let len = |panels: usize, rows: usize| if rows == 0 { 0 } else { panels * padded_panel_len(rows * dims.capacity) };
    let states = |rows: usize| len(dims.unit_panels(), rows);
    [len(dims.gate_panels(), checkpointing.gate_steps), states(dims.steps + 1), states(checkpointing.cell_rows(dims))]
}

impl LayerMemory {
    pub(super) fn new(scope: &Scope, dims: Dimensions, purpose: Purpose) -> Result<Self> {
        let [gates, hidden, cell] = layer_len(dims, purpose);
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(LayerMemory { gates: zeros(gates)?, hidden: zeros(hidden)?, cell: zeros(cell)? })
    }
}

/// Gates and cell states of the current segment that no layer saves.
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
    pub(super) per_bar_gates: Buffer<f32>, // [gate panels][T · B / 2][16]
    /// Gradients of a block of steps, before the gates' functions.
    pub(super) d_gates: Buffer<f32>, // [gate panels][block · B][16]
    pub(super) d_hidden: Buffer<f32>, // [unit panels][B][16]
    /// Gradient of a state that does not pass the gates: of the cell state or, for a cell without,
    /// of the hidden state.
    pub(super) d_skip: Buffer<f32>, // [unit panels][B][16]
    /// Gradients of a layer's outputs, to begin with those that pooling gave the top one's; read by
    /// it and then overwritten with those of the layer below.
    pub(super) d_layer_output: Buffer<f32>, // [unit panels][T · B][16]
    /// Dropout factors of the outputs below a layer at a block of steps, and the layer's input:
    /// these products, or the outputs after their norm.
    pub(super) factors: Buffer<f32>, // [unit panels][block · B][16]
    pub(super) dropped: Buffer<f32>,  // [unit panels][block · B][16]
    pub(super) d_input_weight: Buffer<f32>, // [gate panels][F or H][16]
    pub(super) d_recurrent_weight: Buffer<f32>, // [gate panels][H][16]
    pub(super) d_bias: Buffer<f32>,   // [gate panels][16]
    pub(super) d_norm: Buffer<f32>,   // [2][unit panels][16]
    /// For products of pairs.
    pub(super) pairs: Bf16Scratch,
    /// For weights in eight bits.
    pub(super) activations: Activations,
}

/// Lengths of the gates and of the cell states of the current segment.
fn segment_len(dims: Dimensions, purpose: Purpose) -> [usize; 2] {
    let panels =
        [dims.gate_panels(), dims.unit_panels()].into_iter().zip(Checkpointing::new(dims, purpose).segment_rows());
    let mut len =
        panels.map(|(panels, rows)| if rows == 0 { 0 } else { panels * padded_panel_len(rows * dims.capacity) });
    std::array::from_fn(|_| len.next().unwrap_or(0))
}

/// Declares [`ScratchLens`] by its fields, each with the name of its buffer and the phases that use
/// it.
macro_rules! scratch_lens {
    ($($field:ident: $name:literal, $phases:ident;)*) => {
        /// Length of each buffer of [`ShardScratch`], in numbers.
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct ScratchLens {
            $(pub(super) $field: usize,)*
        }

        impl ScratchLens {
            fn max(self, other: Self) -> Self {
                ScratchLens { $($field: self.$field.max(other.$field),)* }
            }

            /// Each with the name of its buffer and the phases that use it.
            pub(super) fn tensors(self) -> impl Iterator<Item = (usize, &'static str, &'static [StepPhase])> {
                [$((self.$field, $name, $phases),)*].into_iter()
            }
        }
    };
}

scratch_lens! {
    segment_gates: "gates of a segment", BOTH;
    segment_cell: "cell states of a segment", BOTH;
    x: "bars", BOTH;
    per_bar_gates: "projections by bar", BOTH;
    d_gates: "gradients of gates", BACKWARD;
    d_hidden: "gradients of hidden states", BACKWARD;
    d_cell: "gradients of cell states", BACKWARD;
    d_past_gates: "gradients of hidden states past the gates", BACKWARD;
    d_layer_output: "gradients of a layer's outputs", BACKWARD;
    factors: "factors of dropout", BOTH;
    dropped: "what dropout or a norm left", BOTH;
    d_input_weight: "gradient of W_ih", BACKWARD;
    d_recurrent_weight: "gradient of W_hh", BACKWARD;
    d_bias: "gradient of the bias", BACKWARD;
    d_norm: "gradient of the norm", BACKWARD;
    bf16_rows: "operands in bf16", BOTH;
    bf16_gates: "gradients of gates in bf16", BACKWARD;
    bf16_transposed: "transposed operands in bf16", BACKWARD;
}

impl ScratchLens {
    /// Lengths of the buffers of one timeframe.
    pub(super) fn new(dims: Dimensions, purpose: Purpose) -> Self {
        let (rows, gates, units) = (dims.steps * dims.capacity, dims.gate_panels(), dims.unit_panels());
        let [segment_gates, segment_cell] = segment_len(dims, purpose);
        let copied = units * padded_panel_len(BLOCK_STEPS * dims.capacity);
        let normed = if dims.sizes.norm && dims.sizes.layers > 1 { copied } else { 0 };
        let [bf16_rows, bf16_gates, bf16_transposed] = bf16::scratch_len(dims, purpose);
        let forward = ScratchLens {
            segment_gates,
            segment_cell,
            x: dims.sizes.features.div_ceil(PANEL) * padded_panel_len(BLOCK_STEPS * dims.capacity),
            // Windows overlap where the bars are at most half as many as the windows' steps.
            per_bar_gates: gates * padded_panel_len(rows / 2),
            dropped: normed,
            bf16_rows,
            ..ScratchLens::default()
        };
        let Purpose::Training { dropout, .. } = purpose else { return forward };
        let width = (0..dims.sizes.layers).map(|l| dims.input(l)).max().unwrap_or(0);
        let state = units * padded_panel_len(dims.capacity);
        let factors = if dropout { copied } else { 0 };
        ScratchLens {
            d_gates: gates * padded_panel_len(BLOCK_STEPS * dims.capacity),
            d_hidden: state,
            d_cell: if dims.sizes.cell.has_cell_state() { state } else { 0 },
            d_past_gates: if dims.sizes.cell.has_cell_state() { 0 } else { state },
            d_layer_output: if dims.sizes.has_d_layer_output() { units * padded_panel_len(rows) } else { 0 },
            factors,
            dropped: factors.max(normed),
            d_input_weight: gates * PANEL * width,
            d_recurrent_weight: gates * PANEL * dims.sizes.hidden,
            d_bias: gates * PANEL,
            d_norm: norm_len(dims),
            bf16_gates,
            bf16_transposed,
            ..forward
        }
    }

    /// Lengths of buffers that serve one timeframe after another.
    pub(super) fn largest(all: &[Dimensions], purpose: Purpose) -> Self {
        let each = all.iter().map(|&dims| ScratchLens::new(dims, purpose));
        each.fold(ScratchLens::default(), ScratchLens::max)
    }

    /// Length of each buffer, in numbers.
    pub(super) fn buffers(self) -> impl Iterator<Item = usize> {
        self.tensors().map(|(len, ..)| len)
    }
}

impl ShardScratch {
    /// Buffers of these lengths, booked on `scope`.
    pub(super) fn new(scope: &Scope, lens: ScratchLens) -> Result<Self> {
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(ShardScratch {
            segment: Segment { gates: zeros(lens.segment_gates)?, cell: zeros(lens.segment_cell)? },
            x: zeros(lens.x)?,
            per_bar_gates: zeros(lens.per_bar_gates)?,
            d_gates: zeros(lens.d_gates)?,
            d_hidden: zeros(lens.d_hidden)?,
            // One of the two is empty: all timeframes have the same cell.
            d_skip: zeros(lens.d_cell + lens.d_past_gates)?,
            d_layer_output: zeros(lens.d_layer_output)?,
            factors: zeros(lens.factors)?,
            dropped: zeros(lens.dropped)?,
            d_input_weight: zeros(lens.d_input_weight)?,
            d_recurrent_weight: zeros(lens.d_recurrent_weight)?,
            d_bias: zeros(lens.d_bias)?,
            d_norm: zeros(lens.d_norm)?,
            pairs: Bf16Scratch::new(scope, [lens.bf16_rows, lens.bf16_gates, lens.bf16_transposed])?,
            activations: Activations::none(scope)?,
        })
    }
}
