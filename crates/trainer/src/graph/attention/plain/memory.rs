#![forbid(unsafe_code)]

//! The memory of the plain form, by shape.

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::Result;
use crate::graph::attention::config::AttentionKind;
use crate::graph::attention::edges::places;
use crate::graph::attention::layer::LayerSizes;
use crate::graph::attention::{GraphAttention, Passes};
use crate::model::scalar::Scalar;

/// The memory with which the plain form takes one graph through its layers.
#[derive(Debug)]
pub struct AttentionMemory<S: Scalar> {
    /// Nodes and edges that there is room for.
    pub(super) capacity: (usize, usize),
    pub(super) layers: Vec<LayerMemory<S>>,
    pub(super) scratch: Scratch<S>,
}

/// Saved forward pass of one layer. P are places of edges.
#[derive(Debug)]
pub(super) struct LayerMemory<S: Scalar> {
    /// Input of the layer, after dropout.
    pub(super) x: Buffer<S>, // [N, F]
    /// v: what nodes give.
    pub(super) from: Buffer<S>, // [N, H · C]
    /// GATv2's map of the node that receives; empty for GAT.
    pub(super) to: Buffer<S>, // [N, H · C]
    /// The mean of the attributes that each node receives.
    pub(super) loops: Buffer<S>, // [N, A]
    /// Before dropout.
    pub(super) coefficients: Buffer<S>, // [P, H]
    /// After the function between layers.
    pub(super) y: Buffer<S>, // [N, D]
}

/// Scratch buffers, used by one layer after another; all but the first for the backward pass alone.
#[derive(Debug)]
pub(super) struct Scratch<S: Scalar> {
    /// W_e a_e of an edge.
    pub(super) edge: Buffer<S>, // [H · C]
    pub(super) d_y: Buffer<S>,            // [N, D]
    pub(super) d_x: Buffer<S>,            // [N, F]
    pub(super) d_from: Buffer<S>,         // [N, H · C]
    pub(super) d_to: Buffer<S>,           // [N, H · C]
    pub(super) d_coefficients: Buffer<S>, // [P, H]
    /// Gradients of the three attention vectors of GAT, or of GATv2's one.
    pub(super) d_attention: Buffer<S>, // [3, H · C]
    pub(super) d_edge_weight: Buffer<S>,  // [H · C, A]
}

/// Numbers in each buffer of a layer, in the order of the fields.
fn layer_len(kind: AttentionKind, sizes: LayerSizes, capacity: (usize, usize)) -> [usize; 6] {
    let nodes = capacity.0;
    let projected = nodes * sizes.projected();
    let to = if kind == AttentionKind::GatV2 { projected } else { 0 };
    let coefficients = places(capacity.0, capacity.1) * sizes.heads;
    [nodes * sizes.input, projected, to, nodes * sizes.attributes, coefficients, nodes * sizes.width()]
}

/// Numbers in each buffer of the scratch for one layer, in the order of the fields.
fn scratch_len_of(sizes: LayerSizes, capacity: (usize, usize), passes: Passes) -> [usize; 8] {
    let (nodes, projected) = (capacity.0, sizes.projected());
    // The gradients of input and output change places from layer to layer.
    let between = nodes * sizes.width().max(sizes.input);
    match passes {
        Passes::Forward => [projected, 0, 0, 0, 0, 0, 0, 0],
        Passes::ForwardAndBackward => [
            projected,
            between,
            between,
            nodes * projected,
            nodes * projected,
            places(capacity.0, capacity.1) * sizes.heads,
            3 * projected,
            projected * sizes.attributes,
        ],
    }
}

/// Numbers in each buffer of the scratch for all layers.
fn scratch_len(attention: &GraphAttention, capacity: (usize, usize), passes: Passes) -> [usize; 8] {
    let each = attention.layers.iter().map(|layer| scratch_len_of(layer.sizes, capacity, passes));
    each.fold([0; 8], |most, len| std::array::from_fn(|i| most[i].max(len[i])))
}

/// Numbers in all of it.
pub(in crate::graph::attention) fn memory_len(
    attention: &GraphAttention,
    capacity: (usize, usize),
    passes: Passes,
) -> usize {
    let layers = attention.layers.iter().flat_map(|layer| layer_len(attention.config.kind, layer.sizes, capacity));
    layers.chain(scratch_len(attention, capacity, passes)).sum()
}

impl<S: Scalar> AttentionMemory<S> {
    pub(in crate::graph::attention) fn new(
        scope: &Scope,
        attention: &GraphAttention,
        capacity: (usize, usize),
        passes: Passes,
    ) -> Result<Self> {
        let zeros = |len| Buffer::zeros(scope, len);
        let layer = |sizes| {
            let [x, from, to, loops, coefficients, y] = layer_len(attention.config.kind, sizes, capacity);
            Ok(LayerMemory {
                x: zeros(x)?,
                from: zeros(from)?,
                to: zeros(to)?,
                loops: zeros(loops)?,
                coefficients: zeros(coefficients)?,
                y: zeros(y)?,
            })
        };
        let [edge, d_y, d_x, d_from, d_to, d_coefficients, d_attention, d_edge_weight] =
            scratch_len(attention, capacity, passes);
        Ok(AttentionMemory {
            capacity,
            layers: attention.layers.iter().map(|of| layer(of.sizes)).collect::<Result<_>>()?,
            scratch: Scratch {
                edge: zeros(edge)?,
                d_y: zeros(d_y)?,
                d_x: zeros(d_x)?,
                d_from: zeros(d_from)?,
                d_to: zeros(d_to)?,
                d_coefficients: zeros(d_coefficients)?,
                d_attention: zeros(d_attention)?,
                d_edge_weight: zeros(d_edge_weight)?,
            },
        })
    }
}
