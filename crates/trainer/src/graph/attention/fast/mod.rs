#![forbid(unsafe_code)]

//! The fast form.

use megabatch_gpu_core::Scope;

use super::{AttentionMemory, GraphAttention, NodeGradients, Nodes, Passes};
use crate::error::Result;
use crate::tensor::TensorSet;

/// The weights of an attention as the fast form reads them: packed once an optimizer step, and read by all threads.
#[derive(Debug)]
pub struct PackedAttention {}

impl PackedAttention {
    /// Room for the weights of `attention`, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn new(_scope: &Scope, _attention: &GraphAttention, _passes: Passes) -> Result<Self> {
        Ok(PackedAttention {})
    }

    /// Copies the weights as they are now.
    pub fn pack(&mut self, _attention: &GraphAttention, _parameters: &TensorSet<f32>) {}

    /// Numbers in it.
    pub fn len(_attention: &GraphAttention, _passes: Passes) -> usize {
        0
    }
}

/// The memory with which one thread takes one graph after another through the layers.
#[derive(Debug)]
pub struct AttentionPass(AttentionMemory<f32>);

impl AttentionPass {
    /// Memory for graphs of up to `nodes` and `edges`, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn new(
        scope: &Scope,
        attention: &GraphAttention,
        (nodes, edges): (usize, usize),
        passes: Passes,
    ) -> Result<Self> {
        attention.memory(scope, (nodes, edges), passes).map(AttentionPass)
    }

    /// Numbers in it.
    pub fn len(attention: &GraphAttention, (nodes, edges): (usize, usize), passes: Passes) -> usize {
        attention.memory_len((nodes, edges), passes)
    }

    /// The output [N, D] of one graph. `packed` holds the weights of `parameters`.
    ///
    /// # Panics
    /// If the graph is larger than the memory is for, or the sizes differ otherwise.
    pub fn forward(
        &mut self,
        attention: &GraphAttention,
        (parameters, _packed): (&TensorSet<f32>, &PackedAttention),
        nodes: Nodes<'_, f32>,
    ) -> &[f32] {
        attention.forward(parameters, nodes, &mut self.0)
    }

    /// Goes back from the gradient of the output, after [`AttentionPass::forward`] of the same nodes; adds the parameters' gradients to `gradients`.
    ///
    /// # Panics
    /// If the sizes differ, or the memory is for the forward pass alone.
    pub fn backward(
        &mut self,
        attention: &GraphAttention,
        (parameters, _packed): (&TensorSet<f32>, &PackedAttention),
        node_gradients: (Nodes<'_, f32>, NodeGradients<'_, f32>),
        gradients: &mut TensorSet<f32>,
    ) {
        attention.backward(parameters, node_gradients, gradients, &mut self.0);
    }
}
