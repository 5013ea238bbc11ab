//! Attention pooling: from the states of windows after every step to one vector `[H]` each.
//! [`Pooling`](crate::Pooling) has the definition; sums have a fixed order.

#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
mod cpu;
mod keys;
mod states;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::Launch;
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;

use super::capacity::ensure_capacity;
use super::column_sums::{add_column_sums, column_sum_partials_len};
use super::matmul::{Product, multiply, product_partials_len, rows_partials_len};
use super::operand::{Operand, TensorSlice};
use super::product_kind::{Arithmetic, Output, Transpose};
use super::scratch::Scratch;
use keys::{AffineOffsets, affine_backward, find_keys, keys_backward};
use states::{sum_states, sum_states_backward};

/// Warps of a block: that of pool.cu.
const WARPS: usize = 4;

const PTX: &str = megabatch_gpu_core::ptx!("pool");

/// Sizes of the pooling of one sequence: `Pool` of pool.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct PoolSizes {
    /// T.
    pub steps: u32,
    /// B.
    pub windows: u32,
    /// Heads, of which H is a multiple.
    pub heads: u32,
    /// H.
    pub hidden: u32,
}

/// Starts of a pooling's parameters among all, and of their gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSlots {
    /// `[1, H]`.
    pub query: usize,
    /// W_q, W_k, W_v: `[3H, H]`.
    pub in_weight: usize,
    /// b_q, b_k, b_v: `[3H]`.
    pub in_bias: usize,
    /// W_o: `[H, H]`.
    pub out_weight: usize,
    /// b_o: `[H]`.
    pub out_bias: usize,
}

impl PoolSlots {
    /// Slots of a pooling whose parameters lie one after another from element `start` on, as a
    /// model has them.
    pub fn from(start: usize, hidden: usize) -> Self {
        let in_weight = start + hidden;
        let in_bias = in_weight + 3 * hidden * hidden;
        let out_weight = in_bias + 3 * hidden;
        PoolSlots { query: start, in_weight, in_bias, out_weight, out_bias: out_weight + hidden * hidden }
    }
}

/// Parameters of a pooling.
#[derive(Clone, Copy, Debug)]
pub struct PoolWeights<'a> {
    /// The parameters of the model.
    pub parameters: &'a Buffer<f32>,
    /// Offsets of the pooling's parameters.
    pub slots: PoolSlots,
    /// Arithmetic of the products.
    pub arithmetic: Arithmetic,
}

impl<'a> PoolWeights<'a> {
    /// The parameters from element `start` on.
    fn parameter(&self, start: usize) -> TensorSlice<'a, f32> {
        TensorSlice { buffer: self.parameters, start }
    }
}

/// Saved pooling of one sequence for its backward pass, and room for that; behind it there may be
/// room for more.
#[derive(Debug)]
pub struct PoolMemory {
    sizes: PoolSizes,
    query: Buffer<f32>, // [H]: (W_q query + b_q) / √d
    keys: Buffer<f32>,  // [heads, H]
    bias: Buffer<f32>,  // [H]: W_o b_v + b_o
    /// `[B, heads, T]`: the weights of the states.
    pub weights: Buffer<f32>,
    sums: Buffer<f32>,   // [heads, B, H]
    values: Buffer<f32>, // [H, B], without b_v
    column: Buffer<f32>, // [H]: the pooled vectors' gradients, summed over windows
    d_query: Buffer<f32>,
    d_keys: Buffer<f32>,
    d_values: Buffer<f32>,
    d_sums: Buffer<f32>,
    d_scores: Buffer<f32>,  // [B, heads, T]
    d_keys_of: Buffer<f32>, // [B, heads, H], window by window
    scratch: Scratch,
}

impl PoolSizes {
    fn wide(self) -> [usize; 4] {
        [self.steps, self.windows, self.heads, self.hidden].map(|size| size as usize)
    }

    /// d: numbers of a head.
    fn head_width(self) -> usize {
        (self.hidden / self.heads) as usize
    }

    /// 1 / √d.
    fn scale(self) -> f32 {
        (1.0 / (self.head_width() as f64).sqrt()) as f32
    }

