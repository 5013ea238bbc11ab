//! Fusion by attention: from the vectors of the timeframes, n tokens `[H]` a sample, to one vector `[H]`. [`Fusion`](crate::Fusion) has the definition; sums have a fixed order.

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{Arguments, Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};

use super::column_sums::add_column_sums;
use super::lanes;
use super::matmul::{Arithmetic, Layout, Output, Product, multiply};
use super::norm::{NormWeights, Normed, layer_norm, layer_norm_backward};
use super::operand::{Operand, Part};
use super::round::round_to;
use crate::error::Result;

/// Warps of a block: that of fuse.cu.
const WARPS: usize = 4;

const PTX: &str = include_str!("fuse.ptx");

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

/// What a fusion reads of the model.
#[derive(Clone, Copy, Debug)]
pub struct FuseWeights<'a> {
    /// The parameters of the model.
    pub parameters: &'a Buffer<f32>,
    /// Where those of the fusion begin, which lie one after another as a model has them, and their gradients among theirs.
    pub start: usize,
    /// How they are multiplied.
    pub arithmetic: Arithmetic,
}

/// What a fusion keeps for its backward pass, and room for that.
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
}

impl FuseSizes {
    /// N.
    fn rows(self) -> usize {
        self.samples * self.tokens
    }

    fn of_kernel(self) -> Tokens {
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
        Launch::of_blocks(self.samples).map(|launch| launch.with_threads(32 * WARPS as u32))
    }

    /// Where the weight and the bias of each linear map begin, and their outputs and inputs: q, k and v; what was seen; the two of the network.
    fn linear(self, start: usize) -> [Linear; 4] {
        let shapes = [
            [3 * self.hidden, self.hidden],
            [self.hidden, self.hidden],
            [self.inner, self.hidden],
            [self.hidden, self.inner],
        ];
        let mut next = start;
        shapes.map(|[outputs, inputs]| {
            let weight = next;
            next += outputs * (inputs + 1);
            Linear { weight, bias: weight + outputs * inputs, outputs, inputs }
        })
    }

    /// Where γ and β of each norm begin.
    fn norms(self, start: usize) -> [[usize; 2]; 2] {
        let last = self.linear(start)[3];
        let first = last.bias + last.outputs;
        [0, 2].map(|k| [first + k * self.hidden, first + (k + 1) * self.hidden])
    }

    /// Parameters of a fusion.
    pub fn parameters(self) -> usize {
        self.norms(0)[1][1] + self.hidden
    }
}

/// Where the parameters of a linear map are, and their gradients.
#[derive(Clone, Copy, Debug)]
struct Linear {
    weight: usize,
    bias: usize,
    outputs: usize,
    inputs: usize,
}

impl<'a> FuseWeights<'a> {
    fn part(&self, start: usize) -> Part<'a, f32> {
        Part { buffer: self.parameters, start }
    }

    fn norm(&self, [weight, bias]: [usize; 2]) -> NormWeights<'a> {
        NormWeights { weight: self.part(weight), bias: self.part(bias) }
    }

    /// `to` `[N, outputs]` = `x` · Wᵀ + b, or that added to it.
    fn forward(&self, of: Linear, x: &Buffer<f32>, output: Output, to: &mut Buffer<f32>) -> Result<()> {
        let rows = to.len() / of.outputs;
        let product = Product {
            a: x.into(),
            b: self.part(of.weight),
            start: Some(self.part(of.bias)),
            shape: [rows, of.outputs, of.inputs],
            layout: Layout::Straight,
            arithmetic: self.arithmetic,
        };
        multiply(&product, output, (to, 0))
    }

    /// Adds the gradients of W and b, from those of the outputs.
    fn add_gradients(
        &self,
        of: Linear,
        (x, d_y): (&Buffer<f32>, &Buffer<f32>),
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let rows = d_y.len() / of.outputs;
        let product = Product {
            a: d_y.into(),
            b: x.into(),
            start: None,
            shape: [of.outputs, of.inputs, rows],
            layout: Layout::BothTurned,
            arithmetic: self.arithmetic,
        };
        multiply(&product, Output::Add, (gradients, of.weight))?;
        add_column_sums(d_y.into(), [rows, of.outputs], (gradients, of.bias))
    }

    /// `d_x` `[N, inputs]` = `d_y` · W, or that added to it.
    fn backward(&self, of: Linear, d_y: &Buffer<f32>, output: Output, d_x: &mut Buffer<f32>) -> Result<()> {
        let product = Product {
            a: d_y.into(),
            b: self.part(of.weight),
            start: None,
            shape: [d_y.len() / of.outputs, of.inputs, of.outputs],
            layout: Layout::SecondTurned,
            arithmetic: self.arithmetic,
        };
        multiply(&product, output, (d_x, 0))
    }
}

