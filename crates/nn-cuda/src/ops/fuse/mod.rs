//! Fusion by attention: from the vectors of the timeframes, n tokens `[H]` a sample, to one vector
//! `[H]`. [`Fusion`](crate::Fusion) has the definition; sums have a fixed order.

#![allow(unsafe_code, reason = "kernels are launched")]

mod attend;
#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
mod cpu;
mod numbers;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{Arguments, Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Scope};
use megabatch_nn::Result;

use super::affine::Affine;
use super::capacity::ensure_capacity;
use super::column_sums::column_sum_partials_len;
use super::matmul::{product_partials_len, rows_partials_len};
use super::norm::{NormWeights, Normed, layer_norm, layer_norm_backward, norm_partials_len};
use super::operand::{Operand, TensorSlice};
use super::product_kind::{Arithmetic, Output};
use super::round::round_to;
use super::scratch::Scratch;
use attend::{attend, attend_backward};
use numbers::{mean_of_tokens, rectify, rectify_backward, spread_to_tokens};

/// Warps of a block: that of fuse.cu.
const WARPS: usize = 4;

const PTX: &str = megabatch_gpu_core::ptx!("fuse");

/// Sizes of a fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseSizes {
    /// B.
    pub samples: usize,
    /// n.
    pub tokens: usize,
    /// Heads, of which H is a multiple.
    pub heads: usize,
    /// H.
    pub hidden: usize,
    /// Width of the feed-forward network.
    pub inner: usize,
}

/// `Fuse` of fuse.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Tokens {
    samples: u32,
    tokens: u32,
    heads: u32,
    hidden: u32,
}

/// Parameters of a fusion.
#[derive(Clone, Copy, Debug)]
pub struct FuseWeights<'a> {
    /// The parameters of the model.
    pub parameters: &'a Buffer<f32>,
    /// Start of the fusion's parameters, which lie one after another as a model has them, and of
    /// their gradients.
    pub start: usize,
    /// Arithmetic of the products.
    pub arithmetic: Arithmetic,
}

/// Buffers that a fusion saves for its backward pass, and room for that.
#[derive(Debug)]
pub struct FuseMemory {
    sizes: FuseSizes,
    qkv: Buffer<f32>, // [N, 3H], N = B · n
    /// `[B, heads, n, n]`: the weights with which tokens look at each other.
    pub weights: Buffer<f32>,
    seen: Buffer<f32>,     // [N, H]
    sum1: Buffer<f32>,     // [N, H]: before the first norm
    first: Buffer<f32>,    // [N, H]: after it
    moments1: Buffer<f32>, // [N, 2]
    inner: Buffer<f32>,    // [N, inner]: after ReLU
    sum2: Buffer<f32>,     // [N, H]: before the second norm
    second: Buffer<f32>,   // [N, H]: after it
    moments2: Buffer<f32>, // [N, 2]
    d_qkv: Buffer<f32>,
    d_scores: Buffer<f32>, // [B, heads, n, n]
    d_inner: Buffer<f32>,
    d_seen: Buffer<f32>,
    /// `[N, H]`: after [`fuse_backward`] the gradient of the tokens.
    pub d_tokens: Buffer<f32>,
    scratch: Scratch,
}

impl FuseSizes {
    /// N.
    fn rows(self) -> usize {
        self.samples * self.tokens
    }

    fn kernel_tokens(self) -> Tokens {
        let [samples, tokens, heads, hidden] =
            [self.samples, self.tokens, self.heads, self.hidden].map(|size| size as u32);
        Tokens { samples, tokens, heads, hidden }
    }

    /// d: numbers of a head.
    fn head_width(self) -> usize {
        self.hidden / self.heads
    }

    /// 1 / √d.
    fn scale(self) -> f32 {
        (1.0 / (self.head_width() as f64).sqrt()) as f32
    }

    /// 1 / n.
    fn share(self) -> f32 {
        (1.0 / self.tokens as f64) as f32
    }

    /// A block for each sample.
    fn launch(self) -> Option<Launch> {
        Launch::for_blocks(self.samples).map(|launch| launch.with_threads(32 * WARPS as u32))
    }

    /// Outputs and inputs of the linear maps: q, k and v; the output projection; the two of the
    /// network.
    fn map_shapes(self) -> [[usize; 2]; 4] {
        let FuseSizes { hidden, inner, .. } = self;
        [[3 * hidden, hidden], [hidden, hidden], [inner, hidden], [hidden, inner]]
    }

    /// Starts of γ and β of each norm.
    fn norms(self, start: usize) -> [[usize; 2]; 2] {
        let maps = self.map_shapes().map(|[outputs, inputs]| outputs * (inputs + 1));
        let first = start + maps.iter().sum::<usize>();
        [0, 2].map(|k| [first + k * self.hidden, first + (k + 1) * self.hidden])
    }

