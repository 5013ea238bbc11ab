//! One layer forward.

use std::ops::Range;

use megabatch_nn::graph::GraphMask;
use megabatch_nn::model::graph::{AttentionKind, GraphActivation, GraphConfig};

use super::columns::{ColumnRun, Columns, panel_stride};
use super::memory::{AttentionLayerMemory, AttentionScratch};
use super::parts::{EdgePart, PanelPart, PanelSplit, edge_parts, panel_parts, split};
use super::shape::PanelShape;
use super::softmax::{self, LinearScores};
use super::weights::AttentionLayerWeights;
use crate::kernel::attention::{self as gathers, EdgeLists, Joint};
use crate::kernel::{self, Isa, PANEL, PanelProduct, PanelStride, Start, View, ViewMut};
use crate::team::ThreadTeam;

/// A layer, its weights and the graph that it is applied to.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) isa: Isa,
    pub(super) shape: PanelShape,
    pub(super) config: &'a GraphConfig,
    pub(super) weights: &'a AttentionLayerWeights,
    /// Shares the loops over panels, nodes and edges.
    pub(super) team: &'a ThreadTeam,
    pub(super) lists: &'a EdgeLists,
    /// By place.
    pub(super) attributes: &'a [f32],
    /// Dropout of the input and of the coefficients.
    pub(super) masks: (Option<GraphMask>, Option<GraphMask>),
    /// True if another layer follows.
    pub(super) is_inner: bool,
}

impl<'a> Context<'a> {
    /// N.
    pub(super) fn nodes(&self) -> usize {
        self.lists.rows().nodes()
    }

    /// P.
    pub(super) fn edges(&self) -> usize {
        self.lists.rows().edges()
    }

    /// Place of every matrix of nodes.
    pub(super) fn panel_stride(&self) -> PanelStride {
        panel_stride(self.nodes())
    }

    /// True if coefficients are multiplied by anything.
    pub(super) fn is_scaled(&self) -> bool {
        self.masks.1.is_some() || self.shape.share() < 1.0
    }

    /// Scores of GAT in group `group` for some edges, from att_src · v and att_dst · v of all nodes
    /// and heads.
    pub(super) fn linear<'m>(
        &self,
        source: &'m [f32],
        target: &'m [f32],
        group: usize,
        part: &EdgePart<'_>,
    ) -> LinearScores<'m>
    where
        'a: 'm,
    {
        let (heads, width) = (self.shape.heads, self.shape.sizes.attributes);
        let node_range = heads.among(group, self.nodes());
        LinearScores {
            source: &source[node_range.clone()],
            target: &target[node_range][heads.numbers(&part.nodes)],
            attributes: &self.attributes[part.edges.start * width..],
            width,
            weight: &self.weights.edges.as_slice()[heads.among(group, width)],
            slope: self.config.negative_slope as f32,
        }
    }

    /// Scores of GATv2 in head `head`.
    pub(super) fn joint<'m>(&self, maps: &'m [f32], head: usize) -> Joint<'m>
    where
        'a: 'm,
    {
        let (first, panels) = (self.shape.panels_of(head).0, self.shape.projected.block_panels());
        let to = first + self.shape.projected.panels();
        Joint {
            panels,
            from: View(maps, self.panel_stride().panel(first)),
            to: View(maps, self.panel_stride().panel(to)),
            attention: &self.weights.vectors.as_slice()[first * PANEL..][..panels * PANEL],
            attributes: self.attributes,
            width: self.shape.sizes.attributes,
            edge_weight: self.weights.edges.as_slice().get(first * PANEL..).unwrap_or(&[]),
            edge_stride: self.shape.projected.padded(),
            slope: self.config.negative_slope as f32,
        }
    }

    /// The coefficients of all heads that rows are gathered with.
    pub(super) fn kept<'m>(&self, coefficients: &'m [f32], scratch: &'m [f32]) -> &'m [f32] {
        if self.is_scaled() { scratch } else { coefficients }
    }

    /// Writes a product with the rows of all nodes.
    pub(super) fn multiply(&self, product: PanelProduct<'_>, to: &mut [f32]) {
        let parts = panel_parts(self.team, product.rows, product.panels, to, PanelSplit::PanelsAndRows);
        self.team.for_each(parts, |PanelPart { panels, rows, mut to }| {
            kernel::product(self.isa, product.part(&panels, &rows), &mut to);
        });
    }
}