impl FuseMemory {
    /// Room for these sizes.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    ///
    /// # Panics
    /// If H is not a multiple of the heads, there is no token, or a sample has 2³² numbers.
    pub fn zeros(scope: &Scope, sizes: FuseSizes) -> Result<Self> {
        let FuseSizes { samples, tokens, heads, hidden, inner } = sizes;
        assert!(heads > 0 && hidden.is_multiple_of(heads), "{heads} heads of {hidden} units");
        assert!(tokens > 0 && u32::try_from(3 * tokens * tokens * hidden).is_ok(), "numbers of 32 bits");
        let zeros = |len| Buffer::zeros(scope, len);
        let (rows, weights) = (sizes.rows(), samples * heads * tokens * tokens);
        let states = rows * hidden;
        Ok(FuseMemory {
            sizes,
            qkv: zeros(3 * states)?,
            weights: zeros(weights)?,
            seen: zeros(states)?,
            sum1: zeros(states)?,
            first: zeros(states)?,
            moments1: zeros(2 * rows)?,
            inner: zeros(rows * inner)?,
            sum2: zeros(states)?,
            second: zeros(states)?,
            moments2: zeros(2 * rows)?,
            d_qkv: zeros(3 * states)?,
            d_scores: zeros(weights)?,
            d_inner: zeros(rows * inner)?,
            d_seen: zeros(states)?,
            d_tokens: zeros(states)?,
        })
    }
}

/// Fuses the tokens `[B, n, H]` to `fused` `[B, H]`. What products give, and `fused`, is rounded to `T` where it lies.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory): what the device says of a launch, or of room for a product or a sum.
///
/// # Panics
/// If a buffer has not the shape of the memory, and if they are on several devices.
pub fn fuse<T: Operand>(
    of: FuseWeights<'_>,
    tokens: &Buffer<f32>,
    memory: &mut FuseMemory,
    fused: &mut Buffer<f32>,
) -> Result<()> {
    let sizes = memory.sizes;
    let (rows, hidden, [input, output, widen, narrow]) = (sizes.rows(), sizes.hidden, sizes.linear(of.start));
    assert_eq!([tokens.len(), fused.len()], [rows * hidden, sizes.samples * hidden], "tokens of every sample");
    let [norm1, norm2] = sizes.norms(of.start).map(|starts| of.norm(starts));

    of.forward(input, tokens, Output::Overwrite, &mut memory.qkv)?;
    round_to::<T>(&mut memory.qkv)?;
    attend(memory)?;
    round_to::<T>(&mut memory.seen)?;
    memory.sum1 = tokens.try_clone()?;
    of.forward(output, &memory.seen, Output::Add, &mut memory.sum1)?;
    layer_norm((&memory.sum1).into(), norm1, [rows, hidden], ((&mut memory.first, 0), &mut memory.moments1))?;

    of.forward(widen, &memory.first, Output::Overwrite, &mut memory.inner)?;
    rectify(&mut memory.inner)?;
    round_to::<T>(&mut memory.inner)?;
    memory.sum2 = memory.first.try_clone()?;
    of.forward(narrow, &memory.inner, Output::Add, &mut memory.sum2)?;
    layer_norm((&memory.sum2).into(), norm2, [rows, hidden], ((&mut memory.second, 0), &mut memory.moments2))?;

    mean_of_tokens(memory, fused)?;
    round_to::<T>(fused)
}

