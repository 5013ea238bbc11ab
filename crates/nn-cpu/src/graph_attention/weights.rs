//! Weights in panels.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::graph::{AttentionKind, AttentionLayer, GraphAttention, Scoring};

use super::columns::pack_row;
use super::shape::{PanelShape, shapes};
use crate::graph_attention::Passes;

/// The weights of an attention as the kernels read them: packed once an optimizer step, and read
/// by all threads.
#[derive(Debug)]
pub struct PackedAttention {
    pub(super) layers: Vec<AttentionLayerWeights>,
}

/// One layer's weights; what a layer does not have is empty.
#[derive(Debug)]
pub(super) struct AttentionLayerWeights {
    /// W, or W_l and W_r.
    pub(super) maps: Buffer<f32>, // [map panels][input depth][16]
    pub(super) map_bias: Buffer<f32>, // [map panels][16]
    pub(super) residual: Buffer<f32>, // [output panels][input depth][16]
    pub(super) bias: Buffer<f32>,     // [output panels][16]
    /// att_src and att_dst, or att.
    pub(super) vectors: Buffer<f32>, // [2 or 1][head panels][16]
    /// For GATv2, W_e by attribute; for GAT, att_edge · W_e, which is all that scores take of it.
    pub(super) edges: Buffer<f32>, // [A][head panels][16], [groups][A][group]
    /// For the backward pass.
    pub(super) maps_transposed: Buffer<f32>, // [input panels][map columns][16]
    pub(super) residual_transposed: Buffer<f32>, // [input panels][output columns][16]
}

/// Numbers in each buffer, in the order of the fields.
fn weights_len(shape: PanelShape, has_residual: bool, passes: Passes) -> [usize; 8] {
    let (depth, columns) = (shape.input.depth(), shape.map_columns());
    let residual = |len: usize| if has_residual { len } else { 0 };
    let backward = |len: usize| if passes == Passes::ForwardAndBackward { len } else { 0 };
    let (map_bias, vectors, edges) = match shape.kind {
        AttentionKind::Gat => (0, 2 * columns, shape.heads.padded()),
        AttentionKind::GatV2 => (columns, columns / 2, columns / 2),
    };
    [
        columns * depth,
        map_bias,
        residual(shape.output.padded() * depth),
        shape.output.padded(),
        vectors,
        edges * shape.sizes.attributes,
        backward(shape.input.padded() * columns),
        backward(residual(shape.input.padded() * shape.output.padded())),
    ]
}

impl PackedAttention {
    /// Buffers for the weights of `attention`, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory) when the device has no room.
    pub fn new(scope: &Scope, attention: &GraphAttention, passes: Passes) -> Result<Self> {
        let zeros = |len| Buffer::zeros(scope, len);
        let layer = |shape: PanelShape| {
            let [maps, map_bias, residual, bias, vectors, edges, maps_transposed, residual_transposed] =
                weights_len(shape, attention.config().residual, passes);
            Ok(AttentionLayerWeights {
                maps: zeros(maps)?,
                map_bias: zeros(map_bias)?,
                residual: zeros(residual)?,
                bias: zeros(bias)?,
                vectors: zeros(vectors)?,
                edges: zeros(edges)?,
                maps_transposed: zeros(maps_transposed)?,
                residual_transposed: zeros(residual_transposed)?,
            })
        };
        Ok(PackedAttention { layers: shapes(attention).into_iter().map(layer).collect::<Result<_>>()? })
    }

    /// Copies the weights as they are now.
    pub fn pack(&mut self, attention: &GraphAttention, parameters: &TensorSet) {
        for ((weights, shape), layer) in self.layers.iter_mut().zip(shapes(attention)).zip(attention.layers()) {
            weights.pack(shape, layer, parameters);
        }
    }

    /// Numbers in each buffer, in the order in which they are taken.
    pub fn lens(attention: &GraphAttention, passes: Passes) -> Vec<usize> {
        let has_residual = attention.config().residual;
        shapes(attention).into_iter().flat_map(|shape| weights_len(shape, has_residual, passes)).collect()
    }
}

impl AttentionLayerWeights {
    fn pack(&mut self, shape: PanelShape, layer: &AttentionLayer, parameters: &TensorSet) {
        let width = shape.projected.padded();
        pack_row(shape.output, parameters.slot(layer.bias), self.bias.as_mut_slice());
        match layer.scoring {
            Scoring::Gat { weight, source, target, .. } => {
                self.pack_map(shape, 0, parameters.slot(weight));
                let (sources, targets) = self.vectors.as_mut_slice().split_at_mut(width);
                pack_row(shape.projected, parameters.slot(source), sources);
                pack_row(shape.projected, parameters.slot(target), targets);
            }
            Scoring::GatV2 { from, to, attention } => {
                for (map, [weight, bias]) in [from, to].into_iter().enumerate() {
                    self.pack_map(shape, map, parameters.slot(weight));
                    let to = &mut self.map_bias.as_mut_slice()[map * width..][..width];
                    pack_row(shape.projected, parameters.slot(bias), to);
                }
                pack_row(shape.projected, parameters.slot(attention), self.vectors.as_mut_slice());
            }
        }
        if let Some(slot) = layer.residual {
            let weight = parameters.slot(slot);
            shape.residual().pack(weight, self.residual.as_mut_slice());
            if !self.residual_transposed.is_empty() {
                shape.residual().transpose(weight, 0, shape.output.padded(), self.residual_transposed.as_mut_slice());
            }
        }
        self.pack_edges(shape, layer, parameters);
    }

    fn pack_map(&mut self, shape: PanelShape, map: usize, weight: &[f32]) {
        let len = shape.projected.padded() * shape.input.depth();
        shape.map().pack(weight, &mut self.maps.as_mut_slice()[map * len..][..len]);
        if !self.maps_transposed.is_empty() {
            shape.map().transpose(
                weight,
                map * shape.projected.padded(),
                shape.map_columns(),
                self.maps_transposed.as_mut_slice(),
            );
        }
    }

    fn pack_edges(&mut self, shape: PanelShape, layer: &AttentionLayer, parameters: &TensorSet) {
        let Some(slot) = layer.edge_weight else { return };
        let (weight, width, to) = (parameters.slot(slot), shape.sizes.attributes, self.edges.as_mut_slice());
        match layer.scoring {
            Scoring::Gat { edge_attention, .. } => {
                let vector = edge_attention.map_or(&[][..], |slot| parameters.slot(slot));
                let (heads, units) = (shape.heads, shape.sizes.units);
                for head in 0..heads.count {
                    for a in 0..width {
                        let columns = head * units..(head + 1) * units;
                        let sum: f32 = columns.map(|c| vector[c] * weight[c * width + a]).sum();
                        to[(head / heads.group * width + a) * heads.group + head % heads.group] = sum;
                    }
                }
            }
            Scoring::GatV2 { .. } => {
                for (a, to) in to.chunks_exact_mut(shape.projected.padded()).enumerate() {
                    for run in shape.projected.runs() {
                        let from = weight[run.first * width + a..].iter().step_by(width);
                        let to = &mut to[run.panel * crate::kernel::PANEL..][..run.len];
                        to.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
                    }
                }
            }
        }
    }
}
