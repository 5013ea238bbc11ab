//! Buffers that layers of graph attention need backward, one after another.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;

use super::layer::{GraphSizes, LayerShape};
use crate::ops::ensure_capacity;

#[derive(Debug)]
pub(super) struct Shared {
    /// The gradients of what a layer gave and of what it read, `[N, D]` and `[N, F]`. They change
    /// places from layer to layer.
    pub(super) d_y: Buffer<f32>,
    pub(super) d_x: Buffer<f32>,
    pub(super) d_values: Buffer<f32>, // [N, H · C]
    pub(super) d_dst: Buffer<f32>,    // [N, H · U]
    pub(super) d_src: Buffer<f32>,    // [N, H] of GAT
    pub(super) d_scores: Buffer<f32>, // [P, H]
    /// Contribution of each node to the gradients of vectors.
    pub(super) rows: [Buffer<f32>; 2], // [N, H · C], of GATv2 one
    pub(super) edge_rows: Buffer<f32>, // [N, H · U, A]
    pub(super) d_edge_vectors: Buffer<f32>, // [H, A] of GAT
}

impl Shared {
    pub(super) fn empty(scope: &Scope) -> Result<Self> {
        let none = || Buffer::zeros(scope, 0);
        Ok(Shared {
            d_y: none()?,
            d_x: none()?,
            d_values: none()?,
            d_dst: none()?,
            d_src: none()?,
            d_scores: none()?,
            rows: [none()?, none()?],
            edge_rows: none()?,
            d_edge_vectors: none()?,
        })
    }

    /// Takes memory for layers over graphs of these sizes, where there is not as much.
    pub(super) fn ensure_capacity<'a>(
        &mut self,
        layers: impl Iterator<Item = &'a LayerShape>,
        GraphSizes { nodes, places }: GraphSizes,
    ) -> Result<()> {
        let layer_lens = |layer: &LayerShape| {
            let (sizes, heads, attributes) = (layer.sizes, layer.sizes.heads as usize, layer.sizes.attributes as usize);
            let is_gat = usize::from(layer.is_gat());
            // Which of the two is which depends on how many layers there are.
            let widest = nodes * layer.input.max(sizes.width());
            let [values, scored] = [sizes.projected(), sizes.scored()].map(|width| nodes * width);
            let (src, edge_vectors) = (is_gat * nodes * heads, is_gat * heads * attributes);
            let rows = [values, is_gat * values];
            [widest, widest, values, scored, src, places * heads, rows[0], rows[1], scored * attributes, edge_vectors]
        };
        let lens = layers.map(layer_lens).fold([0; 10], |most, len| std::array::from_fn(|k| most[k].max(len[k])));
        let Shared { d_y, d_x, d_values, d_dst, d_src, d_scores, rows, edge_rows, d_edge_vectors } = self;
        let [first, second] = rows;
        let buffers = [d_y, d_x, d_values, d_dst, d_src, d_scores, first, second, edge_rows, d_edge_vectors];
        buffers.into_iter().zip(lens).try_for_each(|(buffer, len)| ensure_capacity(buffer, len))
    }

    /// Goes on to the layer below: what was read is what that one gave.
    pub(super) fn go_below(&mut self) {
        std::mem::swap(&mut self.d_y, &mut self.d_x);
    }
}
