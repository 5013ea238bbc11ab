//! Graph attention on the CPU. Departures from the equations of
//! [the model](megabatch_nn::model::GraphAttention):
//!
//! 1. Matrices of nodes are panel-major (see `cpu/kernel`), a head's columns being whole panels.
//!    Maps of the nodes are products; the weights are packed once an optimizer step.
//! 2. GAT's scores are sums of a number of the node that gives, one of the node that receives and
//!    one of the edge, so that an edge costs a few additions. GATv2's are computed from both nodes'
//!    rows, forward and twice backward, and nothing of that size is kept.
//! 3. Nothing of an edge is as wide as a node: the sums of neighbours' rows are formed in
//!    registers, a few panels of a head at a time, whose rows of all nodes lie in the first-level
//!    cache (16 KiB a panel of 256 nodes).
//! 4. Backward walks the edges by the node that gives, so that every sum belongs to one node, and
//!    forms it in that order.
//!
//! One thread takes a graph through all layers, or those of a [`ThreadTeam`] do, which share the
//! loops over panels, nodes and edges. A thread forms whole sums: their order depends on the graph
//! alone.

mod backward;
mod columns;
mod forward;
mod memory;
mod parts;
mod shape;
mod softmax;
mod weights;

use megabatch_gpu_core::Scope;

use megabatch_nn::Result;
use megabatch_nn::graph::{GraphDropout, GraphView, place_attributes};
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::graph::GraphAttention;
pub use weights::PackedAttention;

use crate::kernel::Isa;
use crate::team::ThreadTeam;
use backward::{InputGradient, LayerParameters};
use columns::{from_panels, into_panels};
use forward::Context;
use memory::{AttentionWorkspace, GraphCapacity, Shared};
use shape::{PanelShape, shapes};

/// Input of attention: a graph, its nodes, and dropout.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// The graph.
    pub graph: GraphView<'a>,
    /// [N, F], row-major.
    pub x: &'a [f32],
    /// None for a prediction.
    pub dropout: Option<GraphDropout>,
    /// The threads that share the loops.
    pub team: &'a ThreadTeam,
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
pub struct NodeGradients<'a> {
    /// The gradient of the output, [N, D].
    pub d_output: &'a [f32],
    /// Gradient of the input, [N, F], if it is asked for.
    pub d_x: Option<&'a mut [f32]>,
}

/// The memory with which one thread takes one graph after another through the layers.
#[derive(Debug)]
pub struct AttentionPass {
    isa: Isa,
    shapes: Vec<PanelShape>,
    memory: AttentionWorkspace,
}

impl AttentionPass {
    /// Memory for graphs of up to `nodes` and `edges`, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory) when the device has no room.
    pub fn new(scope: &Scope, attention: &GraphAttention, nodes: usize, edges: usize, passes: Passes) -> Result<Self> {
        let memory = AttentionWorkspace::new(scope, attention, GraphCapacity { nodes, edges }, passes)?;
        Ok(AttentionPass { isa: Isa::best(), shapes: shapes(attention), memory })
    }

    /// Numbers of four bytes in each buffer, in the order in which they are taken.
    pub fn lens(attention: &GraphAttention, nodes: usize, edges: usize, passes: Passes) -> Vec<usize> {
        memory::memory_lens(attention, GraphCapacity { nodes, edges }, passes)
    }

    /// The output [N, D] of one graph. `packed` holds the weights.
    ///
    /// # Panics
    /// If the graph is larger than the memory is for, or the sizes differ otherwise.
    pub fn forward(&mut self, attention: &GraphAttention, packed: &PackedAttention, nodes: Nodes<'_>) -> &[f32] {
        self.load(attention, &nodes);
        let AttentionWorkspace { shared, layers, scratch, .. } = &mut self.memory;
        for l in 0..self.shapes.len() {
            let (below, rest) = layers.split_at_mut(l);
            let input = below.last().map_or(shared.x.as_slice(), |below| below.y.as_slice());
            let context = context(self.isa, l, self.shapes[l], attention, packed, &nodes, shared);
            forward::forward(&context, input, &mut rest[0], scratch);
        }
        let (last, top) = (self.shapes[layers.len() - 1], &layers[layers.len() - 1]);
        let output = &mut shared.output.as_mut_slice()[..nodes.graph.nodes() * last.output.width()];
        from_panels(nodes.team, last.output, top.y.as_slice(), output);
        output
    }

