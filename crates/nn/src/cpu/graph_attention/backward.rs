#![forbid(unsafe_code)]

//! One layer backward.

use super::columns::{Columns, unpack_row_add};
use super::forward::{Context, draw, dropped, scale};
use super::memory::{AttentionLayerMemory, AttentionScratch};
use super::softmax;
use crate::cpu::kernel::attention::{self as gathers, JointGiven};
use crate::cpu::kernel::{self, PANEL, PanelProduct, Start, View, ViewMut};
use crate::model::graph::{AttentionKind, AttentionLayer, GraphActivation, Scoring};
use crate::model::tensor::{Slot, TensorSet};

/// True if a layer's input has a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputGradient {
    Wanted,
    Unwanted,
}

/// Parameters of a layer, and their gradients.
pub(super) struct LayerParameters<'a> {
    pub(super) layer: &'a AttentionLayer,
    pub(super) values: &'a TensorSet,
    pub(super) gradients: &'a mut TensorSet,
}

/// `scratch.d_y`, the gradient of what the layer gave to the next, becomes `scratch.d_x`, that of
/// `input`, which it read.
pub(super) fn backward(
    context: &Context<'_>,
    input: &[f32],
    input_gradient: InputGradient,
    memory: &AttentionLayerMemory,
    scratch: &mut AttentionScratch,
    mut parameters: LayerParameters<'_>,
) {
    let (shape, at) = (context.shape, context.place());
    if context.is_inner {
        let len = shape.output.panels() * at.stride;
        let d_y = &mut scratch.d_y.as_mut_slice()[..len];
        multiply_by_slopes(context.config.activation, &memory.y.as_slice()[..len], d_y);
    }
    let len = context.numbers().1;
    let coefficients = &memory.coefficients.as_slice()[..len];
    scale(context, coefficients, scratch.factors.as_mut_slice(), scratch.kept.as_mut_slice());
    score_gradients(context, memory, scratch);
    match shape.kind {
        AttentionKind::Gat => linear_backward(context, memory, scratch, &mut parameters),
        AttentionKind::GatV2 => joint_backward(context, memory, scratch, &mut parameters),
    }
    weight_gradients(context, input, scratch, &mut parameters);
    if input_gradient == InputGradient::Wanted {
        go_below(context, scratch);
    }
}

/// Derivative of a layer's function where it gave `y`.
fn multiply_by_slopes(activation: GraphActivation, y: &[f32], d_y: &mut [f32]) {
    let pairs = d_y.iter_mut().zip(y);
    match activation {
        GraphActivation::Elu => pairs.for_each(|(d, &y)| *d *= if y > 0.0 { 1.0 } else { y + 1.0 }),
        GraphActivation::Relu => pairs.for_each(|(d, &y)| *d = if y > 0.0 { *d } else { 0.0 }),
    }
}

/// The gradients of the scores of all edges, in `scratch.d_scores`.
fn score_gradients(context: &Context<'_>, memory: &AttentionLayerMemory, scratch: &mut AttentionScratch) {
    let Context { isa, shape, lists, .. } = *context;
    let (heads, edges, at) = (shape.heads, context.edges(), context.place());
    let d_scores = scratch.d_scores.as_mut_slice();
    for head in 0..heads.count {
        let (first, to_panel) = shape.panels_of(head);
        let to = heads.of_mut(d_scores, edges, head);
        gathers::dots(
            isa,
            lists.rows(),
            shape.projected.block_panels(),
            View(scratch.d_y.as_slice(), at.panel(to_panel)),
            View(memory.maps.as_slice(), at.panel(first)),
            to,
        );
    }
    for group in 0..heads.groups() {
        let of_group = group * edges * heads.group..(group + 1) * edges * heads.group;
        let factors = context.is_scaled().then(|| &scratch.factors.as_slice()[of_group.clone()]);
        let coefficients = &memory.coefficients.as_slice()[of_group.clone()];
        softmax::softmax_backward(heads.group, lists.rows(), coefficients, factors, &mut d_scores[of_group]);
    }
}

