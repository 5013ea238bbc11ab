//! One layer backward.

use megabatch_nn::model::graph::{AttentionKind, AttentionLayer, GraphActivation, Scoring};
use megabatch_nn::model::{Slot, TensorSet};

use super::columns::{Columns, unpack_row_add};
use super::forward::{Context, EdgeNumbers, draw, dropped, scale};
use super::memory::{AttentionLayerMemory, AttentionScratch};
use super::parts::{EdgePart, PanelPart, PanelSplit, edge_parts, panel_parts, split};
use super::softmax;
use crate::kernel::attention::{self as gathers, JointGiven};
use crate::kernel::{self, PANEL, PanelProduct, Start, View};
use crate::team::ThreadTeam;

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
    let shape = context.shape;
    if context.is_inner {
        let len = shape.output.panels() * context.panel_stride().stride;
        let d_y = &mut scratch.d_y.as_mut_slice()[..len];
        multiply_by_slopes(context, &memory.y.as_slice()[..len], d_y);
    }
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
fn multiply_by_slopes(context: &Context<'_>, y: &[f32], d_y: &mut [f32]) {
    let chunk = d_y.len().div_ceil(context.team.threads()).max(1);
    let parts = d_y.chunks_mut(chunk).zip(y.chunks(chunk)).collect();
    context.team.for_each(parts, |(d_y, y): (&mut [f32], &[f32])| {
        let pairs = d_y.iter_mut().zip(y);
        match context.config.activation {
            GraphActivation::Elu => pairs.for_each(|(d, &y)| *d *= if y > 0.0 { 1.0 } else { y + 1.0 }),
            GraphActivation::Relu => pairs.for_each(|(d, &y)| *d = if y > 0.0 { *d } else { 0.0 }),
        }
    });
}

/// The gradients of the scores of all edges, in `scratch.d_scores`; for GAT, those of the sums that
/// scores are functions of and, in `scratch.d_target`, their sums by the node that receives.
fn score_gradients(context: &Context<'_>, memory: &AttentionLayerMemory, scratch: &mut AttentionScratch) {
    let Context { shape, team, .. } = *context;
    let (heads, edges, nodes) = (shape.heads, context.edges(), context.nodes());
    let AttentionScratch { factors, kept, d_y, d_scores, d_target, .. } = scratch;
    for group in 0..heads.groups() {
        let group_range = heads.among(group, edges);
        let coefficients = &memory.coefficients.as_slice()[group_range.clone()];
        let d_scores = &mut d_scores.as_mut_slice()[group_range.clone()];
        let scaled = if context.is_scaled() { group_range } else { 0..0 };
        let (factors, kept) = (&mut factors.as_mut_slice()[scaled.clone()], &mut kept.as_mut_slice()[scaled]);
        let parts = EdgeNumbers::parts(context, d_scores, factors, kept);
        let d_target = match shape.kind {
            AttentionKind::Gat => &mut d_target.as_mut_slice()[heads.among(group, nodes)],
            AttentionKind::GatV2 => &mut [],
        };
        let node_len = |edges: &EdgeNumbers<'_>| match shape.kind {
            AttentionKind::Gat => heads.numbers(&edges.part.nodes).len(),
            AttentionKind::GatV2 => 0,
        };
        let lens: Vec<usize> = parts.iter().map(node_len).collect();
        let parts = parts.into_iter().zip(split(d_target, lens)).collect();
        team.for_each(parts, |(edges, d_target): (EdgeNumbers<'_>, &mut [f32])| {
            let EdgeNumbers { part, numbers: d, factors, kept } = edges;
            let coefficients = &coefficients[heads.numbers(&part.edges)];
            scale(context, group, &part.edges, coefficients, factors, kept);
            coefficient_gradients(context, memory, d_y.as_slice(), group, &part, d);
            let factors = context.is_scaled().then_some(&*factors);
            softmax::softmax_backward(heads.group, part.walk, coefficients, factors, d);
            if shape.kind == AttentionKind::Gat {
                let linear = context.linear(memory.source.as_slice(), memory.target.as_slice(), group, &part);
                softmax::scores_backward(heads.group, part.walk, linear, d, d_target);
            }
        });
    }
}