/// From `input` to `memory.y`.
pub(super) fn forward(
    context: &Context<'_>,
    input: &[f32],
    memory: &mut AttentionLayerMemory,
    scratch: &mut AttentionScratch,
) {
    let Context { shape, weights, .. } = *context;
    let (nodes, depth, at) = (context.nodes(), shape.input.depth(), context.panel_stride());
    let x = View(dropped(context, input, scratch.dropped.as_mut_slice()), at);
    let start = match shape.kind {
        AttentionKind::Gat => Start::Zero,
        AttentionKind::GatV2 => Start::Row(weights.map_bias.as_slice()),
    };
    let product = |panels, start, b| PanelProduct { rows: nodes, depth, panels, start, a: x, b };
    context.multiply(product(shape.map_panels(), start, weights.maps.as_slice()), memory.maps.as_mut_slice());
    score(context, memory, scratch.factors.as_mut_slice(), scratch.kept.as_mut_slice());
    let start = Start::Row(weights.bias.as_slice());
    let residual = product(shape.output.panels(), start, weights.residual.as_slice());
    let kept = context.kept(memory.coefficients.as_slice(), scratch.kept.as_slice());
    let (maps, y) = (memory.maps.as_slice(), memory.y.as_mut_slice());
    let parts = panel_parts(context.team, nodes, shape.output.panels(), y, PanelSplit::PanelsAndRows);
    context.team.for_each(parts, |part| gather(context, residual, kept, maps, part));
}

/// Some panels of the output: what all heads gather of `maps` with the coefficients `kept`, on the
/// bias and, where there is a weight for it, `residual`.
fn gather(
    context: &Context<'_>,
    residual: PanelProduct<'_>,
    kept: &[f32],
    maps: &[f32],
    PanelPart { panels, rows, mut to }: PanelPart<'_>,
) {
    let Context { shape, weights, lists, .. } = *context;
    let (heads, edges) = (shape.heads, context.edges());
    if weights.residual.is_empty() {
        fill(rows.len(), &weights.bias.as_slice()[panels.start * PANEL..panels.end * PANEL], &mut to);
    } else {
        kernel::product(context.isa, residual.part(&panels, &rows), &mut to);
    }
    let (walk, edges_of_rows) = (lists.rows().part(&rows), lists.rows().edges_of(&rows));
    for head in 0..heads.count {
        let (first, output) = shape.panels_of(head);
        let own = panels.start.max(output)..panels.end.min(output + shape.projected.block_panels());
        if own.is_empty() {
            continue;
        }
        let numbers = &kept[heads.among(head / heads.group, edges)][heads.numbers(&edges_of_rows)];
        let from = View(maps, context.panel_stride().panel(first + own.start - output));
        let to = &mut to.panel(own.start - panels.start);
        gathers::gather(context.isa, walk, heads.numbers_of(numbers, head), own.len(), from, to);
    }
    if context.is_inner {
        activate(context, to.0);
    }
}

/// Input of the layer: `input`, of which `to` receives the part that dropout leaves if there is
/// any.
pub(super) fn dropped<'m>(context: &Context<'_>, input: &'m [f32], to: &'m mut [f32]) -> &'m [f32] {
    let Some(mask) = context.masks.0 else { return input };
    draw(context, mask, context.shape.input, to);
    let len = context.shape.input.panels() * context.panel_stride().stride;
    to[..len].iter_mut().zip(input).for_each(|(factor, x)| *factor *= x);
    to
}

