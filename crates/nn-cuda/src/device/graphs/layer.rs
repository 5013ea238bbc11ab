//! One layer of graph attention on a device.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::Model;
use megabatch_nn::model::graph::{AttentionLayer, GraphActivation, Joined};

use super::shared::Shared;
use super::slots::Slots;
use crate::ops::{
    Arithmetic, Attended, AttentionSizes, DroppedNodes, GraphLists, MaskNumbers, NodeDotInputs, Output, OutputStart,
    ReceiverRows, Scored, Scratch, TensorSlice, activation_gradients, add_column_sums, coefficients,
    drop_node_gradients, drop_nodes, ensure_capacity, gather_heads, node_dot_gradients, node_dots, receiver_gradients,
    score_gradients, src_gradients, value_gradients,
};

/// The batch that a layer is computed for.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchInputs<'a> {
    pub(super) parameters: &'a Buffer<f32>,
    pub(super) lists: &'a GraphLists,
    /// Dropout masks of the inputs and of the coefficients of each layer, `[layers, 2]`; `None`
    /// without dropout.
    pub(super) masks: Option<&'a Buffer<MaskNumbers>>,
}

/// Sizes of a batch's graphs that memory is taken for.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphSizes {
    /// N.
    pub(super) nodes: usize,
    /// P.
    pub(super) places: usize,
}

/// Shape of a layer.
#[derive(Debug)]
pub(super) struct LayerShape {
    pub(super) sizes: AttentionSizes,
    /// F.
    pub(super) input: usize,
    slots: Slots,
    /// Its number among the layers.
    l: usize,
    /// True if its input is dropped, and its coefficients.
    drops: [bool; 2],
    /// The function behind it; none behind the last layer.
    activation: Option<GraphActivation>,
}

/// A layer, and what it keeps of its forward pass.
#[derive(Debug)]
pub(super) struct GraphLayer {
    pub(super) shape: LayerShape,
    dropped: Buffer<f32>, // [N, F], its input under dropout
    mapped: Mapped,
    coefficients: Buffer<f32>, // [P, H]
    pub(super) y: Buffer<f32>, // [N, D]
}

/// Outputs of a layer's maps, which edges are scored from.
#[derive(Debug)]
struct Mapped {
    values: Buffer<f32>,       // [N, H · C]
    src: Buffer<f32>,          // [N, H] of GAT; GATv2 has the values
    dst: Buffer<f32>,          // [N, H · U]
    edge_vectors: Buffer<f32>, // [H, A] of GAT
}

impl Mapped {
    fn scored<'a>(&'a self, slots: &Slots, parameters: &'a Buffer<f32>) -> Scored<'a> {
        let (dst, part) = (&self.dst, |start| TensorSlice { buffer: parameters, start });
        match *slots {
            Slots::Gat { ref common, .. } => {
                let edge_weight = common.edge_weight.map(|_| TensorSlice::from(&self.edge_vectors));
                Scored { src: &self.src, dst, vector: None, edge_weight }
            }
            Slots::GatV2 { attention, ref common, .. } => {
                let edge_weight = common.edge_weight.map(part);
                Scored { src: &self.values, dst, vector: Some(part(attention)), edge_weight }
            }
        }
    }
}

impl LayerShape {
    /// Shapes of the layers of a model's attention, if it has one.
    pub(super) fn all(model: &Model, arithmetic: Arithmetic) -> Vec<Self> {
        let Some(attention) = model.decoder().attention.as_ref() else { return Vec::new() };
        let (config, layers) = (attention.config(), attention.layers());
        let shape = |(l, layer): (usize, &AttentionLayer)| {
            let slots = Slots::new(model, layer, arithmetic);
            let sizes = AttentionSizes {
                nodes: 0,
                heads: layer.sizes.heads as u32,
                units: layer.sizes.units as u32,
                score_units: if slots.is_joint() { layer.sizes.units as u32 } else { 1 },
                attributes: layer.sizes.attributes as u32,
                averaged: u32::from(layer.sizes.joined == Joined::Averaged),
                slope: config.negative_slope as f32,
            };
            let drops = [config.dropout > 0.0, config.attention_dropout > 0.0];
            let activation = (l + 1 < layers.len()).then_some(config.activation);
            LayerShape { sizes, input: layer.sizes.input, slots, l, drops, activation }
        };
        layers.iter().enumerate().map(shape).collect()
    }

    pub(super) fn is_gat(&self) -> bool {
        !self.slots.is_joint()
    }