/// The gradients `d` of what a group's coefficients of some edges became.
fn coefficient_gradients(
    context: &Context<'_>,
    memory: &AttentionLayerMemory,
    d_y: &[f32],
    group: usize,
    part: &EdgePart<'_>,
    d: &mut [f32],
) {
    let (shape, at) = (context.shape, context.panel_stride());
    for head in shape.heads.group_heads(group) {
        let (first, to_panel) = shape.panels_of(head);
        let nodes = View(d_y, at.panel(to_panel).row(part.nodes.start));
        let ends = View(memory.maps.as_slice(), at.panel(first));
        let panels = shape.projected.block_panels();
        gathers::dots(context.isa, part.walk, panels, nodes, ends, shape.heads.numbers_of_mut(d, head));
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
    let shape = context.shape;
    let (heads, edges, width) = (shape.heads, context.edges(), shape.sizes.attributes);
    scratch.d_edges.as_mut_slice()[..heads.padded() * width].fill(0.0);
    scratch.d_vectors.as_mut_slice()[..2 * shape.projected.padded()].fill(0.0);
    for group in 0..heads.groups() {
        if width > 0 {
            let d = &scratch.d_scores.as_slice()[heads.among(group, edges)];
            let sums = &mut scratch.d_edges.as_mut_slice()[heads.among(group, width)];
            softmax::attributes_backward(heads.group, context.attributes, width, d, sums);
        }
        columns_of_group(context, memory, scratch, group);
        maps_of_group(context, memory, scratch, group);
    }
    let Scoring::Gat { source, target, edge_attention, .. } = parameters.layer.scoring else { return };
    let d_vectors = &scratch.d_vectors.as_slice()[..2 * shape.projected.padded()];
    for (slot, d) in [source, target].into_iter().zip(d_vectors.chunks_exact(shape.projected.padded())) {
        unpack_row_add(shape.projected, d, parameters.gradients.slot_mut(slot));
    }
    if let (Some(attention), Some(weight)) = (edge_attention, parameters.layer.edge_weight) {
        unpack_edges(context, attention, weight, &scratch.d_edges.as_slice()[..heads.padded() * width], parameters);
    }
}

/// Sums the gradients of one group's scores by the node that gives, in `scratch.d_source`, and puts
/// the coefficients in the order of these nodes, in `scratch.by_column`.
fn columns_of_group(
    context: &Context<'_>,
    memory: &AttentionLayerMemory,
    scratch: &mut AttentionScratch,
    group: usize,
) {
    let Context { shape, lists, team, .. } = *context;
    let (heads, edges, nodes) = (shape.heads, context.edges(), context.nodes());
    let AttentionScratch { kept, d_scores, d_source, by_column, .. } = scratch;
    let kept = &context.kept(memory.coefficients.as_slice(), kept.as_slice())[heads.among(group, edges)];
    let d_scores = &d_scores.as_slice()[heads.among(group, edges)];
    let parts = edge_parts(team, lists.columns());
    let node_lens: Vec<usize> = parts.iter().map(|part| heads.numbers(&part.nodes).len()).collect();
    let edge_lens: Vec<usize> = parts.iter().map(|part| heads.numbers(&part.edges).len()).collect();
    let d_source = split(&mut d_source.as_mut_slice()[heads.among(group, nodes)], node_lens);
    let by_column = split(by_column.as_mut_slice(), edge_lens);
    let parts = parts.into_iter().zip(d_source.into_iter().zip(by_column)).collect();
    team.for_each(parts, |(part, (d_source, by_column)): (EdgePart<'_>, (&mut [f32], &mut [f32]))| {
        let places = &lists.places()[part.edges.clone()];
        softmax::sums_by_column(heads.group, part.walk, places, d_scores, d_source);
        softmax::reorder(heads.group, places, kept, by_column);
    });
}

/// The gradients of the maps of one group's heads; adds those of the attention vectors.
fn maps_of_group(context: &Context<'_>, memory: &AttentionLayerMemory, scratch: &mut AttentionScratch, group: usize) {
    let Context { shape, lists, team, .. } = *context;
    let isa = context.isa;
    let (heads, nodes, at) = (shape.heads, context.nodes(), context.panel_stride());
    let (block_panels, group_heads) = (shape.projected.block_panels(), heads.group_heads(group));
    let panels_of_group = group_heads.start * block_panels..group_heads.end * block_panels;
    let AttentionScratch { d_y, d_maps, d_source, d_target, by_column, d_vectors, .. } = scratch;
    let (d_y, by_column) = (d_y.as_slice(), by_column.as_slice());
    let d_source = &d_source.as_slice()[heads.among(group, nodes)];
    let d_target = &d_target.as_slice()[heads.among(group, nodes)];
    let d_maps = &mut d_maps.as_mut_slice()[panels_of_group.start * at.stride..];
    let parts = panel_parts(team, nodes, panels_of_group.len(), d_maps, PanelSplit::Panels);
    let (d_to_source, d_to_target) = d_vectors.as_mut_slice().split_at_mut(shape.projected.padded());
    let lens: Vec<usize> = parts.iter().map(|part| part.panels.len() * PANEL).collect();
    let first_number = panels_of_group.start * PANEL;
    let d_to_source = split(&mut d_to_source[first_number..], lens.iter().copied());
    let d_to_target = split(&mut d_to_target[first_number..], lens);
    let parts = parts.into_iter().zip(d_to_source.into_iter().zip(d_to_target)).collect();
    let (to_source, to_target) = context.weights.vectors.as_slice().split_at(shape.projected.padded());
    team.for_each(parts, |(part, (d_to_source, d_to_target)): (PanelPart<'_>, (&mut [f32], &mut [f32]))| {
        let PanelPart { panels, mut to, .. } = part;
        to.0.fill(0.0);
        let panels = panels.start + panels_of_group.start..panels.end + panels_of_group.start;
        for (head, own) in shape.heads_among(panels.clone()) {
            let (first, from) = shape.panels_of(head);
            let d_maps = &mut to.panel(own.start - panels.start);
            let values = View(memory.maps.as_slice(), at.panel(own.start));
            let own_numbers = (own.start - panels.start) * PANEL..(own.end - panels.start) * PANEL;
            let numbers = own.start * PANEL..own.end * PANEL;
            for (d, vector, d_vector) in
                [(d_source, to_source, &mut *d_to_source), (d_target, to_target, &mut *d_to_target)]
            {
                let (vector, d_vector) = (&vector[numbers.clone()], &mut d_vector[own_numbers.clone()]);
                gathers::spread(isa, nodes, heads.numbers_of(d, head), values, vector, d_maps, d_vector);
            }
            let d_y = View(d_y, at.panel(from + own.start - first));
            gathers::gather(isa, lists.columns(), heads.numbers_of(by_column, head), own.len(), d_y, d_maps);
        }
    });
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
    let Context { shape, lists, team, .. } = *context;
    let isa = context.isa;
    let (heads, edges, nodes, at) = (shape.heads, context.edges(), context.nodes(), context.panel_stride());
    let (panels, padded, width) = (shape.projected.panels(), shape.projected.padded(), shape.sizes.attributes);
    let d_attention = &mut scratch.d_vectors.as_mut_slice()[..padded];
    let d_edges = &mut scratch.d_edges.as_mut_slice()[..padded * width];
    d_attention.fill(0.0);
    d_edges.fill(0.0);
    let kept = context.kept(memory.coefficients.as_slice(), scratch.kept.as_slice());
    let (d_y, d_scores, maps) = (scratch.d_y.as_slice(), scratch.d_scores.as_slice(), memory.maps.as_slice());
    let (d_from, d_to) = scratch.d_maps.as_mut_slice().split_at_mut(panels * at.stride);
    // The sums for an edge's attributes are not side by side: one part has those of all panels.
    let parts =
        panel_parts(if width == 0 { team } else { ThreadTeam::alone() }, nodes, panels, d_to, PanelSplit::Panels);
    let lens: Vec<usize> = parts.iter().map(|part| part.panels.len() * PANEL).collect();
    let edge_lens: Vec<usize> = parts.iter().map(|_| width * padded).collect();
    let sums = split(d_attention, lens).into_iter().zip(split(d_edges, edge_lens));
    let parts = parts.into_iter().zip(sums).collect();
    team.for_each(parts, |(part, (d_attention, d_edges)): (PanelPart<'_>, (&mut [f32], &mut [f32]))| {
        let PanelPart { panels, mut to, .. } = part;
        for (head, own) in shape.heads_among(panels.clone()) {
            let (first, at) = (shape.panels_of(head).0, own.start - panels.start);
            let joint = context.joint(maps, head).among_panels(&(own.start - first..own.end - first));
            let d_scores = heads.numbers_of(&d_scores[heads.among(head / heads.group, edges)], head);
            let (d_attention, d_edges) =
                (&mut d_attention[at * PANEL..], d_edges.get_mut(at * PANEL..).unwrap_or_default());
            gathers::joint_rows(isa, lists.rows(), d_scores, joint, &mut to.panel(at), d_attention, d_edges);
        }
    });
    let parts = panel_parts(team, nodes, panels, d_from, PanelSplit::Panels);
    team.for_each(parts, |PanelPart { panels, mut to, .. }| {
        for (head, own) in shape.heads_among(panels.clone()) {
            let (first, from) = shape.panels_of(head);
            let group_range = heads.among(head / heads.group, edges);
            let given = JointGiven {
                walk: lists.columns(),
                places: lists.places(),
                coefficients: heads.numbers_of(&kept[group_range.clone()], head),
                d_scores: heads.numbers_of(&d_scores[group_range], head),
                d_y: View(d_y, at.panel(from + own.start - first)),
            };
            let joint = context.joint(maps, head).among_panels(&(own.start - first..own.end - first));
            gathers::joint_columns(isa, given, joint, &mut to.panel(own.start - panels.start));
        }
    });
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
    let (nodes, at) = (context.nodes(), context.panel_stride());
    let x = View(dropped(context, input, scratch.dropped.as_mut_slice()), at);
    let (gradients, layer) = (&mut *parameters.gradients, parameters.layer);
    let d_weight = scratch.d_weight.as_mut_slice();
    let d_row = scratch.d_row.as_mut_slice();
    let (d_y, d_maps) = (View(scratch.d_y.as_slice(), at), View(scratch.d_maps.as_slice(), at));
    add_rows(nodes, d_y, shape.output, d_row, gradients.slot_mut(layer.bias));
    let columns = shape.map_columns();
    outer(context, d_maps, columns, x, d_weight);
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
        outer(context, d_y, columns, x, d_weight);
        shape.residual().unpack_add(d_weight, 0, columns, gradients.slot_mut(slot));
    }
}

