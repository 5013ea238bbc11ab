//! Attention over the edges of a batch's graphs. ../graph/attention has the definition; products of
//! nodes by weights are [`multiply`](super::multiply).
//!
//! An edge is scored for a head by U numbers: Σ vector · LeakyReLU(giving + receiving + edge_weight
//! · attributes), of the node that gives, the one that receives and the edge. For GATv2 U is C, and
//! these are its maps. GAT is the same with U = 1 and no vector: [`node_dots`] makes the number of
//! a node. Nothing of an edge is as wide as a node: it has its attributes and, for each head, a
//! coefficient, whose sign tells that it is dropped, and backward the gradient of its score. Each
//! sum belongs to a node and is formed in the order of its edges, by the node that receives or by
//! the one that gives: nothing is added atomically.
//!
//! ```text
//! forward    giving, receiving [N, H · U]   node_dots, of GAT
//!            coefficients [P, H]            coefficients
//!            y [N, D]                       gather_heads
//! backward   d_y before ELU or ReLU         activation_gradients
//!            d_scores [P, H]                score_gradients
//!            d_receiving, sums by node      receiver_gradients
//!            d_values [N, H · C]            value_gradients
//!            d_giving [N, H · U]            src_gradients, and of GAT node_dot_gradients
//! ```

#![allow(unsafe_code, reason = "kernels are launched")]

mod backward;
#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
mod cpu;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};

pub(crate) use backward::{
    NodeDotInputs, ReceiverRows, activation_gradients, node_dot_gradients, receiver_gradients, score_gradients,
    src_gradients, value_gradients,
};
use megabatch_nn::Result;
use megabatch_nn::model::graph::GraphActivation;

use super::dropout::{MaskNumbers, mask_address};
use super::graph_lists::GraphLists;
use super::operand::TensorSlice;

const PTX: &str = megabatch_gpu_core::ptx!("attention");

/// Threads of a warp.
const WARP: usize = 32;

/// The sizes of a layer over the nodes of a batch: `Attention` of attention.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct AttentionSizes {
    /// N.
    pub(crate) nodes: u32,
    /// H.
    pub(crate) heads: u32,
    /// C.
    pub(crate) units: u32,
    /// U: numbers that score an edge for a head.
    pub(crate) score_units: u32,
    /// A.
    pub(crate) attributes: u32,
    /// 1 where heads are averaged, 0 where they stand side by side.
    pub(crate) averaged: u32,
    /// LeakyReLU's, below zero.
    pub(crate) slope: f32,
}

impl AttentionSizes {
    /// H · C.
    pub(crate) fn projected(self) -> usize {
        self.heads as usize * self.units as usize
    }

    /// H · U.
    pub(crate) fn scored(self) -> usize {
        self.heads as usize * self.score_units as usize
    }

    /// D.
    pub(crate) fn width(self) -> usize {
        if self.averaged == 1 { self.units as usize } else { self.projected() }
    }

    /// N · H.
    fn node_heads(self) -> usize {
        self.nodes as usize * self.heads as usize
    }
}

/// The edges that a layer attends over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attended<'a> {
    pub(crate) sizes: AttentionSizes,
    pub(crate) lists: &'a GraphLists,
    /// Dropout of the coefficients, by its number among masks that are read on the device.
    pub(crate) mask: Option<(&'a Buffer<MaskNumbers>, usize)>,
}

/// Inputs of edge scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored<'a> {
    /// `[N, H · U]`, of nodes that give and of those that receive.
    pub(crate) src: &'a Buffer<f32>,
    pub(crate) dst: &'a Buffer<f32>,
    /// `[H · U]`; none for ones.
    pub(crate) vector: Option<TensorSlice<'a, f32>>,
    /// `[H · U, A]`; none without attributes.
    pub(crate) edge_weight: Option<TensorSlice<'a, f32>>,
}

/// Initial value of the sums of a row of heads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutputStart<'a> {
    /// This row `[D]`.
    Bias(TensorSlice<'a, f32>),
    /// Current value.
    Present,
}

impl Attended<'_> {
    fn device(&self) -> Device {
        self.lists.device().clone()
    }

    /// N · H · U, and P · H.
    fn lens(&self) -> [usize; 2] {
        [self.sizes.nodes as usize * self.sizes.scored(), self.lists.places() * self.sizes.heads as usize]
    }

    fn mask_address(&self) -> u64 {
        self.mask.map_or(0, |(masks, mask)| mask_address(masks, mask))
    }

    /// Panics if an array is shorter than its length here, or on another device.
    fn assert_have<const N: usize>(&self, arrays: [(&Buffer<f32>, usize); N]) {
        assert_eq!(self.sizes.nodes as usize, self.lists.nodes(), "nodes of the lists");
        let device = self.device();
        arrays.into_iter().for_each(|(array, len)| TensorSlice::from(array).assert_has(len, &device));
    }

    fn assert_has_scored(&self, Scored { src, dst, vector, edge_weight }: Scored<'_>) {
        let (device, [scored, _]) = (self.device(), self.lens());
        self.assert_have([(src, scored), (dst, scored)]);
        let (width, attributes) = (self.sizes.scored(), self.sizes.attributes as usize);
        vector.iter().for_each(|vector| vector.assert_has(width, &device));
        assert!(edge_weight.is_some() || attributes == 0, "a weight for {attributes} attributes");
        edge_weight.iter().for_each(|weight| weight.assert_has(width * attributes, &device));
        assert!(self.lists.on_device.attributes.len() >= self.lists.places() * attributes, "attributes of every place");
    }
}