    /// Scratch length for products and sums over up to that many windows.
    fn partial_sums_len(self) -> usize {
        let ([_, windows, heads, hidden], width) = (self.wide(), self.head_width());
        let window_parts = [(width, hidden), (hidden, hidden), (hidden, width)]
            .map(|(columns, inner)| rows_partials_len(windows, columns, inner));
        let sums = [[hidden, hidden, windows], [width, hidden, windows]];
        let columns = [hidden, heads * hidden].map(|columns| column_sum_partials_len(windows, columns));
        window_parts.into_iter().chain(sums.map(product_partials_len)).chain(columns).max().unwrap_or(0)
    }

    fn states(self) -> usize {
        (self.steps * self.windows * self.hidden) as usize
    }

    /// A block for each window.
    fn launch(self) -> Option<Launch> {
        Launch::for_blocks(self.windows as usize).map(|launch| launch.with_threads(32 * WARPS as u32))
    }
}

impl PoolMemory {
    /// Buffers for these sizes.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If H is not a multiple of the heads, there is no step, or states have 2³² numbers.
    pub fn zeros(scope: &Scope, sizes: PoolSizes) -> Result<Self> {
        let [_, _, heads, hidden] = sizes.wide();
        let zeros = |len| Buffer::zeros(scope, len);
        let mut memory = PoolMemory {
            sizes: PoolSizes { windows: 0, ..sizes },
            query: zeros(hidden)?,
            keys: zeros(heads * hidden)?,
            bias: zeros(hidden)?,
            weights: zeros(0)?,
            sums: zeros(0)?,
            values: zeros(0)?,
            column: zeros(hidden)?,
            d_query: zeros(hidden)?,
            d_keys: zeros(heads * hidden)?,
            d_values: zeros(0)?,
            d_sums: zeros(0)?,
            d_scores: zeros(0)?,
            d_keys_of: zeros(0)?,
            scratch: Scratch::empty(scope)?,
        };
        memory.ensure_capacity(sizes.windows as usize)?;
        Ok(memory)
    }

    /// Ensures capacity for so many windows, which are pooled from now on.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// As [`PoolMemory::zeros`].
    pub fn ensure_capacity(&mut self, windows: usize) -> Result<()> {
        let [steps, _, heads, hidden] = self.sizes.wide();
        assert!(heads > 0 && hidden.is_multiple_of(heads), "{heads} heads of {hidden} units");
        assert!(steps > 0 && u32::try_from(steps * windows * hidden.max(heads)).is_ok(), "numbers of 32 bits");
        self.sizes.windows = windows as u32;
        self.reserve(windows)
    }

    /// Takes memory for so many windows, where there is not as much.
    pub(crate) fn reserve(&mut self, windows: usize) -> Result<()> {
        let [steps, _, heads, hidden] = self.sizes.wide();
        let (weights, vectors) = (windows * heads * steps, windows * hidden);
        [&mut self.weights, &mut self.d_scores].into_iter().try_for_each(|buffer| ensure_capacity(buffer, weights))?;
        [&mut self.values, &mut self.d_values].into_iter().try_for_each(|buffer| ensure_capacity(buffer, vectors))?;
        let by_head = [&mut self.sums, &mut self.d_sums, &mut self.d_keys_of];
        by_head.into_iter().try_for_each(|buffer| ensure_capacity(buffer, heads * vectors))
    }

    /// Takes what operations on so many windows ask a GPU for.
    pub(crate) fn reserve_scratch(&mut self, windows: usize) -> Result<()> {
        let sizes = PoolSizes { windows: windows as u32, ..self.sizes };
        self.scratch.reserve::<f32>(sizes.partial_sums_len())
    }
}

/// Pools the states `[T, B, H]` to `pooled` `[B, H]`, from its start on.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch, or of room for
/// a product.
///
/// # Panics
/// If a buffer ends too early for the shape, and if they are on several devices.
pub fn pool<T: Operand>(
    weights: PoolWeights<'_>,
    states: TensorSlice<'_, T>,
    memory: &mut PoolMemory,
    pooled: &mut Buffer<f32>,
    pooled_start: usize,
) -> Result<()> {
    let ([_, windows, heads, hidden], width) = (memory.sizes.wide(), memory.sizes.head_width());
    states.assert_has(memory.sizes.states(), weights.parameters.scope().device());
    let PoolSlots { in_weight, out_weight, .. } = weights.slots;
    find_keys(weights, memory)?;
    sum_states(states, memory)?;
    for head in 0..heads {
        let sums = TensorSlice { buffer: &memory.sums, start: head * windows * hidden };
        let weight_v = weights.parameter(in_weight + (2 * hidden + head * width) * hidden);
        let values = weights.arithmetic.product(weight_v, sums, [width, windows, hidden], Transpose::Nt);
        multiply(&values, Output::Overwrite, &mut memory.values, head * width * windows, &mut memory.scratch)?;
    }
    let bias = Some(TensorSlice::from(&memory.bias));
    let all = Product {
        bias,
        ..weights.arithmetic.product(
            (&memory.values).into(),
            weights.parameter(out_weight),
            [windows, hidden, hidden],
            Transpose::Tt,
        )
    };
    multiply(&all, Output::Overwrite, pooled, pooled_start, &mut memory.scratch)
}