/// `sums` [input panels][columns][16] = `d` [N, columns]ᵀ · `x` [N, input panels · 16].
fn outer(context: &Context<'_>, d: View<'_>, columns: usize, x: View<'_>, sums: &mut [f32]) {
    let (panels, threads) = (context.shape.input.panels(), context.team.threads());
    let panels_each = panels.div_ceil(threads).max(1);
    // Of one panel, some columns: whole panels of those of `d`.
    let column_parts = if panels_each == 1 { (threads / panels.max(1)).clamp(1, columns / PANEL) } else { 1 };
    let columns_of_each = (columns / PANEL).div_ceil(column_parts) * PANEL;
    let panel_sums = sums[..panels * PANEL * columns].chunks_mut(panels_each * columns * PANEL).enumerate();
    let parts = panel_sums.flat_map(|(n, sums)| {
        let len = if column_parts == 1 { sums.len() } else { columns_of_each * PANEL };
        sums.chunks_mut(len).enumerate().map(move |(part, sums)| (n * panels_each, part * columns_of_each, sums))
    });
    context.team.for_each(parts.collect(), |(panel, column, sums): (usize, usize, &mut [f32])| {
        let columns = if column_parts == 1 { columns } else { sums.len() / PANEL };
        let (d, x) = (View(d.0, d.1.panel(column / PANEL)), View(x.0, x.1.panel(panel)));
        sums.fill(0.0);
        kernel::outer(context.isa, context.nodes(), columns, sums.len() / columns / PANEL, d, x, sums);
    });
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
    let (nodes, at) = (context.nodes(), context.panel_stride());
    let (d_x, panels) = (scratch.d_x.as_mut_slice(), shape.input.panels());
    let (a, b, depth) = (View(scratch.d_maps.as_slice(), at), weights.maps_transposed.as_slice(), shape.map_columns());
    context.multiply(PanelProduct { rows: nodes, depth, panels, start: Start::Zero, a, b }, d_x);
    if !weights.residual_transposed.is_empty() {
        let (a, b) = (View(scratch.d_y.as_slice(), at), weights.residual_transposed.as_slice());
        let depth = shape.output.padded();
        context.multiply(PanelProduct { rows: nodes, depth, panels, start: Start::Result, a, b }, d_x);
    }
    if let Some(mask) = context.masks.0 {
        let factors = scratch.dropped.as_mut_slice();
        draw(context, mask, shape.input, factors);
        let len = shape.input.panels() * at.stride;
        d_x[..len].iter_mut().zip(factors).for_each(|(d, factor)| *d *= *factor);
    }
}