/// GAT, from the gradients of scores to those of the map of the nodes, of the attention vectors and
/// of what edges give.
fn linear_backward(
    context: &Context<'_>,
    memory: &AttentionLayerMemory,
    scratch: &mut AttentionScratch,
    parameters: &mut LayerParameters<'_>,
) {
    let Context { isa, shape, lists, .. } = *context;
    let (heads, edges, nodes, at) = (shape.heads, context.edges(), context.nodes(), context.place());
    let (width, panels) = (shape.sizes.attributes, shape.projected.block_panels());
    let d_edges = &mut scratch.d_edges.as_mut_slice()[..heads.padded() * width];
    d_edges.fill(0.0);
    let kept = context.kept(memory.coefficients.as_slice(), scratch.kept.as_slice());
    let (d_source, d_target) = (scratch.d_source.as_mut_slice(), scratch.d_target.as_mut_slice());
    for group in 0..heads.groups() {
        let of_edges = group * edges * heads.group..(group + 1) * edges * heads.group;
        let of_nodes = group * nodes * heads.group..(group + 1) * nodes * heads.group;
        let d = &mut scratch.d_scores.as_mut_slice()[of_edges];
        let linear = context.linear(memory.source.as_slice(), memory.target.as_slice(), group);
        softmax::scores_backward(heads.group, lists.rows(), linear, d, &mut d_target[of_nodes.clone()]);
        softmax::sums_by_column(heads.group, lists.columns(), lists.places(), d, &mut d_source[of_nodes]);
        if width > 0 {
            let sums = &mut d_edges[group * width * heads.group..][..width * heads.group];
            softmax::attributes_backward(heads.group, context.attributes, width, d, sums);
        }
    }
    let (vectors, d_vectors) = (context.weights.vectors.as_slice(), scratch.d_vectors.as_mut_slice());
    let d_vectors = &mut d_vectors[..vectors.len()];
    d_vectors.fill(0.0);
    scratch.d_maps.as_mut_slice()[..shape.map_panels() * at.stride].fill(0.0);
    for head in 0..heads.count {
        let (first, from) = shape.panels_of(head);
        let d_maps = &mut ViewMut(scratch.d_maps.as_mut_slice(), at.panel(first));
        let values = View(memory.maps.as_slice(), at.panel(first));
        for (which, d) in [&*d_source, &*d_target].into_iter().enumerate() {
            let of_head = (which * shape.projected.panels() + first) * PANEL;
            let of_head = of_head..of_head + panels * PANEL;
            gathers::spread(
                isa,
                nodes,
                heads.of(d, nodes, head),
                values,
                &vectors[of_head.clone()],
                &mut *d_maps,
                &mut d_vectors[of_head],
            );
        }
        if head % heads.group == 0 {
            let of_group = head / heads.group * edges * heads.group;
            let kept = &kept[of_group..of_group + edges * heads.group];
            softmax::reorder(heads.group, lists.places(), kept, scratch.by_column.as_mut_slice());
        }
        let numbers = heads.of(scratch.by_column.as_slice(), lists.columns().edges(), head % heads.group);
        let d_y = View(scratch.d_y.as_slice(), at.panel(from));
        gathers::gather(isa, lists.columns(), numbers, panels, d_y, d_maps);
    }
    let Scoring::Gat { source, target, edge_attention, .. } = parameters.layer.scoring else { return };
    for (slot, d) in [source, target].into_iter().zip(d_vectors.chunks_exact(shape.projected.padded())) {
        unpack_row_add(shape.projected, d, parameters.gradients.slot_mut(slot));
    }
    if let (Some(attention), Some(weight)) = (edge_attention, parameters.layer.edge_weight) {
        unpack_edges(context, attention, weight, d_edges, parameters);
    }
}