    /// Scratch length for the backward pass over up to that many samples.
    fn partial_sums_len(self) -> usize {
        let rows = self.rows();
        let map_parts = |[outputs, inputs]: [usize; 2]| {
            let products = product_partials_len([outputs, inputs, rows]).max(rows_partials_len(rows, inputs, outputs));
            products.max(column_sum_partials_len(rows, outputs))
        };
        let most_parts = self.map_shapes().map(map_parts).into_iter().max().unwrap_or(0);
        most_parts.max(norm_partials_len(rows, self.hidden))
    }

    /// Parameters of a fusion.
    pub fn parameters(self) -> usize {
        self.norms(0)[1][1] + self.hidden
    }
}

impl<'a> FuseWeights<'a> {
    fn part(&self, start: usize) -> TensorSlice<'a, f32> {
        TensorSlice { buffer: self.parameters, start }
    }

    fn norm(&self, weight: usize, bias: usize) -> NormWeights<'a> {
        NormWeights { weight: self.part(weight), bias: self.part(bias) }
    }

    /// The linear maps, in the order of [`FuseSizes::map_shapes`]. A weight and its bias lie one
    /// after the other.
    fn maps(&self, sizes: FuseSizes) -> [Affine; 4] {
        let mut next = self.start;
        sizes.map_shapes().map(|shape| {
            let [outputs, inputs] = shape;
            let (weight, bias) = (next, next + outputs * inputs);
            next = bias + outputs;
            Affine::from_offsets(weight, bias, shape, self.arithmetic)
        })
    }
}

impl FuseMemory {
    /// Buffers for these sizes.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If H is not a multiple of the heads, there is no token, or a sample has 2³² numbers.
    pub fn zeros(scope: &Scope, sizes: FuseSizes) -> Result<Self> {
        let FuseSizes { samples, tokens, heads, hidden, .. } = sizes;
        assert!(heads > 0 && hidden.is_multiple_of(heads), "{heads} heads of {hidden} units");
        assert!(tokens > 0 && u32::try_from(3 * tokens * tokens * hidden).is_ok(), "numbers of 32 bits");
        let none = || Buffer::zeros(scope, 0);
        let mut memory = FuseMemory {
            sizes,
            qkv: none()?,
            weights: none()?,
            seen: none()?,
            sum1: none()?,
            first: none()?,
            moments1: none()?,
            inner: none()?,
            sum2: none()?,
            second: none()?,
            moments2: none()?,
            d_qkv: none()?,
            d_scores: none()?,
            d_inner: none()?,
            d_seen: none()?,
            d_tokens: none()?,
            scratch: Scratch::empty(scope)?,
        };
        memory.ensure_capacity(samples)?;
        Ok(memory)
    }

    /// Makes ready for so many samples. Memory is taken only where there is less than they need.
    pub(crate) fn ensure_capacity(&mut self, samples: usize) -> Result<()> {
        self.sizes.samples = samples;
        let (rows, FuseSizes { tokens, heads, hidden, inner: width, .. }) = (self.sizes.rows(), self.sizes);
        let (states, moments, widened) = (rows * hidden, 2 * rows, rows * width);
        let scores = samples * heads * tokens * tokens;
        let FuseMemory { qkv, weights, seen, sum1, first, moments1, inner, sum2, second, moments2, .. } = self;
        let before_network = [(qkv, 3 * states), (weights, scores), (seen, states), (sum1, states), (first, states)];
        let network = [(moments1, moments), (inner, widened), (sum2, states), (second, states), (moments2, moments)];
        let mut forward = before_network.into_iter().chain(network);
        forward.try_for_each(|(buffer, len)| ensure_capacity(buffer, len))?;
        let FuseMemory { d_qkv, d_scores, d_inner, d_seen, d_tokens, .. } = self;
        let backward =
            [(d_qkv, 3 * states), (d_scores, scores), (d_inner, widened), (d_seen, states), (d_tokens, states)];
        backward.into_iter().try_for_each(|(buffer, len)| ensure_capacity(buffer, len))
    }

    /// Takes what the backward pass of so many samples asks a GPU for.
    pub(crate) fn reserve_scratch(&mut self, samples: usize) -> Result<()> {
        self.scratch.reserve::<f32>(FuseSizes { samples, ..self.sizes }.partial_sums_len())
    }
}

