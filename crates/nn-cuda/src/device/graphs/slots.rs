//! Offsets of an attention layer's parameters among all, and the maps that they make.

use megabatch_gpu_core::Buffer;
use megabatch_nn::Result;
use megabatch_nn::model::Model;
use megabatch_nn::model::graph::{AttentionLayer, Scoring};

use crate::ops::{
    Affine, Arithmetic, AttentionSizes, Output, Scratch, TensorSlice, Transpose, column_sum_partials_len, multiply,
    product_partials_len,
};

#[derive(Debug)]
pub(super) enum Slots {
    Gat {
        map: Affine,
        /// att_src and att_dst, `[H · C]`.
        vectors: [usize; 2],
        /// att_edge, `[H · C]`.
        edge_attention: Option<usize>,
        common: Common,
    },
    GatV2 {
        /// Maps of nodes that give, and of those that receive.
        maps: [Affine; 2],
        attention: usize,
        common: Common,
    },
}

/// Slots of both kinds.
#[derive(Debug)]
pub(super) struct Common {
    /// `[D]`.
    pub(super) bias: usize,
    /// With that bias.
    pub(super) residual: Option<Affine>,
    /// W_e `[H · C, A]`.
    pub(super) edge_weight: Option<usize>,
    arithmetic: Arithmetic,
}

impl Slots {
    pub(super) fn new(model: &Model, layer: &AttentionLayer, arithmetic: Arithmetic) -> Self {
        let start = |slot| model.layout().range(slot).start;
        let map = |weight, bias| Affine::new(model, weight, bias, layer.sizes.input, arithmetic);
        let common = Common {
            bias: start(layer.bias),
            residual: layer.residual.map(|weight| map(weight, Some(layer.bias))),
            edge_weight: layer.edge_weight.map(start),
            arithmetic,
        };
        match layer.scoring {
            Scoring::Gat { weight, source, target, edge_attention } => Slots::Gat {
                map: map(weight, None),
                vectors: [source, target].map(start),
                edge_attention: edge_attention.map(start),
                common,
            },
            Scoring::GatV2 { from, to, attention } => Slots::GatV2 {
                maps: [from, to].map(|[weight, bias]| map(weight, Some(bias))),
                attention: start(attention),
                common,
            },
        }
    }

    /// True if edges are scored by as many numbers as nodes give: GATv2.
    pub(super) fn is_joint(&self) -> bool {
        matches!(self, Slots::GatV2 { .. })
    }

    pub(super) fn common(&self) -> &Common {
        let (Slots::Gat { common, .. } | Slots::GatV2 { common, .. }) = self;
        common
    }

    /// The maps of the nodes: what gives, and of GATv2 what receives.
    pub(super) fn maps(&self) -> &[Affine] {
        match self {
            Slots::Gat { map, .. } => std::slice::from_ref(map),
            Slots::GatV2 { maps, .. } => maps,
        }
    }

    /// Scratch length of a layer of these sizes over up to `nodes` nodes.
    pub(super) fn partial_sums_len(&self, sizes: AttentionSizes, nodes: usize) -> usize {
        let maps = self.maps().iter().chain(&self.common().residual).map(|map| map.partial_sums_len(nodes));
        let (units, attributes) = (sizes.units as usize, sizes.attributes as usize);
        let columns = sizes.projected().max(sizes.width()).max(sizes.scored() * attributes);
        let edge_vector_parts =
            product_partials_len([1, attributes, units]).max(product_partials_len([1, units, attributes]));
        maps.max().unwrap_or(0).max(column_sum_partials_len(nodes, columns)).max(edge_vector_parts)
    }
}

impl Common {
    /// GAT: att_edge · W_e of each head, `to` `[H, A]`, from where both begin.
    pub(super) fn edge_vectors(
        &self,
        parameters: &Buffer<f32>,
        vector: usize,
        weight: usize,
        sizes: AttentionSizes,
        to: &mut Buffer<f32>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (units, attributes) = (sizes.units as usize, sizes.attributes as usize);
        let part = |start| TensorSlice { buffer: parameters, start };
        for head in 0..sizes.heads as usize {
            let operands = [part(vector + head * units), part(weight + head * units * attributes)];
            let product = self.arithmetic.product(operands[0], operands[1], [1, attributes, units], Transpose::Nn);
            multiply(&product, Output::Overwrite, &mut *to, head * attributes, scratch)?;
        }
        Ok(())
    }

    /// From the gradients `d` `[H, A]` of these to those of att_edge and W_e, which are added.
    pub(super) fn edge_vectors_backward(
        &self,
        parameters: &Buffer<f32>,
        vector: usize,
        weight: usize,
        sizes: AttentionSizes,
        d: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (units, attributes) = (sizes.units as usize, sizes.attributes as usize);
        let part = |start| TensorSlice { buffer: parameters, start };
        for head in 0..sizes.heads as usize {
            let (vector, weight) = (vector + head * units, weight + head * units * attributes);
            let d = TensorSlice { buffer: d, start: head * attributes };
            let vector_gradient = self.arithmetic.product(d, part(weight), [1, units, attributes], Transpose::Nt);
            multiply(&vector_gradient, Output::Add, &mut *gradients, vector, scratch)?;
            let weight_gradient = self.arithmetic.product(part(vector), d, [units, attributes, 1], Transpose::Tn);
            multiply(&weight_gradient, Output::Add, &mut *gradients, weight, scratch)?;
        }
        Ok(())
    }
}