    /// Scratch length of a layer over up to `nodes` nodes.
    pub(super) fn partial_sums_len(&self, nodes: usize) -> usize {
        self.slots.partial_sums_len(self.sizes, nodes)
    }

    /// Dropout of its input.
    fn dropped_nodes<'a>(&self, inputs: BatchInputs<'a>) -> Option<DroppedNodes<'a>> {
        let masks = inputs.masks.filter(|_| self.drops[0])?;
        Some(DroppedNodes { mask: (masks, 2 * self.l), lists: inputs.lists, width: self.input })
    }

    fn attended<'a>(&self, inputs: BatchInputs<'a>) -> Attended<'a> {
        let mask = inputs.masks.filter(|_| self.drops[1]).map(|masks| (masks, 2 * self.l + 1));
        Attended { sizes: self.sizes, lists: inputs.lists, mask }
    }
}

impl GraphLayer {
    /// A layer whose memory on `scope` is taken when batches come.
    pub(super) fn new(scope: &Scope, shape: LayerShape) -> Result<Self> {
        let none = || Buffer::zeros(scope, 0);
        Ok(GraphLayer {
            shape,
            dropped: none()?,
            mapped: Mapped { values: none()?, src: none()?, dst: none()?, edge_vectors: none()? },
            coefficients: none()?,
            y: none()?,
        })
    }

    /// Grows the buffers to a batch of graphs of these sizes. Dropout needs none in prediction.
    pub(super) fn prepare(&mut self, GraphSizes { nodes, places }: GraphSizes, learns: bool) -> Result<()> {
        let GraphLayer { shape, dropped, mapped: Mapped { values, src, dst, edge_vectors }, coefficients, y } = self;
        shape.sizes.nodes = nodes as u32;
        let (sizes, heads, is_gat) = (shape.sizes, shape.sizes.heads as usize, usize::from(shape.is_gat()));
        if learns && shape.drops[0] {
            ensure_capacity(dropped, nodes * shape.input)?;
        }
        ensure_capacity(values, nodes * sizes.projected())?;
        ensure_capacity(src, is_gat * nodes * heads)?;
        ensure_capacity(dst, nodes * sizes.scored())?;
        ensure_capacity(edge_vectors, is_gat * heads * sizes.attributes as usize)?;
        ensure_capacity(coefficients, places * heads)?;
        ensure_capacity(y, nodes * sizes.width())
    }

    /// From what it reads, `x` `[N, F]`, to y.
    pub(super) fn forward(&mut self, inputs: BatchInputs<'_>, x: &Buffer<f32>, scratch: &mut Scratch) -> Result<()> {
        let (nodes, attended, dropped) =
            (self.shape.sizes.nodes as usize, self.shape.attended(inputs), self.shape.dropped_nodes(inputs));
        if let Some(dropped) = dropped {
            drop_nodes(dropped, x, &mut self.dropped)?;
        }
        let x = if dropped.is_some() { &self.dropped } else { x };
        let (parameters, Mapped { values, src, dst, edge_vectors }) = (inputs.parameters, &mut self.mapped);
        match &self.shape.slots {
            Slots::Gat { map, vectors, edge_attention, common } => {
                map.forward(parameters, x, nodes, values, Output::Overwrite, scratch)?;
                let vectors = vectors.map(|start| TensorSlice { buffer: parameters, start });
                node_dots(attended, values, vectors, src, dst)?;
                if let (Some(vector), Some(weight)) = (*edge_attention, common.edge_weight) {
                    common.edge_vectors(parameters, vector, weight, self.shape.sizes, edge_vectors, scratch)?;
                }
            }
            Slots::GatV2 { maps: [from, to], .. } => {
                from.forward(parameters, x, nodes, values, Output::Overwrite, scratch)?;
                to.forward(parameters, x, nodes, dst, Output::Overwrite, scratch)?;
            }
        }
        let common = self.shape.slots.common();
        let start = match &common.residual {
            Some(residual) => {
                residual.forward(parameters, x, nodes, &mut self.y, Output::Overwrite, scratch)?;
                OutputStart::Present
            }
            None => OutputStart::Bias(TensorSlice { buffer: parameters, start: common.bias }),
        };
        coefficients(attended, self.mapped.scored(&self.shape.slots, parameters), &mut self.coefficients)?;
        gather_heads(attended, &self.coefficients, &self.mapped.values, start, self.shape.activation, &mut self.y)
    }

