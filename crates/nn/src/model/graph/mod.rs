//! Graph attention: every node gathers from its neighbours, weighted by scores that it gives them.
//!
//! ```text
//! for each layer, x [N, F], node i, edges e = j → i with attributes a_e, heads h of C units:
//!     GAT:    v_j = W x_j;
//!             score = LeakyReLU(att_src · v_j + att_dst · v_i + att_edge · W_e a_e)
//!     GATv2:  v_j = W_l x_j + b_l;
//!             score = att · LeakyReLU(v_j + W_r x_i + b_r + W_e a_e)
//!     coefficient = softmax of the scores over the edges that i receives
//!     y_i = bias + W_res x_i + Σ_e coefficient · v_j          heads side by side, or their mean
//!     ELU or ReLU of y, before the next layer
//! ```
//!
//! Everything is that of PyTorch Geometric's `GATConv` and `GATv2Conv`, self-loops and names of
//! tensors too. A node that receives no edge gathers nothing.

mod config;
mod layer;

pub use config::{AttentionKind, GraphActivation, GraphConfig, GraphOutput};
use layer::layer_sizes;
pub use layer::{AttentionLayer, Joined, LayerSizes, Scoring};

use crate::model::tensor::{Layout, TensorSet};

/// Layers of graph attention, one over another. A description: the numbers live in [`TensorSet`]s
/// of the layout that it is part of.
#[derive(Debug)]
pub struct GraphAttention {
    config: GraphConfig,
    layers: Vec<AttentionLayer>,
}

impl GraphAttention {
    /// Attention over nodes of `width_in` numbers and edges of `attributes`, appended to `layout`;
    /// K = `outputs` is the width of an averaging last layer.
    pub fn new(config: GraphConfig, width_in: usize, attributes: usize, outputs: usize, layout: &mut Layout) -> Self {
        let sizes = layer_sizes(&config, width_in, attributes, outputs).into_iter().enumerate();
        let layers = sizes
            .map(|layer| AttentionLayer::new(config.attention, layer.0, layer.1, config.residual, layout))
            .collect();
        GraphAttention { config, layers }
    }

    /// The choices that it was made with.
    pub fn config(&self) -> &GraphConfig {
        &self.config
    }

    /// The layers, from the nodes up.
    pub fn layers(&self) -> &[AttentionLayer] {
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
    pub fn initial(&self, seed: u64, parameters: &mut TensorSet) {
        self.layers.iter().for_each(|layer| layer.initial(seed, parameters));
    }
}