/// Backward pass from the gradients of the pooled vectors, `d_pooled` `[B, H]`, after [`pool`] of
/// the same states: writes those of the states, `d_states` `[T, B, H]` from its start on, and adds
/// those of the parameters to `gradients`.
///
/// # Errors
/// As [`pool`].
///
/// # Panics
/// As [`pool`].
pub fn pool_backward<T: Operand>(
    weights: PoolWeights<'_>,
    states: TensorSlice<'_, T>,
    d_pooled: TensorSlice<'_, f32>,
    memory: &mut PoolMemory,
    d_states: &mut Buffer<f32>,
    d_states_start: usize,
    gradients: &mut Buffer<f32>,
) -> Result<()> {
    states.assert_has(memory.sizes.states(), weights.parameters.scope().device());
    TensorSlice { buffer: d_states, start: d_states_start }
        .assert_has(memory.sizes.states(), weights.parameters.scope().device());
    project_backward(weights, d_pooled, memory, gradients)?;
    sum_states_backward(states, memory, d_states, d_states_start)?;
    let [_, windows, heads, hidden] = memory.sizes.wide();
    memory.d_keys.set_zero()?;
    add_column_sums((&memory.d_keys_of).into(), windows, heads * hidden, &mut memory.d_keys, 0, &mut memory.scratch)?;
    keys_backward(weights, memory, gradients)
}

/// From the gradients of the pooled vectors to those of the sums.
fn project_backward(
    weights: PoolWeights<'_>,
    d_pooled: TensorSlice<'_, f32>,
    memory: &mut PoolMemory,
    gradients: &mut Buffer<f32>,
) -> Result<()> {
    let ([_, windows, heads, hidden], width) = (memory.sizes.wide(), memory.sizes.head_width());
    let PoolSlots { in_weight, in_bias, out_weight, out_bias, .. } = weights.slots;

    memory.column.set_zero()?;
    add_column_sums(d_pooled, windows, hidden, &mut memory.column, 0, &mut memory.scratch)?;
    // W_o (values + b_v) + b_o: the values as they are kept, and the biases of all windows at once.
    let values_product =
        weights.arithmetic.product(d_pooled, (&memory.values).into(), [hidden, hidden, windows], Transpose::Tt);
    multiply(&values_product, Output::Add, gradients, out_weight, &mut memory.scratch)?;
    let bias_place = AffineOffsets { x: in_bias + 2 * hidden, weight: out_weight, bias: out_bias };
    affine_backward(weights, &memory.column, bias_place, gradients)?;
    let d_values =
        weights.arithmetic.product(weights.parameter(out_weight), d_pooled, [hidden, windows, hidden], Transpose::Tt);
    multiply(&d_values, Output::Overwrite, &mut memory.d_values, 0, &mut memory.scratch)?;
    for head in 0..heads {
        let weight_v = in_weight + (2 * hidden + head * width) * hidden;
        let d_values = TensorSlice { buffer: &memory.d_values, start: head * width * windows };
        let sums = TensorSlice { buffer: &memory.sums, start: head * windows * hidden };
        let d_weight_v = weights.arithmetic.product(d_values, sums, [width, hidden, windows], Transpose::Nn);
        multiply(&d_weight_v, Output::Add, gradients, weight_v, &mut memory.scratch)?;
        let d_sums =
            weights.arithmetic.product(d_values, weights.parameter(weight_v), [windows, hidden, width], Transpose::Tn);
        multiply(&d_sums, Output::Overwrite, &mut memory.d_sums, head * windows * hidden, &mut memory.scratch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