/// From the gradients of att_edge · W_e to those of both.
fn unpack_edges(
    context: &Context<'_>,
    attention: Slot,
    weight: Slot,
    d_edges: &[f32],
    parameters: &mut LayerParameters<'_>,
) {
    let (heads, units, width) = (context.shape.heads, context.shape.sizes.units, context.shape.sizes.attributes);
    let LayerParameters { values, gradients, .. } = parameters;
    let (vector, matrix) = (values.slot(attention), values.slot(weight));
    for c in 0..heads.count * units {
        let head = c / units;
        for a in 0..width {
            let d = d_edges[(head / heads.group * width + a) * heads.group + head % heads.group];
            gradients.slot_mut(attention)[c] += d * matrix[c * width + a];
            gradients.slot_mut(weight)[c * width + a] += d * vector[c];
        }
    }
}

/// GATv2, from the gradients of scores to those of both maps of the nodes, of the attention vector
/// and of the map of the edges.
fn joint_backward(
    context: &Context<'_>,
    memory: &AttentionLayerMemory,
    scratch: &mut AttentionScratch,
    parameters: &mut LayerParameters<'_>,
) {
    let Context { isa, shape, lists, .. } = *context;
    let (heads, edges, at) = (shape.heads, context.edges(), context.place());
    let (panels, padded) = (shape.projected.panels(), shape.projected.padded());
    let d_attention = &mut scratch.d_vectors.as_mut_slice()[..padded];
    let d_edges = &mut scratch.d_edges.as_mut_slice()[..padded * shape.sizes.attributes];
    d_attention.fill(0.0);
    d_edges.fill(0.0);
    let kept = context.kept(memory.coefficients.as_slice(), scratch.kept.as_slice());
    for head in 0..heads.count {
        let (first, from) = shape.panels_of(head);
        let joint = context.joint(memory.maps.as_slice(), head);
        let d_scores = heads.of(scratch.d_scores.as_slice(), edges, head);
        let d_to = &mut ViewMut(scratch.d_maps.as_mut_slice(), at.panel(panels + first));
        let d_edges = d_edges.get_mut(first * PANEL..).unwrap_or_default();
        gathers::joint_rows(isa, lists.rows(), d_scores, joint, d_to, &mut d_attention[first * PANEL..], d_edges);
        let given = JointGiven {
            walk: lists.columns(),
            places: lists.places(),
            coefficients: heads.of(kept, edges, head),
            d_scores,
            d_y: View(scratch.d_y.as_slice(), at.panel(from)),
        };
        let d_from = &mut ViewMut(scratch.d_maps.as_mut_slice(), at.panel(first));
        gathers::joint_columns(isa, given, joint, d_from);
    }
    let Scoring::GatV2 { attention, .. } = parameters.layer.scoring else { return };
    unpack_row_add(shape.projected, d_attention, parameters.gradients.slot_mut(attention));
    if let Some(weight) = parameters.layer.edge_weight {
        let (gradient, width) = (parameters.gradients.slot_mut(weight), shape.sizes.attributes);
        for (a, d) in d_edges.chunks_exact(padded).enumerate() {
            for run in shape.projected.runs() {
                let sums = gradient[run.first * width + a..].iter_mut().step_by(width);
                sums.zip(&d[run.panel * PANEL..][..run.len]).for_each(|(sum, term)| *sum += term);
            }
        }
    }
}

