#![forbid(unsafe_code)]

//! One layer forward.

use super::columns::{Columns, place};
use super::memory::{AttentionLayerMemory, AttentionScratch};
use super::shape::PanelShape;
use super::softmax::{self, LinearScores};
use super::weights::AttentionLayerWeights;
use crate::cpu::kernel::attention::{self as gathers, EdgeLists, Joint};
use crate::cpu::kernel::pairs::PairIsa;
use crate::cpu::kernel::{self, Isa, PANEL, PanelProduct, Place, ProductIsa, Start, View, ViewMut};
use crate::graph::GraphMask;
use crate::model::graph::{AttentionKind, GraphActivation, GraphConfig};

/// A layer, its weights and the graph that it is applied to.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) isa: Isa,
    /// For products of pairs of bf16 numbers; `None` for single precision.
    pub(super) pair_isa: Option<PairIsa>,
    pub(super) shape: PanelShape,
    pub(super) config: &'a GraphConfig,
    pub(super) weights: &'a AttentionLayerWeights,
    pub(super) lists: &'a EdgeLists,
    /// By place.
    pub(super) attributes: &'a [f32],
    /// Dropout of the input and of the coefficients.
    pub(super) masks: (Option<GraphMask>, Option<GraphMask>),
    /// True if another layer follows.
    pub(super) is_inner: bool,
}

impl<'a> Context<'a> {
    /// Instruction sets of products with matrices of nodes.
    pub(super) fn products(&self) -> ProductIsa {
        ProductIsa { isa: self.isa, pair_isa: self.pair_isa }
    }

    /// N.
    pub(super) fn nodes(&self) -> usize {
        self.lists.rows().nodes()
    }

    /// P.
    pub(super) fn edges(&self) -> usize {
        self.lists.rows().edges()
    }

    /// Place of every matrix of nodes.
    pub(super) fn place(&self) -> Place {
        place(self.nodes())
    }

    /// Numbers of all edges and heads, and the same up to a whole row of a panel.
    pub(super) fn numbers(&self) -> (usize, usize) {
        let len = self.edges() * self.shape.heads.padded();
        (len, len.next_multiple_of(PANEL))
    }

    /// True if coefficients are multiplied by anything.
    pub(super) fn is_scaled(&self) -> bool {
        self.masks.1.is_some() || self.shape.share() < 1.0
    }

    /// Scores of GAT in group `group`, from att_src · v and att_dst · v of all nodes and heads.
    pub(super) fn linear<'m>(&self, source: &'m [f32], target: &'m [f32], group: usize) -> LinearScores<'m>
    where
        'a: 'm,
    {
        let (heads, width) = (self.shape.heads, self.shape.sizes.attributes);
        let of_nodes = group * self.nodes() * heads.group..(group + 1) * self.nodes() * heads.group;
        let of_edges = group * width * heads.group..(group + 1) * width * heads.group;
        LinearScores {
            source: &source[of_nodes.clone()],
            target: &target[of_nodes],
            attributes: self.attributes,
            width,
            weight: &self.weights.edges.as_slice()[of_edges],
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
            from: View(maps, self.place().panel(first)),
            to: View(maps, self.place().panel(to)),
            attention: &self.weights.vectors.as_slice()[first * PANEL..][..panels * PANEL],
            attributes: self.attributes,
            width: self.shape.sizes.attributes,
            edge_weight: self.weights.edges.as_slice().get(first * PANEL..).unwrap_or(&[]),
            edge_stride: self.shape.projected.padded(),
            slope: self.config.negative_slope as f32,
        }
    }

    /// The coefficients that rows are gathered with.
    pub(super) fn kept<'m>(&self, coefficients: &'m [f32], scratch: &'m [f32]) -> &'m [f32] {
        let kept = if self.is_scaled() { scratch } else { coefficients };
        &kept[..self.numbers().0]
    }
}

/// From `input` to `memory.y`.
pub(super) fn forward(
    context: &Context<'_>,
    input: &[f32],
    memory: &mut AttentionLayerMemory,
    scratch: &mut AttentionScratch,
) {
    let Context { isa, shape, weights, .. } = *context;
    let (nodes, depth, at) = (context.nodes(), shape.input.depth(), context.place());
    let x = View(dropped(context, input, scratch.dropped.as_mut_slice()), at);
    let start = match shape.kind {
        AttentionKind::Gat => Start::Zero,
        AttentionKind::GatV2 => Start::Row(weights.map_bias.as_slice()),
    };
    let maps = &mut ViewMut(memory.maps.as_mut_slice(), at);
    let product = |panels, start, b| PanelProduct { rows: nodes, depth, panels, start, a: x, b };
    kernel::product_by(context.products(), product(shape.map_panels(), start, weights.maps.as_slice()), maps);

    let y = &mut ViewMut(memory.y.as_mut_slice(), at);
    if weights.residual.is_empty() {
        fill(nodes, weights.bias.as_slice(), y);
    } else {
        let start = Start::Row(weights.bias.as_slice());
        kernel::product_by(context.products(), product(shape.output.panels(), start, weights.residual.as_slice()), y);
    }
    score(context, memory);
    let rows = context.lists.rows();
    let len = context.numbers().1;
    softmax::softmax(isa, shape.heads, rows, &mut memory.coefficients.as_mut_slice()[..len]);
    let coefficients = memory.coefficients.as_slice();
    scale(context, coefficients, scratch.factors.as_mut_slice(), scratch.kept.as_mut_slice());
    let kept = context.kept(coefficients, scratch.kept.as_slice());
    for head in 0..shape.heads.count {
        let (first, to) = shape.panels_of(head);
        let numbers = shape.heads.of(kept, context.edges(), head);
        let from = View(memory.maps.as_slice(), at.panel(first));
        let to = &mut ViewMut(memory.y.as_mut_slice(), at.panel(to));
        gathers::gather(isa, rows, numbers, shape.projected.block_panels(), from, to);
    }
    if context.is_inner {
        activate(context, &mut memory.y.as_mut_slice()[..shape.output.panels() * at.stride]);
    }
}