/// Mask factors of the numbers of all nodes.
pub(super) fn draw(context: &Context<'_>, mask: GraphMask, columns: Columns, to: &mut [f32]) {
    let (ends, PanelStride { stride, .. }) = ([mask.graph], context.panel_stride());
    let parts = columns.runs().zip(to.chunks_mut(stride)).collect();
    context.team.for_each(parts, |(run, panel): (ColumnRun, &mut [f32])| {
        let to = &mut ViewMut(panel, PanelStride { start: 0, stride });
        kernel::draw(context.isa, mask.mask, run.first, 0..context.nodes(), &ends, to);
    });
}

/// Every row becomes `row`.
fn fill(nodes: usize, row: &[f32], to: &mut ViewMut<'_>) {
    let ViewMut(to, at) = to;
    for (panel, row) in row.chunks_exact(PANEL).enumerate() {
        let to = &mut to[at.panel(panel).start..][..nodes * PANEL];
        to.chunks_exact_mut(PANEL).for_each(|to| to.copy_from_slice(row));
    }
}

/// The coefficients of all edges, and in `kept` what dropout and a mean leave of them.
fn score(context: &Context<'_>, memory: &mut AttentionLayerMemory, factors: &mut [f32], kept: &mut [f32]) {
    let Context { shape, lists, team, .. } = *context;
    let isa = context.isa;
    let (heads, edges) = (shape.heads, context.edges());
    let AttentionLayerMemory { maps, source, target, coefficients, .. } = memory;
    let (source, target) = (source.as_mut_slice(), target.as_mut_slice());
    if shape.kind == AttentionKind::Gat {
        score_nodes(context, maps.as_slice(), source, target);
    }
    for group in 0..heads.groups() {
        let group_range = heads.among(group, edges);
        let coefficients = &mut coefficients.as_mut_slice()[group_range.clone()];
        let scaled = if context.is_scaled() { group_range } else { 0..0 };
        let parts = EdgeNumbers::parts(context, coefficients, &mut factors[scaled.clone()], &mut kept[scaled]);
        team.for_each(parts, |EdgeNumbers { part, numbers: scores, factors, kept }| {
            match shape.kind {
                AttentionKind::Gat => {
                    let linear = context.linear(source, target, group, &part);
                    softmax::scores(heads.group, part.walk, linear, scores);
                }
                AttentionKind::GatV2 => heads.group_heads(group).for_each(|head| {
                    let joint = context.joint(maps.as_slice(), head);
                    let to = View(joint.to.0, joint.to.1.row(part.nodes.start));
                    let joint = Joint { to, attributes: &joint.attributes[part.edges.start * joint.width..], ..joint };
                    gathers::joint_scores(isa, part.walk, joint, heads.numbers_of_mut(scores, head));
                }),
            }
            for gap in lists.gaps().iter().map(|&gap| gap as usize).filter(|gap| part.edges.contains(gap)) {
                scores[(gap - part.edges.start) * heads.group..][..heads.group].fill(f32::NEG_INFINITY);
            }
            softmax::softmax(isa, heads.group, part.walk, scores);
            scale(context, group, &part.edges, scores, factors, kept);
        });
    }
}

/// Numbers of the edges of some nodes, for one group of heads.
pub(super) struct EdgeNumbers<'a> {
    pub(super) part: EdgePart<'a>,
    /// Scores or coefficients, or their gradients.
    pub(super) numbers: &'a mut [f32],
    /// Factors of the coefficients, and the products; empty where there are none.
    pub(super) factors: &'a mut [f32],
    pub(super) kept: &'a mut [f32],
}