    /// Backward pass from the gradient of the output, after [`AttentionPass::forward`] of the same
    /// nodes; adds the parameters' gradients to `gradients`. `packed` holds the weights of the
    /// parameters beside it.
    ///
    /// # Panics
    /// If the sizes differ, or the memory is for the forward pass alone.
    pub fn backward(
        &mut self,
        attention: &GraphAttention,
        parameters: &TensorSet,
        packed: &PackedAttention,
        nodes: Nodes<'_>,
        node_gradients: NodeGradients<'_>,
        gradients: &mut TensorSet,
    ) {
        let NodeGradients { d_output, d_x } = node_gradients;
        let AttentionWorkspace { shared, layers, scratch, .. } = &mut self.memory;
        let last = self.shapes[layers.len() - 1];
        assert_eq!(d_output.len(), nodes.graph.nodes() * last.output.width(), "a gradient for each output");
        into_panels(nodes.team, last.output, d_output, scratch.d_y.as_mut_slice());
        for l in (0..self.shapes.len()).rev() {
            let (below, rest) = layers.split_at(l);
            let input = below.last().map_or(shared.x.as_slice(), |below| below.y.as_slice());
            let context = context(self.isa, l, self.shapes[l], attention, packed, &nodes, shared);
            let wanted = if l > 0 || d_x.is_some() { InputGradient::Wanted } else { InputGradient::Unwanted };
            let layer_parameters = LayerParameters { layer: &attention.layers()[l], values: parameters, gradients };
            backward::backward(&context, input, wanted, &rest[0], scratch, layer_parameters);
            std::mem::swap(&mut scratch.d_x, &mut scratch.d_y);
        }
        if let Some(d_x) = d_x {
            from_panels(nodes.team, self.shapes[0].input, scratch.d_y.as_slice(), d_x);
        }
    }

    /// Takes a graph and its nodes.
    fn load(&mut self, attention: &GraphAttention, nodes: &Nodes<'_>) {
        let AttentionWorkspace { capacity, shared, .. } = &mut self.memory;
        let (count, edges, sizes) = (nodes.graph.nodes(), nodes.graph.edges(), attention.layers()[0].sizes);
        assert!(
            count <= capacity.nodes && edges <= capacity.edges,
            "a graph of {count} nodes and {edges} edges: {capacity:?}"
        );
        assert_eq!(nodes.x.len(), count * sizes.input, "{count} nodes of {} numbers", sizes.input);
        assert_eq!(nodes.graph.attributes.len(), edges * sizes.attributes, "{edges} edges of {}", sizes.attributes);
        into_panels(nodes.team, self.shapes[0].input, nodes.x, shared.x.as_mut_slice());
        let self_loops = attention.config().self_loops;
        shared.lists.fill(&nodes.graph, self_loops);
        if sizes.attributes > 0 {
            place_attributes(&nodes.graph, self_loops, sizes.attributes, shared.attributes.as_mut_slice());
        }
    }
}

/// Inputs of layer `l`.
fn context<'a>(
    isa: Isa,
    l: usize,
    shape: PanelShape,
    attention: &'a GraphAttention,
    packed: &'a PackedAttention,
    nodes: &Nodes<'a>,
    shared: &'a Shared,
) -> Context<'a> {
    let config = attention.config();
    Context {
        isa,
        team: nodes.team,
        shape,
        config,
        weights: &packed.layers[l],
        lists: &shared.lists,
        attributes: shared.attributes.as_slice(),
        masks: (
            nodes.dropout.and_then(|dropout| dropout.input(l, config.dropout)),
            nodes.dropout.and_then(|dropout| dropout.attention(l, config.attention_dropout)),
        ),
        is_inner: l + 1 < attention.layers().len(),
    }
}

#[cfg(test)]
mod tests;