/// Input of the layer: `input`, of which `to` receives the part that dropout leaves if there is
/// any.
pub(super) fn dropped<'m>(context: &Context<'_>, input: &'m [f32], to: &'m mut [f32]) -> &'m [f32] {
    let Some(mask) = context.masks.0 else { return input };
    draw(context, mask, context.shape.input, to);
    let len = context.shape.input.panels() * context.place().stride;
    to[..len].iter_mut().zip(input).for_each(|(factor, x)| *factor *= x);
    to
}

/// Mask factors of the numbers of all nodes.
pub(super) fn draw(context: &Context<'_>, mask: GraphMask, columns: Columns, to: &mut [f32]) {
    let ends = [mask.graph];
    for run in columns.runs() {
        let to = &mut ViewMut(to, context.place().panel(run.panel));
        kernel::draw(context.isa, mask.mask, run.first, 0..context.nodes(), &ends, to);
    }
}

/// Every row becomes `row`.
fn fill(nodes: usize, row: &[f32], to: &mut ViewMut<'_>) {
    let ViewMut(to, at) = to;
    for (panel, row) in row.chunks_exact(PANEL).enumerate() {
        let to = &mut to[at.panel(panel).start..][..nodes * PANEL];
        to.chunks_exact_mut(PANEL).for_each(|to| to.copy_from_slice(row));
    }
}

/// The scores of all edges, in `memory.coefficients`.
fn score(context: &Context<'_>, memory: &mut AttentionLayerMemory) {
    let Context { isa, shape, lists, .. } = *context;
    let (heads, edges) = (shape.heads, context.edges());
    let AttentionLayerMemory { maps, source, target, coefficients, .. } = memory;
    let scores = coefficients.as_mut_slice();
    match shape.kind {
        AttentionKind::Gat => {
            let (source, target) = (source.as_mut_slice(), target.as_mut_slice());
            score_nodes(context, maps.as_slice(), source, target);
            for group in 0..heads.groups() {
                let to = &mut scores[group * edges * heads.group..][..edges * heads.group];
                softmax::scores(heads.group, lists.rows(), context.linear(source, target, group), to);
            }
        }
        AttentionKind::GatV2 => {
            for head in 0..heads.count {
                let to = heads.of_mut(scores, edges, head);
                gathers::joint_scores(isa, lists.rows(), context.joint(maps.as_slice(), head), to);
            }
        }
    }
    for group in 0..heads.groups() {
        for &gap in lists.gaps() {
            scores[(group * edges + gap as usize) * heads.group..][..heads.group].fill(f32::NEG_INFINITY);
        }
    }
}

/// att_src · v and att_dst · v of all nodes and heads.
fn score_nodes(context: &Context<'_>, maps: &[f32], source: &mut [f32], target: &mut [f32]) {
    let Context { isa, shape, weights, .. } = *context;
    let (nodes, len) = (context.nodes(), shape.projected.block_panels() * PANEL);
    let (to_source, to_target) = weights.vectors.as_slice().split_at(shape.projected.padded());
    for head in 0..shape.heads.count {
        let first = shape.panels_of(head).0;
        let values = View(maps, context.place().panel(first));
        let of_head = first * PANEL..first * PANEL + len;
        let to = shape.heads.of_mut(source, nodes, head);
        gathers::node_dots(isa, nodes, values, &to_source[of_head.clone()], to);
        let to = shape.heads.of_mut(target, nodes, head);
        gathers::node_dots(isa, nodes, values, &to_target[of_head], to);
    }
}

/// Factors of the coefficients, and the products, unless they stay as they are.
pub(super) fn scale(context: &Context<'_>, coefficients: &[f32], factors: &mut [f32], kept: &mut [f32]) {
    if !context.is_scaled() {
        return;
    }
    let (len, share) = (context.numbers().0, context.shape.share());
    match context.masks.1 {
        Some(mask) => draw_factors(context, mask, &mut factors[..len]),
        None => factors[..len].fill(share),
    }
    kept[..len].iter_mut().zip(&factors[..len]).zip(coefficients).for_each(|((kept, f), c)| *kept = f * c);
}

/// The factors of all edges and heads, [groups][P][group], times a head's share.
fn draw_factors(context: &Context<'_>, mask: GraphMask, factors: &mut [f32]) {
    let (group, edges, share) = (context.shape.heads.group, context.edges(), context.shape.share());
    let at = Place { start: 0, stride: PANEL * PANEL };
    for (of_group, factors) in factors.chunks_exact_mut((edges * group).max(1)).enumerate() {
        for (block, factors) in factors.chunks_mut(PANEL * group).enumerate() {
            let mut drawn = [0.0; PANEL * PANEL]; // [group][16 edges]
            let heads = of_group * group..(of_group + 1) * group;
            let draw = (block * PANEL, heads, &[mask.graph][..]);
            kernel::draw(context.isa, mask.mask, draw.0, draw.1, draw.2, &mut ViewMut(&mut drawn, at));
            for (edge, factors) in factors.chunks_exact_mut(group).enumerate() {
                factors.iter_mut().enumerate().for_each(|(k, factor)| *factor = drawn[k * PANEL + edge] * share);
            }
        }
    }
}

fn activate(context: &Context<'_>, y: &mut [f32]) {
    match context.config.activation {
        GraphActivation::Elu => gathers::elu(context.isa, y),
        GraphActivation::Relu => y.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y }),
    }
}