impl<'a> EdgeNumbers<'a> {
    /// The numbers of all edges for one group of heads, in parts.
    pub(super) fn parts(
        context: &Context<'a>,
        numbers: &'a mut [f32],
        factors: &'a mut [f32],
        kept: &'a mut [f32],
    ) -> Vec<Self> {
        let parts = edge_parts(context.team, context.lists.rows());
        let lens: Vec<usize> = parts.iter().map(|part| part.edges.len() * context.shape.heads.group).collect();
        let scaled = |len: &usize| if context.is_scaled() { *len } else { 0 };
        let numbers = split(numbers, lens.iter().copied());
        let factors = split(factors, lens.iter().map(scaled));
        let kept = split(kept, lens.iter().map(scaled));
        let all = parts.into_iter().zip(numbers).zip(factors.into_iter().zip(kept));
        all.map(|((part, numbers), (factors, kept))| EdgeNumbers { part, numbers, factors, kept }).collect()
    }
}

/// att_src · v and att_dst · v of all nodes and heads.
fn score_nodes(context: &Context<'_>, maps: &[f32], source: &mut [f32], target: &mut [f32]) {
    let Context { shape, weights, team, .. } = *context;
    let isa = context.isa;
    let (heads, nodes, len) = (shape.heads, context.nodes(), shape.projected.block_panels() * PANEL);
    let (to_source, to_target) = weights.vectors.as_slice().split_at(shape.projected.padded());
    let nodes_each = nodes.div_ceil(team.threads()).max(1);
    for group in 0..heads.groups() {
        let chunk = nodes_each * heads.group;
        let source = source[heads.among(group, nodes)].chunks_mut(chunk);
        let target = target[heads.among(group, nodes)].chunks_mut(chunk);
        let parts =
            source.zip(target).enumerate().map(|(n, (source, target))| (n * nodes_each, source, target)).collect();
        team.for_each(parts, |(first_node, source, target): (usize, &mut [f32], &mut [f32])| {
            for head in heads.group_heads(group) {
                let first = shape.panels_of(head).0;
                let values = View(maps, context.panel_stride().panel(first).row(first_node));
                let (rows, head_range) = (source.len() / heads.group, first * PANEL..first * PANEL + len);
                gathers::node_dots(
                    isa,
                    rows,
                    values,
                    &to_source[head_range.clone()],
                    heads.numbers_of_mut(source, head),
                );
                gathers::node_dots(isa, rows, values, &to_target[head_range], heads.numbers_of_mut(target, head));
            }
        });
    }
}

/// Factors of a group's coefficients of some edges, and the products, unless they stay as they are.
pub(super) fn scale(
    context: &Context<'_>,
    group: usize,
    edges: &Range<usize>,
    coefficients: &[f32],
    factors: &mut [f32],
    kept: &mut [f32],
) {
    if !context.is_scaled() {
        return;
    }
    match context.masks.1 {
        Some(mask) => draw_factors(context, mask, group, edges, factors),
        None => factors.fill(context.shape.share()),
    }
    kept.iter_mut().zip(factors).zip(coefficients).for_each(|((kept, f), c)| *kept = *f * c);
}

/// The factors of some edges for the heads of a group, [edges][group], times a head's share.
fn draw_factors(context: &Context<'_>, mask: GraphMask, group: usize, edges: &Range<usize>, factors: &mut [f32]) {
    let (width, share) = (context.shape.heads.group, context.shape.share());
    let at = PanelStride { start: 0, stride: PANEL * PANEL };
    for (block, factors) in factors.chunks_mut(PANEL * width).enumerate() {
        let mut drawn = [0.0; PANEL * PANEL]; // [group][16 edges]
        let (first, heads) = (edges.start + block * PANEL, group * width..(group + 1) * width);
        kernel::draw(context.isa, mask.mask, first, heads, &[mask.graph], &mut ViewMut(&mut drawn, at));
        for (edge, factors) in factors.chunks_exact_mut(width).enumerate() {
            factors.iter_mut().enumerate().for_each(|(k, factor)| *factor = drawn[k * PANEL + edge] * share);
        }
    }
}

fn activate(context: &Context<'_>, y: &mut [f32]) {
    match context.config.activation {
        GraphActivation::Elu => gathers::elu(context.isa, y),
        GraphActivation::Relu => y.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y }),
    }
}
