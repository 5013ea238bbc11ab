//! The memory of graph attention, by shape.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::places;
use megabatch_nn::model::graph::{AttentionKind, GraphAttention};

use super::columns::panels_len;
use super::shape::{PanelShape, shapes};
use crate::graph_attention::Passes;
use crate::kernel::PANEL;
use crate::kernel::attention::EdgeLists;

/// Largest graph that there is memory for.
#[derive(Clone, Copy, Debug)]
pub(super) struct GraphCapacity {
    pub(super) nodes: usize,
    pub(super) edges: usize,
}

impl GraphCapacity {
    /// P.
    fn places(self) -> usize {
        places(self.nodes, self.edges)
    }
}

/// The memory with which one thread takes one graph after another through the layers.
#[derive(Debug)]
pub(super) struct AttentionWorkspace {
    pub(super) capacity: GraphCapacity,
    pub(super) shared: Shared,
    pub(super) layers: Vec<AttentionLayerMemory>,
    pub(super) scratch: AttentionScratch,
}

/// Buffers that belong to no layer.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) lists: EdgeLists,
    /// The attributes of edges and loops by place.
    pub(super) attributes: Buffer<f32>, // [P, A]
    /// Input of the first layer.
    pub(super) x: Buffer<f32>, // [input panels][N][16]
    pub(super) output: Buffer<f32>, // [N, D]
}

/// Saved forward pass of one layer.
#[derive(Debug)]
pub(super) struct AttentionLayerMemory {
    pub(super) maps: Buffer<f32>, // [map panels][N][16]
    /// For GAT.
    pub(super) source: Buffer<f32>, // [groups][N][group]
    pub(super) target: Buffer<f32>, // [groups][N][group]
    /// Before dropout.
    pub(super) coefficients: Buffer<f32>, // [groups][P][group]
    /// After the function between layers.
    pub(super) y: Buffer<f32>, // [output panels][N][16]
}

/// Scratch buffers, used by one layer after another.
#[derive(Debug)]
pub(super) struct AttentionScratch {
    /// Input of a layer, under dropout.
    pub(super) dropped: Buffer<f32>, // [input panels][N][16]
    /// Factors of the coefficients under dropout or as a share of a mean, and the products.
    pub(super) factors: Buffer<f32>, // [groups][P][group]
    pub(super) kept: Buffer<f32>, // [groups][P][group]
    // From here on for the backward pass. The first two change places from layer to layer.
    pub(super) d_y: Buffer<f32>,       // [panels][N][16]
    pub(super) d_x: Buffer<f32>,       // [panels][N][16]
    pub(super) d_maps: Buffer<f32>,    // [map panels][N][16]
    pub(super) d_scores: Buffer<f32>,  // [groups][P][group]
    pub(super) d_source: Buffer<f32>,  // [groups][N][group]
    pub(super) d_target: Buffer<f32>,  // [groups][N][group]
    pub(super) by_column: Buffer<f32>, // [P][group]
    /// Sums of a map's weights, and of what else a layer has.
    pub(super) d_weight: Buffer<f32>, // [input panels][columns][16]
    pub(super) d_vectors: Buffer<f32>, // [2][head panels][16]
    pub(super) d_edges: Buffer<f32>,   // [A][head panels][16], [groups][A][group]
    pub(super) d_row: Buffer<f32>,     // [panels][16]
}

/// Numbers of all edges and heads, up to a whole row of a panel.
fn numbers(shape: PanelShape, capacity: GraphCapacity) -> usize {
    (capacity.places() * shape.heads.padded()).next_multiple_of(PANEL)
}

/// Numbers in each buffer of a layer, in the order of the fields.
fn layer_len(shape: PanelShape, capacity: GraphCapacity) -> [usize; 5] {
    let nodes = capacity.nodes;
    let scalars = if shape.kind == AttentionKind::Gat { nodes * shape.heads.padded() } else { 0 };
    let maps = panels_len(nodes, shape.map_panels());
    [maps, scalars, scalars, numbers(shape, capacity), panels_len(nodes, shape.output.panels())]
}