/// Fuses the tokens `[B, n, H]` to `fused` `[B, H]`. What products give is rounded to `T` where it
/// lies. There is as much room behind the tokens as there is in the memory, and there may be more
/// behind what is fused.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch, or of room for
/// a product or a sum.
///
/// # Panics
/// If a buffer has not the shape of the memory, and if they are on several devices.
pub fn fuse<T: Operand>(
    weights: FuseWeights<'_>,
    tokens: &Buffer<f32>,
    memory: &mut FuseMemory,
    fused: &mut Buffer<T>,
) -> Result<()> {
    let (sizes, parameters) = (memory.sizes, weights.parameters);
    let (rows, hidden, [input, output, widen, narrow]) = (sizes.rows(), sizes.hidden, weights.maps(sizes));
    assert!(tokens.len() == memory.sum1.len() && fused.len() >= sizes.samples * hidden, "tokens of every sample");
    let [norm1, norm2] = sizes.norms(weights.start).map(|starts| weights.norm(starts[0], starts[1]));

    input.forward(parameters, tokens, rows, &mut memory.qkv, Output::Overwrite, &mut memory.scratch)?;
    round_to::<T>(&mut memory.qkv)?;
    attend(memory)?;
    round_to::<T>(&mut memory.seen)?;
    memory.sum1.copy_from_buffer(tokens)?;
    output.forward(parameters, &memory.seen, rows, &mut memory.sum1, Output::Add, &mut memory.scratch)?;
    layer_norm((&memory.sum1).into(), norm1, rows, hidden, &mut memory.first, 0, &mut memory.moments1)?;

    widen.forward(parameters, &memory.first, rows, &mut memory.inner, Output::Overwrite, &mut memory.scratch)?;
    rectify(&mut memory.inner)?;
    round_to::<T>(&mut memory.inner)?;
    memory.sum2.copy_from_buffer(&memory.first)?;
    narrow.forward(parameters, &memory.inner, rows, &mut memory.sum2, Output::Add, &mut memory.scratch)?;
    layer_norm((&memory.sum2).into(), norm2, rows, hidden, &mut memory.second, 0, &mut memory.moments2)?;

    mean_of_tokens(memory, fused)
}

/// Backward pass from the gradient of what [`fuse`] gave of the same tokens, `d_fused` `[B, H]`:
/// leaves that of the tokens in [`FuseMemory::d_tokens`], and adds those of the parameters to
/// `gradients`.
///
/// # Errors
/// As [`fuse`].
///
/// # Panics
/// As [`fuse`].
pub fn fuse_backward<T: Operand>(
    weights: FuseWeights<'_>,
    tokens: &Buffer<f32>,
    d_fused: &Buffer<f32>,
    memory: &mut FuseMemory,
    gradients: &mut Buffer<f32>,
) -> Result<()> {
    let (sizes, parameters) = (memory.sizes, weights.parameters);
    let (rows, [input, output, widen, narrow]) = (sizes.rows(), weights.maps(sizes));
    let width = sizes.hidden;
    assert!(tokens.len() >= rows * sizes.hidden, "tokens of every sample");
    let [norm1, norm2] = sizes.norms(weights.start);

    spread_to_tokens(d_fused, memory)?;
    let (x, moments, weight) = ((&memory.sum2).into(), &memory.moments2, weights.part(norm2[0]));
    let normed = Normed { rows, width, x, moments, weight };
    layer_norm_backward(normed, &mut memory.d_tokens, 0, gradients, norm2, &mut memory.scratch)?;
    narrow.add_gradients(&memory.d_tokens, &memory.inner, rows, gradients, &mut memory.scratch)?;
    narrow.backward(parameters, &memory.d_tokens, rows, &mut memory.d_inner, Output::Overwrite, &mut memory.scratch)?;
    round_to::<T>(&mut memory.d_inner)?;
    rectify_backward(&memory.inner, &mut memory.d_inner)?;
    widen.add_gradients(&memory.d_inner, &memory.first, rows, gradients, &mut memory.scratch)?;
    widen.backward(parameters, &memory.d_inner, rows, &mut memory.d_tokens, Output::Add, &mut memory.scratch)?;

    let (x, moments, weight) = ((&memory.sum1).into(), &memory.moments1, weights.part(norm1[0]));
    let normed = Normed { rows, width, x, moments, weight };
    layer_norm_backward(normed, &mut memory.d_tokens, 0, gradients, norm1, &mut memory.scratch)?;
    output.add_gradients(&memory.d_tokens, &memory.seen, rows, gradients, &mut memory.scratch)?;
    output.backward(parameters, &memory.d_tokens, rows, &mut memory.d_seen, Output::Overwrite, &mut memory.scratch)?;
    attend_backward(memory)?;
    round_to::<T>(&mut memory.d_qkv)?;
    input.add_gradients(&memory.d_qkv, tokens, rows, gradients, &mut memory.scratch)?;
    input.backward(parameters, &memory.d_qkv, rows, &mut memory.d_tokens, Output::Add, &mut memory.scratch)
}

/// Submits a kernel of fuse.cu.
///
/// # Safety
/// As of [`Kernel::submit`].
unsafe fn submit(device: &Cuda, name: &str, launch: Option<Launch>, arguments: &Arguments) -> Result<()> {
    let kernel = Kernel { module: "nn/fuse", ptx: PTX, name };
    // SAFETY: as the caller promised. What is submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch, arguments) }?)
}

#[cfg(test)]
mod tests;