/// Goes back from the gradient of what [`fuse`] gave of the same tokens, `d_fused` `[B, H]`: leaves that of the tokens in [`FuseMemory::d_tokens`], and adds those of the
/// parameters to `gradients`.
///
/// # Errors
/// As [`fuse`].
///
/// # Panics
/// As [`fuse`].
pub fn fuse_backward<T: Operand>(
    of: FuseWeights<'_>,
    (tokens, d_fused): (&Buffer<f32>, &Buffer<f32>),
    memory: &mut FuseMemory,
    gradients: &mut Buffer<f32>,
) -> Result<()> {
    let sizes = memory.sizes;
    let (shape, [input, output, widen, narrow]) = ([sizes.rows(), sizes.hidden], sizes.linear(of.start));
    assert_eq!(tokens.len(), shape[0] * shape[1], "tokens of every sample");
    let [norm1, norm2] = sizes.norms(of.start);

    spread_to_tokens(d_fused, memory)?;
    let normed = Normed { x: (&memory.sum2).into(), moments: &memory.moments2, weight: of.part(norm2[0]) };
    layer_norm_backward(normed, shape, (&mut memory.d_tokens, 0), (gradients, norm2))?;
    of.add_gradients(narrow, (&memory.inner, &memory.d_tokens), gradients)?;
    of.backward(narrow, &memory.d_tokens, Output::Overwrite, &mut memory.d_inner)?;
    round_to::<T>(&mut memory.d_inner)?;
    rectify_backward(&memory.inner, &mut memory.d_inner)?;
    of.add_gradients(widen, (&memory.first, &memory.d_inner), gradients)?;
    of.backward(widen, &memory.d_inner, Output::Add, &mut memory.d_tokens)?;

    let normed = Normed { x: (&memory.sum1).into(), moments: &memory.moments1, weight: of.part(norm1[0]) };
    layer_norm_backward(normed, shape, (&mut memory.d_tokens, 0), (gradients, norm1))?;
    of.add_gradients(output, (&memory.seen, &memory.d_tokens), gradients)?;
    of.backward(output, &memory.d_tokens, Output::Overwrite, &mut memory.d_seen)?;
    attend_backward(memory)?;
    round_to::<T>(&mut memory.d_qkv)?;
    of.add_gradients(input, (tokens, &memory.d_qkv), gradients)?;
    of.backward(input, &memory.d_qkv, Output::Add, &mut memory.d_tokens)
}

/// Submits a kernel of fuse.cu.
///
/// # Safety
/// As of [`Kernel::submit`].
unsafe fn submit(
    device: &megabatch_gpu_core::Cuda,
    name: &str,
    launch: Option<Launch>,
    arguments: &Arguments,
) -> Result<()> {
    let kernel = Kernel { module: "trainer/fuse", ptx: PTX, name };
    // SAFETY: as the caller promised. What is submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch, arguments) }?)
}

/// Weights and what tokens see with them, from q, k and v.
fn attend(memory: &mut FuseMemory) -> Result<()> {
    let (sizes, scale) = (memory.sizes, memory.sizes.scale());
    match memory.qkv.scope().device().clone() {
        Device::Cuda(device) => {
            let (qkv, weights, seen) = (memory.qkv.address(), memory.weights.address(), memory.seen.address());
            let arguments = arguments![sizes.of_kernel(), qkv, scale, weights, seen];
            // SAFETY: a block reads and writes numbers of its sample, in buffers of the sizes.
            unsafe { submit(&device, "attend", sizes.launch(), &arguments) }
        }
        _ => {
            cpu_attend(sizes, memory.qkv.as_slice(), (memory.weights.as_mut_slice(), memory.seen.as_mut_slice()));
            Ok(())
        }
    }
}

