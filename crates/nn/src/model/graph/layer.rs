//! The parameters of a layer, and what they are drawn from.

use megabatch_order::random::{Stream, uniform};

use crate::model::graph::{AttentionKind, GraphConfig, GraphOutput};
use crate::model::tensor::{Layout, Slot, TensorSet};

/// Joining of the heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Side by side.
    Concatenated,
    /// Averaged.
    Averaged,
}

/// The sizes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSizes {
    /// F: the width of its input.
    pub input: usize,
    /// H.
    pub heads: usize,
    /// C: units of a head.
    pub units: usize,
    /// A: attributes of an edge.
    pub attributes: usize,
    /// Joining of its heads.
    pub joined: Joined,
}

impl LayerSizes {
    /// H · C.
    pub fn projected(self) -> usize {
        self.heads * self.units
    }

    /// D: the width of its output.
    pub fn width(self) -> usize {
        match self.joined {
            Joined::Concatenated => self.projected(),
            Joined::Averaged => self.units,
        }
    }
}

/// The sizes of all layers over nodes of `width_in` numbers and edges of `attributes`; `outputs` is
/// K.
pub(super) fn layer_sizes(config: &GraphConfig, width_in: usize, attributes: usize, outputs: usize) -> Vec<LayerSizes> {
    let mut input = width_in;
    let layer = |l: usize| {
        let is_averaged = config.output == GraphOutput::Attention && l + 1 == config.layers;
        let (heads, units, joined) = match is_averaged {
            true => (config.output_heads, outputs, Joined::Averaged),
            false => (config.heads, config.hidden, Joined::Concatenated),
        };
        let sizes = LayerSizes { input, heads, units, attributes, joined };
        input = sizes.width();
        sizes
    };
    (0..config.layers).map(layer).collect()
}

/// Offsets of a layer's parameters, by the names that they have in PyTorch Geometric.
#[derive(Debug)]
pub struct AttentionLayer {
    /// Sizes of the layer.
    pub sizes: LayerSizes,
    /// Maps and vectors of the scores.
    pub scoring: Scoring,
    /// bias `[D]`.
    pub bias: Slot,
    /// res.weight `[D, F]`.
    pub residual: Option<Slot>,
    /// lin_edge.weight `[H · C, A]`.
    pub edge_weight: Option<Slot>,
    drawn: Vec<UniformTensor>,
}

/// The parameters that differ by kind.
#[derive(Debug)]
pub enum Scoring {
    /// [`AttentionKind::Gat`].
    Gat {
        /// lin.weight `[H · C, F]`.
        weight: Slot,
        /// att_src `[1, H, C]`.
        source: Slot,
        /// att_dst `[1, H, C]`.
        target: Slot,
        /// att_edge `[1, H, C]`.
        edge_attention: Option<Slot>,
    },
    /// [`AttentionKind::GatV2`].
    GatV2 {
        /// Map of the nodes that are gathered from: lin_l.weight `[H · C, F]` and lin_l.bias.
        from: [Slot; 2],
        /// Map of the node that receives: lin_r.weight and lin_r.bias.
        to: [Slot; 2],
        /// att `[1, H, C]`.
        attention: Slot,
    },
}

/// A tensor that is drawn uniformly in ± `bound`, which may be 0.
#[derive(Debug)]
struct UniformTensor {
    name: String,
    bound: f64,
}

/// The bound of Glorot and Bengio, 2010, as PyTorch Geometric applies it: to the last two sizes of
/// a tensor.
fn glorot(rows: usize, columns: usize) -> f64 {
    (6.0 / (rows + columns) as f64).sqrt()
}

impl AttentionLayer {
    /// Appends the parameters of layer `l` to `layout`, named `graph.<l>.lin.weight` and so on.
    pub(super) fn new(kind: AttentionKind, l: usize, sizes: LayerSizes, residual: bool, layout: &mut Layout) -> Self {
        let LayerSizes { input, heads, units, attributes, .. } = sizes;
        let (projected, width) = (sizes.projected(), sizes.width());
        let mut drawn = Vec::new();
        let mut push = |name: &str, shape: &[usize], bound: f64| {
            let name = format!("graph.{l}.{name}");
            drawn.push(UniformTensor { name: name.clone(), bound });
            layout.push(name, shape)
        };
        let has_edges = attributes > 0;
        let attention = (&[1, heads, units][..], glorot(heads, units));
        let weight = (&[projected, input][..], glorot(projected, input));
        let scoring = match kind {
            AttentionKind::Gat => Scoring::Gat {
                weight: push("lin.weight", weight.0, weight.1),
                source: push("att_src", attention.0, attention.1),
                target: push("att_dst", attention.0, attention.1),
                edge_attention: has_edges.then(|| push("att_edge", attention.0, attention.1)),
            },
            AttentionKind::GatV2 => {
                // PyTorch's own bound for the bias of a linear map.
                let mut linear = |name: &str| {
                    let weight = push(&format!("{name}.weight"), weight.0, weight.1);
                    [weight, push(&format!("{name}.bias"), &[projected][..], 1.0 / (input as f64).sqrt())]
                };
                let (from, to) = (linear("lin_l"), linear("lin_r"));
                Scoring::GatV2 { from, to, attention: push("att", attention.0, attention.1) }
            }
        };
        let edge_weight =
            has_edges.then(|| push("lin_edge.weight", &[projected, attributes], glorot(projected, attributes)));
        let residual = residual.then(|| push("res.weight", &[width, input], glorot(width, input)));
        let bias = push("bias", &[width], 0.0);
        AttentionLayer { sizes, scoring, bias, residual, edge_weight, drawn }
    }

    /// Draws the parameters as PyTorch Geometric does: element `i` of tensor `name` is a function
    /// of (`seed`, `name`, `i`) alone.
    pub(super) fn initial(&self, seed: u64, parameters: &mut TensorSet) {
        for UniformTensor { name, bound } in &self.drawn {
            let values = parameters.get_mut(name).expect("the parameters have the layout that the layer is part of");
            for (index, value) in (0..).zip(values) {
                *value = (bound * (2.0 * uniform(Stream { seed, name }, index) - 1.0)) as f32;
            }
        }
    }
}
