#![forbid(unsafe_code)]

//! Graph attention in the two forms of the model behind one interface.

use megabatch_gpu_core::Scope;

use crate::error::Result;
use crate::graph::{AttentionMemory, AttentionPass, GraphAttention, NodeGradients, Nodes, PackedAttention, Passes};
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;

/// The memory with which a form takes one graph after another through attention.
pub(crate) trait Attend<S: Scalar>: Sized {
    /// The weights as the form reads them, beside the parameters themselves.
    type Packed;

    /// Memory for graphs of so many nodes and edges, booked on `scope`.
    fn new(scope: &Scope, attention: &GraphAttention, nodes: usize, edges: usize, passes: Passes) -> Result<Self>;

    /// The output [N, W] of one graph.
    fn forward(
        &mut self,
        attention: &GraphAttention,
        parameters: &TensorSet<S>,
        packed: Option<&Self::Packed>,
        nodes: Nodes<'_, S>,
    ) -> &[S];

    /// Goes back from the gradient of the output, after [`Attend::forward`] of the same nodes.
    fn backward(
        &mut self,
        attention: &GraphAttention,
        parameters: &TensorSet<S>,
        packed: Option<&Self::Packed>,
        nodes: Nodes<'_, S>,
        node_gradients: NodeGradients<'_, S>,
        gradients: &mut TensorSet<S>,
    );
}

impl<S: Scalar> Attend<S> for AttentionMemory<S> {
    type Packed = ();

    fn new(scope: &Scope, attention: &GraphAttention, nodes: usize, edges: usize, passes: Passes) -> Result<Self> {
        attention.memory(scope, nodes, edges, passes)
    }

    fn forward(
        &mut self,
        attention: &GraphAttention,
        parameters: &TensorSet<S>,
        _packed: Option<&()>,
        nodes: Nodes<'_, S>,
    ) -> &[S] {
        attention.forward(parameters, nodes, self)
    }

    fn backward(
        &mut self,
        attention: &GraphAttention,
        parameters: &TensorSet<S>,
        _packed: Option<&()>,
        nodes: Nodes<'_, S>,
        node_gradients: NodeGradients<'_, S>,
        gradients: &mut TensorSet<S>,
    ) {
        attention.backward(parameters, nodes, node_gradients, gradients, self);
    }
}

impl Attend<f32> for AttentionPass {
    type Packed = PackedAttention;

    fn new(scope: &Scope, attention: &GraphAttention, nodes: usize, edges: usize, passes: Passes) -> Result<Self> {
        AttentionPass::new(scope, attention, nodes, edges, passes)
    }

    fn forward(
        &mut self,
        attention: &GraphAttention,
        _parameters: &TensorSet<f32>,
        packed: Option<&PackedAttention>,
        nodes: Nodes<'_, f32>,
    ) -> &[f32] {
        let packed = packed.expect("the fast form packs the weights of attention");
        AttentionPass::forward(self, attention, packed, nodes)
    }

    fn backward(
        &mut self,
        attention: &GraphAttention,
        parameters: &TensorSet<f32>,
        packed: Option<&PackedAttention>,
        nodes: Nodes<'_, f32>,
        node_gradients: NodeGradients<'_, f32>,
        gradients: &mut TensorSet<f32>,
    ) {
        let packed = packed.expect("the fast form packs the weights of attention");
        AttentionPass::backward(self, attention, parameters, packed, nodes, node_gradients, gradients);
    }
}