/// The gradients of q, k and v from those of what tokens saw.
fn attend_backward(memory: &mut FuseMemory) -> Result<()> {
    let (sizes, scale) = (memory.sizes, memory.sizes.scale());
    match memory.qkv.scope().device().clone() {
        Device::Cuda(device) => {
            let (qkv, weights, d_seen) = (memory.qkv.address(), memory.weights.address(), memory.d_seen.address());
            let (d_scores, d_qkv) = (memory.d_scores.address(), memory.d_qkv.address());
            let arguments = arguments![sizes.of_kernel(), qkv, scale, weights, d_seen, d_scores, d_qkv];
            // SAFETY: as in `attend`.
            unsafe { submit(&device, "attend_backward", sizes.launch(), &arguments) }
        }
        _ => {
            cpu_attend_backward(memory);
            Ok(())
        }
    }
}

/// What is below zero becomes zero.
fn rectify(x: &mut Buffer<f32>) -> Result<()> {
    match x.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![x.address(), x.len() as u64];
            // SAFETY: a thread changes an element.
            unsafe { submit(&device, "rectify", Launch::over(x.len()), &arguments) }
        }
        _ => {
            x.as_mut_slice().iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = 0.0);
            Ok(())
        }
    }
}

/// The gradient of what [`rectify`] left as `x` becomes that of what it was given.
fn rectify_backward(x: &Buffer<f32>, d: &mut Buffer<f32>) -> Result<()> {
    assert_eq!(x.len(), d.len(), "numbers and their gradients");
    match d.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![x.address(), d.address(), x.len() as u64];
            // SAFETY: a thread changes an element, and reads one of as many.
            unsafe { submit(&device, "rectify_backward", Launch::over(x.len()), &arguments) }
        }
        _ => {
            let pairs = d.as_mut_slice().iter_mut().zip(x.as_slice());
            pairs.filter(|(_, x)| **x == 0.0).for_each(|(d, _)| *d = 0.0);
            Ok(())
        }
    }
}

fn mean_of_tokens(memory: &FuseMemory, fused: &mut Buffer<f32>) -> Result<()> {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    match fused.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![sizes.of_kernel(), memory.second.address(), fused.address(), share];
            // SAFETY: a thread writes an element of `fused`, which `fuse` has seen to be there, from those of its sample's tokens.
            unsafe { submit(&device, "mean_of_tokens", Launch::over(fused.len()), &arguments) }
        }
        _ => {
            let samples = memory.second.as_slice().chunks_exact(sizes.tokens * sizes.hidden);
            for (fused, tokens) in fused.as_mut_slice().chunks_exact_mut(sizes.hidden).zip(samples) {
                fused.fill(0.0);
                let tokens = tokens.chunks_exact(sizes.hidden);
                tokens.for_each(|token| fused.iter_mut().zip(token).for_each(|(sum, x)| *sum += x * share));
            }
            Ok(())
        }
    }
}

fn spread_to_tokens(d_fused: &Buffer<f32>, memory: &mut FuseMemory) -> Result<()> {
    let (sizes, share) = (memory.sizes, memory.sizes.share());
    assert_eq!(d_fused.len(), sizes.samples * sizes.hidden, "a gradient for every sample");
    match d_fused.scope().device().clone() {
        Device::Cuda(device) => {
            let arguments = arguments![sizes.of_kernel(), d_fused.address(), memory.d_tokens.address(), share];
            // SAFETY: a thread writes an element of `d_tokens`, from one of its sample's.
            unsafe { submit(&device, "spread_to_tokens", Launch::over(memory.d_tokens.len()), &arguments) }
        }
        _ => {
            for (row, to) in memory.d_tokens.as_mut_slice().chunks_exact_mut(sizes.hidden).enumerate() {
                let from = &d_fused.as_slice()[row / sizes.tokens * sizes.hidden..];
                to.iter_mut().zip(from).for_each(|(to, d)| *to = d * share);
            }
            Ok(())
        }
    }
}

