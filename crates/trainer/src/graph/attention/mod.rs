#![forbid(unsafe_code)]

//! Graph attention: every node gathers from its neighbours, weighted by scores that it gives them.
//!
//! ```text
//! for each layer, x [N, F], node i, edges e = j → i with attributes a_e, heads h of C units:
//!     GAT:    v_j = W x_j;                score = LeakyReLU(att_src · v_j + att_dst · v_i + att_edge · W_e a_e)
//!     GATv2:  v_j = W_l x_j + b_l;        score = att · LeakyReLU(v_j + W_r x_i + b_r + W_e a_e)
//!     coefficient = softmax of the scores over the edges that i receives
//!     y_i = bias + W_res x_i + Σ_e coefficient · v_j          heads side by side, or their mean
//!     ELU or ReLU of y, before the next layer
//! ```
//!
//! Everything is that of PyTorch Geometric's `GATConv` and `GATv2Conv`, self-loops and names of
//! tensors too. A node that receives no edge gathers nothing. There are two forms of the same
//! mathematics: the plain one for any [`Scalar`], the reference of the fast one.

mod config;
mod dropout;
mod edges;
mod fast;
mod layer;
mod lists;
mod plain;

use megabatch_gpu_core::Scope;

pub use config::{AttentionKind, GraphActivation, GraphConfig, GraphOutput};
pub use dropout::GraphDropout;
pub(crate) use dropout::GraphMask;
pub use fast::{AttentionPass, PackedAttention};
pub(crate) use layer::{Joined, Layer, Scoring};
pub(crate) use lists::{BatchEdges, GraphPlace, NO_EDGE, SeenEdges};
pub use plain::AttentionMemory;

use crate::error::Result;
use crate::graph::GraphView;
use crate::model::scalar::Scalar;
use crate::model::tensor::{Layout, TensorSet};
use layer::layer_sizes;

/// Layers of graph attention, one over another. A description: the numbers live in [`TensorSet`]s
/// of the layout that it is part of.
#[derive(Debug)]
pub struct GraphAttention {
    config: GraphConfig,
    layers: Vec<Layer>,
}

/// Input of attention: a graph, its nodes, and dropout.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a, S> {
    /// The graph.
    pub graph: GraphView<'a>,
    /// [N, F], row-major.
    pub x: &'a [S],
    /// None for a prediction.
    pub dropout: Option<GraphDropout>,
}

/// Which passes memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// For predictions.
    Forward,
    /// For training.
    ForwardAndBackward,
}

/// Inputs and outputs of a backward pass.
#[derive(Debug)]
pub struct NodeGradients<'a, S> {
    /// The gradient of the output, [N, D].
    pub d_output: &'a [S],
    /// Gradient of the input, [N, F], if it is asked for.
    pub d_x: Option<&'a mut [S]>,
}

impl GraphAttention {
    /// Attention over nodes of `width_in` numbers and edges of `attributes`, appended to `layout`;
    /// K = `outputs` is the width of an averaging last layer.
    pub fn new(config: GraphConfig, width_in: usize, attributes: usize, outputs: usize, layout: &mut Layout) -> Self {
        let sizes = layer_sizes(&config, width_in, attributes, outputs).into_iter().enumerate();
        let layers = sizes.map(|layer| Layer::new(config.kind, layer.0, layer.1, config.residual, layout)).collect();
        GraphAttention { config, layers }
    }

    pub(crate) fn config(&self) -> &GraphConfig {
        &self.config
    }

    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// D: the width of the output.
    pub fn width(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.sizes.width())
    }

    /// Draws the parameters as PyTorch Geometric does, Glorot's for weights and attention vectors,
    /// zero for `bias`: element `i` of tensor `name` is a function of (`seed`, `name`, `i`) alone.
    ///
    /// # Panics
    /// If `parameters` are of another layout.
    pub fn initial<S: Scalar>(&self, seed: u64, parameters: &mut TensorSet<S>) {
        self.layers.iter().for_each(|layer| layer.initial(seed, parameters));
    }

    /// Memory of the plain form for graphs of up to `nodes` and `edges`, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn memory<S: Scalar>(
        &self,
        scope: &Scope,
        nodes: usize,
        edges: usize,
        passes: Passes,
    ) -> Result<AttentionMemory<S>> {
        AttentionMemory::new(scope, self, (nodes, edges), passes)
    }

    /// Numbers in the memory of the plain form.
    pub fn memory_len(&self, nodes: usize, edges: usize, passes: Passes) -> usize {
        plain::memory_len(self, (nodes, edges), passes)
    }

    /// The output [N, D] of one graph, in plain loops.
    ///
    /// # Panics
    /// If the graph is larger than the memory is for, or the sizes differ otherwise.
    pub fn forward<'m, S: Scalar>(
        &self,
        parameters: &TensorSet<S>,
        nodes: Nodes<'_, S>,
        memory: &'m mut AttentionMemory<S>,
    ) -> &'m [S] {
        plain::forward(self, parameters, nodes, memory)
    }

    /// Goes back from the gradient of the output, after [`GraphAttention::forward`] of the same
    /// nodes; adds the parameters' gradients to `gradients`.
    ///
    /// # Panics
    /// If the sizes differ, or the memory is for the forward pass alone.
    pub fn backward<S: Scalar>(
        &self,
        parameters: &TensorSet<S>,
        nodes: Nodes<'_, S>,
        node_gradients: NodeGradients<'_, S>,
        gradients: &mut TensorSet<S>,
        memory: &mut AttentionMemory<S>,
    ) {
        plain::backward(self, parameters, nodes, node_gradients, gradients, memory);
    }
}
