//! The model of the loop: graph attention over features of nodes.

use std::sync::Arc;

use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::graph::GraphView;
use megabatch_nn::model::{GraphAttention, GraphConfig, Layout, TensorSet};
use megabatch_nn_cpu::graph_attention::{AttentionPass, Nodes, PackedAttention, Passes};
use megabatch_nn_cpu::team::ThreadTeam;

use crate::error::Result;

/// Size of the model.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) features: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) hidden: usize,
}

/// Attention with weights as they are drawn, and memory for one graph.
pub(super) struct Model {
    attention: GraphAttention,
    packed: PackedAttention,
    pass: AttentionPass,
    features: usize,
}

impl Model {
    /// For graphs of up to `nodes` and `edges`, each edge with its weight.
    pub(super) fn new(size: Size, largest: (usize, usize)) -> Result<Self> {
        let scope: Scope = Device::cpu().scope("model");
        let config =
            GraphConfig { layers: size.layers, heads: size.heads, hidden: size.hidden, ..GraphConfig::default() };
        let mut layout = Layout::default();
        let attention = GraphAttention::new(config, size.features, 1, 1, &mut layout);
        let mut parameters = TensorSet::zeros(&scope, &Arc::new(layout))?;
        attention.initial(0, &mut parameters);
        let mut packed = PackedAttention::new(&scope, &attention, Passes::Forward)?;
        packed.pack(&attention, &parameters);
        let pass = AttentionPass::new(&scope, &attention, largest.0, largest.1, Passes::Forward)?;
        Ok(Model { attention, packed, pass, features: size.features })
    }

    /// The sum of the outputs for one graph, so that the work is not optimised away.
    pub(super) fn forward(&mut self, graph: GraphView<'_>, features: &[f32]) -> f32 {
        let x = &features[..graph.nodes() * self.features];
        let nodes = Nodes { graph, x, dropout: None, team: ThreadTeam::alone() };
        self.pass.forward(&self.attention, &self.packed, nodes).iter().sum()
    }
}