/// The place of a head's part of q, k or v (`which`: 0, 1, 2) of a token, in `[n, 3H]`.
fn part(sizes: FuseSizes, (head, which): (usize, usize), token: usize) -> std::ops::Range<usize> {
    let start = (3 * token + which) * sizes.hidden + head * sizes.head_width();
    start..start + sizes.head_width()
}

fn cpu_attend(sizes: FuseSizes, qkv: &[f32], (weights, seen): (&mut [f32], &mut [f32])) {
    let FuseSizes { tokens, heads, hidden, .. } = sizes;
    let (width, scale) = (sizes.head_width(), sizes.scale());
    seen.fill(0.0);
    for (row, weights) in weights.chunks_exact_mut(tokens).enumerate() {
        let (sample, head, token) = (row / tokens / heads, row / tokens % heads, row % tokens);
        let qkv = &qkv[sample * 3 * tokens * hidden..];
        let query = &qkv[part(sizes, (head, 0), token)];
        for (other, weight) in weights.iter_mut().enumerate() {
            let key = &qkv[part(sizes, (head, 1), other)];
            *weight = lanes::sum(width, |k| query[k] * key[k]) * scale;
        }
        crate::pooling::softmax(weights);
        let to = &mut seen[(sample * tokens + token) * hidden + head * width..][..width];
        for (other, weight) in weights.iter().enumerate() {
            let values = &qkv[part(sizes, (head, 2), other)];
            to.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
        }
    }
}

fn cpu_attend_backward(memory: &mut FuseMemory) {
    let (sizes, d_seen) = (memory.sizes, memory.d_seen.as_slice());
    let FuseSizes { tokens, heads, hidden, .. } = sizes;
    let (width, scale) = (sizes.head_width(), sizes.scale());
    let d_scores = memory.d_scores.as_mut_slice().chunks_exact_mut(tokens);
    memory.d_qkv.as_mut_slice().fill(0.0);
    for (row, (weights, d_scores)) in memory.weights.as_slice().chunks_exact(tokens).zip(d_scores).enumerate() {
        let (sample, head, token) = (row / tokens / heads, row / tokens % heads, row % tokens);
        let first = sample * 3 * tokens * hidden;
        let (qkv, d_qkv) = (&memory.qkv.as_slice()[first..], &mut memory.d_qkv.as_mut_slice()[first..]);
        let d_seen = &d_seen[(sample * tokens + token) * hidden + head * width..][..width];
        for (other, d) in d_scores.iter_mut().enumerate() {
            let values = &qkv[part(sizes, (head, 2), other)];
            *d = lanes::sum(width, |k| d_seen[k] * values[k]);
        }
        let mean = weights.iter().zip(&*d_scores).fold(0.0, |sum, (weight, d)| sum + weight * d);
        d_scores.iter_mut().zip(weights).for_each(|(d, weight)| *d = weight * (*d - mean) * scale);
        let mut add = |to: (usize, usize), token: usize, factor: f32, from: &[f32]| {
            d_qkv[part(sizes, to, token)].iter_mut().zip(from).for_each(|(sum, x)| *sum += factor * x);
        };
        for (other, (&weight, &d_score)) in weights.iter().zip(&*d_scores).enumerate() {
            add((head, 2), other, weight, d_seen);
            add((head, 0), token, d_score, &qkv[part(sizes, (head, 1), other)]);
            add((head, 1), other, d_score, &qkv[part(sizes, (head, 0), token)]);
        }
    }
}

#[cfg(test)]
mod tests;