/// The gradients of weights and biases, from those of the maps and of the output.
fn weight_gradients(
    context: &Context<'_>,
    input: &[f32],
    scratch: &mut AttentionScratch,
    parameters: &mut LayerParameters<'_>,
) {
    let Context { shape, .. } = *context;
    let (nodes, at) = (context.nodes(), context.place());
    let x = View(dropped(context, input, scratch.dropped.as_mut_slice()), at);
    let (gradients, layer) = (&mut *parameters.gradients, parameters.layer);
    let d_weight = scratch.d_weight.as_mut_slice();
    let mut outer = |d: View<'_>, columns: usize| {
        let sums = &mut d_weight[..shape.input.padded() * columns];
        sums.fill(0.0);
        kernel::outer_by(context.products(), nodes, columns, shape.input.panels(), d, x, sums);
    };
    let d_row = scratch.d_row.as_mut_slice();
    let (d_y, d_maps) = (View(scratch.d_y.as_slice(), at), View(scratch.d_maps.as_slice(), at));
    add_rows(nodes, d_y, shape.output, d_row, gradients.slot_mut(layer.bias));
    let columns = shape.map_columns();
    outer(d_maps, columns);
    let (maps, biases) = match layer.scoring {
        Scoring::Gat { weight, .. } => ([Some(weight), None], [None; 2]),
        Scoring::GatV2 { from, to, .. } => ([Some(from[0]), Some(to[0])], [Some(from[1]), Some(to[1])]),
    };
    for (map, slot) in maps.into_iter().enumerate() {
        slot.into_iter().for_each(|slot| {
            shape.map().unpack_add(d_weight, map * shape.projected.padded(), columns, gradients.slot_mut(slot));
        });
    }
    for (map, slot) in biases.into_iter().enumerate() {
        let d_map = View(d_maps.0, at.panel(map * shape.projected.panels()));
        slot.into_iter().for_each(|slot| add_rows(nodes, d_map, shape.projected, d_row, gradients.slot_mut(slot)));
    }
    if let Some(slot) = layer.residual {
        let columns = shape.output.padded();
        let sums = &mut d_weight[..shape.input.padded() * columns];
        sums.fill(0.0);
        kernel::outer_by(context.products(), nodes, columns, shape.input.panels(), d_y, x, sums);
        shape.residual().unpack_add(sums, 0, columns, gradients.slot_mut(slot));
    }
}

/// Adds the sum of the rows of a matrix to `sums`, which are without its zeros.
fn add_rows(nodes: usize, matrix: View<'_>, columns: Columns, row: &mut [f32], sums: &mut [f32]) {
    let View(values, at) = matrix;
    let row = &mut row[..columns.padded()];
    row.fill(0.0);
    for (panel, row) in row.chunks_exact_mut(PANEL).enumerate() {
        for values in values[at.panel(panel).start..][..nodes * PANEL].chunks_exact(PANEL) {
            row.iter_mut().zip(values).for_each(|(sum, term)| *sum += term);
        }
    }
    unpack_row_add(columns, row, sums);
}

/// The gradient of what the layer read, before dropout.
fn go_below(context: &Context<'_>, scratch: &mut AttentionScratch) {
    let Context { shape, weights, .. } = *context;
    let (nodes, at) = (context.nodes(), context.place());
    let d_x = &mut ViewMut(scratch.d_x.as_mut_slice(), at);
    let panels = shape.input.panels();
    let (a, b) = (View(scratch.d_maps.as_slice(), at), weights.maps_turned.as_slice());
    let depth = shape.map_columns();
    kernel::product_by(context.products(), PanelProduct { rows: nodes, depth, panels, start: Start::Zero, a, b }, d_x);
    if !weights.residual_turned.is_empty() {
        let (a, b) = (View(scratch.d_y.as_slice(), at), weights.residual_turned.as_slice());
        let depth = shape.output.padded();
        kernel::product_by(
            context.products(),
            PanelProduct { rows: nodes, depth, panels, start: Start::Result, a, b },
            d_x,
        );
    }
    if let Some(mask) = context.masks.0 {
        let factors = scratch.dropped.as_mut_slice();
        draw(context, mask, shape.input, factors);
        let len = shape.input.panels() * at.stride;
        d_x.0[..len].iter_mut().zip(factors).for_each(|(d, factor)| *d *= *factor);
    }
}