/// Numbers in each buffer of the scratch for one layer, in the order of the fields.
fn scratch_len_of(
    shape: PanelShape,
    config: &megabatch_nn::model::graph::GraphConfig,
    capacity: GraphCapacity,
    passes: Passes,
) -> [usize; 14] {
    let nodes = capacity.nodes;
    let dropped = if config.dropout > 0.0 { panels_len(nodes, shape.input.panels()) } else { 0 };
    let scaled = config.attention_dropout > 0.0 || shape.share() < 1.0;
    let factors = if scaled { numbers(shape, capacity) } else { 0 };
    let mut len = [0; 14];
    (len[0], len[1], len[2]) = (dropped, factors, factors);
    if passes == Passes::ForwardAndBackward {
        let panels = shape.input.panels().max(shape.output.panels());
        let scalars = if shape.kind == AttentionKind::Gat { nodes * shape.heads.padded() } else { 0 };
        let edges = shape.projected.padded().max(shape.heads.padded());
        let columns = shape.map_columns().max(shape.output.padded());
        let backward = [
            panels_len(nodes, panels),
            panels_len(nodes, panels),
            panels_len(nodes, shape.map_panels()),
            numbers(shape, capacity),
            scalars,
            scalars,
            capacity.places() * shape.heads.group,
            shape.input.padded() * columns,
            2 * shape.projected.padded(),
            edges * shape.sizes.attributes,
            columns,
        ];
        len[3..].copy_from_slice(&backward);
    }
    len
}

/// Numbers in each buffer of the scratch for all layers.
fn scratch_len(attention: &GraphAttention, capacity: GraphCapacity, passes: Passes) -> [usize; 14] {
    let each = shapes(attention).into_iter().map(|shape| scratch_len_of(shape, attention.config(), capacity, passes));
    each.fold([0; 14], |most, len| std::array::from_fn(|i| most[i].max(len[i])))
}

/// Numbers in what belongs to no layer, in the order of the fields.
fn shared_len(attention: &GraphAttention, capacity: GraphCapacity) -> [usize; 3] {
    let shapes = shapes(attention);
    let (first, last) = (shapes[0], shapes[shapes.len() - 1]);
    let attributes = capacity.places() * first.sizes.attributes;
    [attributes, panels_len(capacity.nodes, first.input.panels()), capacity.nodes * last.output.width()]
}

/// Numbers of four bytes in each buffer, in the order in which [`AttentionWorkspace::new`] takes
/// them.
pub(super) fn memory_lens(attention: &GraphAttention, capacity: GraphCapacity, passes: Passes) -> Vec<usize> {
    let lists = EdgeLists::lens(capacity.nodes, capacity.edges);
    let layers = shapes(attention).into_iter().flat_map(|shape| layer_len(shape, capacity));
    let shared = lists.into_iter().chain(shared_len(attention, capacity));
    shared.chain(layers).chain(scratch_len(attention, capacity, passes)).collect()
}

impl AttentionWorkspace {
    pub(super) fn new(
        scope: &Scope,
        attention: &GraphAttention,
        capacity: GraphCapacity,
        passes: Passes,
    ) -> Result<Self> {
        let zeros = |len| Buffer::zeros(scope, len);
        let layer = |shape| {
            let [maps, source, target, coefficients, y] = layer_len(shape, capacity);
            Ok(AttentionLayerMemory {
                maps: zeros(maps)?,
                source: zeros(source)?,
                target: zeros(target)?,
                coefficients: zeros(coefficients)?,
                y: zeros(y)?,
            })
        };
        let [attributes, x, output] = shared_len(attention, capacity);
        Ok(AttentionWorkspace {
            capacity,
            shared: Shared {
                lists: EdgeLists::new(scope, capacity.nodes, capacity.edges)?,
                attributes: zeros(attributes)?,
                x: zeros(x)?,
                output: zeros(output)?,
            },
            layers: shapes(attention).into_iter().map(layer).collect::<Result<_>>()?,
            scratch: AttentionScratch::new(scope, scratch_len(attention, capacity, passes))?,
        })
    }
}

impl AttentionScratch {
    fn new(scope: &Scope, len: [usize; 14]) -> Result<Self> {
        let zeros = |len| Buffer::zeros(scope, len);
        let [dropped, factors, kept, d_y, d_x, d_maps, d_scores, d_source, d_target, by_column, ..] = len;
        let [.., d_weight, d_vectors, d_edges, d_row] = len;
        Ok(AttentionScratch {
            dropped: zeros(dropped)?,
            factors: zeros(factors)?,
            kept: zeros(kept)?,
            d_y: zeros(d_y)?,
            d_x: zeros(d_x)?,
            d_maps: zeros(d_maps)?,
            d_scores: zeros(d_scores)?,
            d_source: zeros(d_source)?,
            d_target: zeros(d_target)?,
            by_column: zeros(by_column)?,
            d_weight: zeros(d_weight)?,
            d_vectors: zeros(d_vectors)?,
            d_edges: zeros(d_edges)?,
            d_row: zeros(d_row)?,
        })
    }
}
