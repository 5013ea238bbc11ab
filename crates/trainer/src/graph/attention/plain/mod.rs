#![forbid(unsafe_code)]

//! The plain form: edge by edge and unit by unit, as the formulas say.

mod backward;
mod forward;
mod memory;
mod score;

pub use memory::AttentionMemory;

pub(super) use memory::memory_len;

use super::layer::{Joined, Layer};
use super::{GraphAttention, NodeGradients, Nodes};
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;
use backward::layer_backward;
use forward::layer_forward;

/// A layer among those of an attention.
#[derive(Clone, Copy)]
struct At<'a> {
    attention: &'a GraphAttention,
    l: usize,
}

impl<'a> At<'a> {
    fn layer(self) -> &'a Layer {
        &self.attention.layers[self.l]
    }

    fn is_last(self) -> bool {
        self.l + 1 == self.attention.layers.len()
    }

    /// The column of the output that unit `unit` of head `head` goes to, and its share of it.
    fn output<S: Scalar>(self, head: usize, unit: usize) -> (usize, S) {
        let sizes = self.layer().sizes;
        match sizes.joined {
            Joined::Concatenated => (head * sizes.units + unit, S::ONE),
            Joined::Averaged => (unit, S::ONE / S::from_f64(sizes.heads as f64)),
        }
    }
}

/// The output [N, D].
pub(super) fn forward<'m, S: Scalar>(
    attention: &GraphAttention,
    parameters: &TensorSet<S>,
    nodes: Nodes<'_, S>,
    memory: &'m mut AttentionMemory<S>,
) -> &'m [S] {
    check(attention, &nodes, memory);
    let count = nodes.graph.nodes();
    for l in 0..attention.layers.len() {
        let (below, rest) = memory.layers.split_at_mut(l);
        let input = below.last().map_or(nodes.x, |below| below.y.as_slice());
        let at = At { attention, l };
        layer_forward(at, parameters, nodes, input, &mut rest[0], memory.scratch.edge.as_mut_slice());
    }
    memory.layers.last().map_or(&[], |top| &top.y.as_slice()[..count * attention.width()])
}

/// Goes back from the gradient of the output.
pub(super) fn backward<S: Scalar>(
    attention: &GraphAttention,
    parameters: &TensorSet<S>,
    nodes: Nodes<'_, S>,
    node_gradients: NodeGradients<'_, S>,
    gradients: &mut TensorSet<S>,
    memory: &mut AttentionMemory<S>,
) {
    check(attention, &nodes, memory);
    let NodeGradients { d_output, d_x } = node_gradients;
    assert_eq!(d_output.len(), nodes.graph.nodes() * attention.width(), "a gradient for each output");
    let AttentionMemory { layers, scratch, .. } = memory;
    scratch.d_y.as_mut_slice()[..d_output.len()].copy_from_slice(d_output);
    for l in (0..attention.layers.len()).rev() {
        layer_backward(At { attention, l }, parameters, nodes, &layers[l], scratch, gradients);
        std::mem::swap(&mut scratch.d_x, &mut scratch.d_y);
    }
    if let Some(d_x) = d_x {
        d_x.copy_from_slice(&scratch.d_y.as_slice()[..d_x.len()]);
    }
}

fn check<S: Scalar>(attention: &GraphAttention, nodes: &Nodes<'_, S>, memory: &AttentionMemory<S>) {
    let (count, edges) = (nodes.graph.nodes(), nodes.graph.edges());
    assert!((count <= memory.capacity.0) && edges <= memory.capacity.1, "memory for {:?}", memory.capacity);
    let sizes = attention.layers[0].sizes;
    assert_eq!(nodes.x.len(), count * sizes.input, "{count} nodes of {} numbers", sizes.input);
    assert_eq!(nodes.graph.attributes.len(), edges * sizes.attributes, "{edges} edges of {}", sizes.attributes);
}