fn address(part: Option<TensorSlice<'_, f32>>) -> u64 {
    part.map_or(0, |part| part.address())
}

/// GAT's numbers of nodes: `to` `[N, H]` are the dots of each head of `values` `[N, H · C]` with
/// `vectors` `[H · C]`, for nodes that give and for those that receive.
pub(crate) fn node_dots(
    attended: Attended<'_>,
    values: &Buffer<f32>,
    vectors: [TensorSlice<'_, f32>; 2],
    src: &mut Buffer<f32>,
    dst: &mut Buffer<f32>,
) -> Result<()> {
    let (sizes, device) = (attended.sizes, attended.device());
    attended.assert_have([
        (values, sizes.nodes as usize * sizes.projected()),
        (src, sizes.node_heads()),
        (dst, sizes.node_heads()),
    ]);
    vectors.iter().for_each(|vector| vector.assert_has(sizes.projected(), &device));
    match device {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "nn/attention", ptx: PTX, name: "node_dots" };
            let [source, target] = vectors.map(|vector| vector.address());
            let arguments = arguments![sizes, values.address(), source, target, src.address(), dst.address()];
            // SAFETY: a warp reads a head of a node, and writes its two numbers, which the arrays
            // were seen to have. What is submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::for_threads(sizes.node_heads() * WARP), &arguments) }?)
        }
        _ => cpu_arm!(for (to, vector) in [src, dst].into_iter().zip(vectors) {
            cpu::node_dots(sizes, values.as_slice(), vector.elements(), to.as_mut_slice());
        }),
    }
}

/// Writes the coefficients `to` `[P, H]`: the softmax of the scores over the edges that a node
/// receives, with the sign set where one is dropped.
pub(crate) fn coefficients(attended: Attended<'_>, scored: Scored<'_>, to: &mut Buffer<f32>) -> Result<()> {
    attended.assert_has_scored(scored);
    attended.assert_have([(to, attended.lens()[1])]);
    match attended.device() {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "nn/attention", ptx: PTX, name: "coefficients" };
            let (lists, Scored { src, dst, vector, edge_weight }) = (&attended.lists.on_device, scored);
            let arguments = arguments![
                attended.sizes,
                lists.starts.address(),
                lists.from.address(),
                src.address(),
                dst.address(),
                address(vector),
                address(edge_weight),
                lists.attributes.address(),
                attended.mask_address(),
                lists.graphs.address(),
                lists.graph_of.address(),
                to.address(),
            ];
            // SAFETY: the lists were made with nodes and places within them; a warp writes the
            // coefficients of the edges that a node receives for a head, each by one lane. What is
            // submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::for_threads(attended.sizes.node_heads() * WARP), &arguments) }?)
        }
        _ => cpu_arm!(cpu::coefficients(attended, scored, to.as_mut_slice())),
    }
}

/// Writes y `[N, D]`: `start`, and the sum over the edges that a node receives of `values` `[N, H ·
/// C]` of the nodes that give, by the coefficients that are not dropped; then `activation`.
pub(crate) fn gather_heads(
    attended: Attended<'_>,
    coefficients: &Buffer<f32>,
    values: &Buffer<f32>,
    start: OutputStart<'_>,
    activation: Option<GraphActivation>,
    y: &mut Buffer<f32>,
) -> Result<()> {
    let (sizes, device, [_, edges]) = (attended.sizes, attended.device(), attended.lens());
    let (nodes, len) = (sizes.nodes as usize, sizes.nodes as usize * sizes.width());
    attended.assert_have([(coefficients, edges), (values, nodes * sizes.projected()), (y, len)]);
    if let OutputStart::Bias(bias) = start {
        bias.assert_has(sizes.width(), &device);
    }
    match device {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "nn/attention", ptx: PTX, name: "gather_heads" };
            let lists = &attended.lists.on_device;
            let (bias, adds) = match start {
                OutputStart::Bias(bias) => (bias.address(), 0u32),
                OutputStart::Present => (0, 1),
            };
            let arguments = arguments![
                sizes,
                lists.starts.address(),
                lists.from.address(),
                coefficients.address(),
                attended.mask_address(),
                values.address(),
                bias,
                adds,
                code(activation),
                y.address(),
            ];
            // SAFETY: the lists were made with nodes and places within them; a thread writes one
            // element. What is submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!({
            let y = &mut y.as_mut_slice()[..len];
            cpu::gather_heads(attended, coefficients.as_slice(), values.as_slice(), start, y);
            y.iter_mut().for_each(|y| *y = activation.map_or(*y, |activation| activation.apply(*y)));
        }),
    }
}

/// Code of a function between layers in attention.cu.
fn code(activation: Option<GraphActivation>) -> u32 {
    match activation {
        None => 0,
        Some(GraphActivation::Elu) => 1,
        Some(GraphActivation::Relu) => 2,
    }
}

#[cfg(test)]
pub(super) mod tests;