    /// From `shared.d_y`, the gradient of y, to `shared.d_x`, that of what it read, if it is
    /// `wanted`; adds those of the parameters.
    pub(super) fn backward(
        &self,
        inputs: BatchInputs<'_>,
        x: &Buffer<f32>,
        wanted: bool,
        shared: &mut Shared,
        scratch: &mut Scratch,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let (nodes, attended, dropped) =
            (self.shape.sizes.nodes as usize, self.shape.attended(inputs), self.shape.dropped_nodes(inputs));
        let x = if dropped.is_some() { &self.dropped } else { x };
        if let Some(activation) = self.shape.activation {
            activation_gradients(activation, &self.y, nodes * self.shape.sizes.width(), &mut shared.d_y)?;
        }
        let common = self.shape.slots.common();
        match &common.residual {
            Some(residual) => residual.add_gradients(&shared.d_y, x, nodes, gradients, scratch)?,
            None => {
                let width = self.shape.sizes.width();
                add_column_sums((&shared.d_y).into(), nodes, width, &mut *gradients, common.bias, scratch)?;
            }
        }
        self.scores_backward(attended, inputs.parameters, shared, scratch, gradients)?;
        let d_maps = [&shared.d_values, &shared.d_dst];
        let maps = || self.shape.slots.maps().iter().zip(d_maps);
        maps().try_for_each(|(map, d)| map.add_gradients(d, x, nodes, &mut *gradients, scratch))?;
        if !wanted {
            return Ok(());
        }
        let residual = common.residual.iter().map(|residual| (residual, &shared.d_y));
        for (k, (map, d)) in maps().chain(residual).enumerate() {
            let output = if k == 0 { Output::Overwrite } else { Output::Add };
            map.backward(inputs.parameters, d, nodes, &mut shared.d_x, output, scratch)?;
        }
        dropped.map_or(Ok(()), |dropped| drop_node_gradients(dropped, &mut shared.d_x))
    }

    /// From the gradient of y to those of what the maps gave, `shared.d_values` and of GATv2
    /// `shared.d_dst`; adds those of what scores are made with.
    fn scores_backward(
        &self,
        attended: Attended<'_>,
        parameters: &Buffer<f32>,
        shared: &mut Shared,
        scratch: &mut Scratch,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let (sizes, scored) = (self.shape.sizes, self.mapped.scored(&self.shape.slots, parameters));
        let (nodes, width, attributes) = (sizes.nodes as usize, sizes.scored(), sizes.attributes as usize);
        let Shared { d_y, d_values, d_dst, d_src, d_scores, rows: [first, second], edge_rows, .. } = shared;
        score_gradients(attended, &self.coefficients, &self.mapped.values, d_y, d_scores)?;
        value_gradients(attended, &self.coefficients, d_y, d_values)?;
        let mut rows = ReceiverRows { dst: d_dst, vector: first, edges: edge_rows };
        receiver_gradients(attended, scored, d_scores, &mut rows)?;
        match &self.shape.slots {
            Slots::GatV2 { attention, common, .. } => {
                src_gradients(attended, scored, d_scores, Output::Add, d_values)?;
                add_column_sums((&*first).into(), nodes, width, &mut *gradients, *attention, scratch)?;
                let Some(weight) = common.edge_weight else { return Ok(()) };
                add_column_sums((&*edge_rows).into(), nodes, width * attributes, gradients, weight, scratch)
            }
            Slots::Gat { vectors, edge_attention, common, .. } => {
                src_gradients(attended, scored, d_scores, Output::Overwrite, d_src)?;
                let parts = vectors.map(|start| TensorSlice { buffer: parameters, start });
                let dots = NodeDotInputs { values: &self.mapped.values, vectors: parts, d: [d_src, d_dst] };
                node_dot_gradients(attended, dots, d_values, &mut *first, &mut *second)?;
                for (rows, start) in [first, second].into_iter().zip(*vectors) {
                    add_column_sums((&*rows).into(), nodes, sizes.projected(), &mut *gradients, start, scratch)?;
                }
                let (Some(vector), Some(weight)) = (*edge_attention, common.edge_weight) else { return Ok(()) };
                let d = &mut shared.d_edge_vectors;
                d.set_zero()?;
                add_column_sums((&*edge_rows).into(), nodes, width * attributes, &mut *d, 0, scratch)?;
                common.edge_vectors_backward(parameters, vector, weight, sizes, d, gradients, scratch)
            }
        }
    }
}
