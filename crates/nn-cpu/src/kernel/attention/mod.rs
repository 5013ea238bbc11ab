//! The arithmetic of graph attention: what nodes gather along edges, for several instruction sets.
//!
//! Matrices of nodes are panel-major as everywhere in [`kernel`](super). What belongs to edges and
//! heads lies edge after edge, the heads of a group side by side; a kernel works on one head, whose
//! columns are whole panels. The functions of this file are safe: they check the slices' lengths,
//! and a [`Walk`] holds only edges that are there.

mod arguments;
mod edges;
mod gather;
mod joint;
mod pointwise;

pub(crate) use arguments::{HeadNumbers, HeadNumbersMut, Joint};
pub(crate) use edges::{EdgeLists, Walk};

use megabatch_gpu_core::isa::InstructionSet;

use super::{Isa, PANEL, View, ViewMut, dispatch};
use arguments::{EdgeDots, Gather, JointColumns, JointRows, JointScores, NodeDots, Spread, check_edge_weight};

/// Compiles the kernels for one implementation of `Lanes`, with the instructions that it needs.
macro_rules! entry_points {
    ($lanes:ty $(, $features:literal)?) => {
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], gather => gather(&super::Gather<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], gather => dots(&mut super::EdgeDots<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], gather => node_dots(&mut super::NodeDots<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], gather => spread(&mut super::Spread<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], joint => joint_scores(&mut super::JointScores<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], joint => joint_rows(&mut super::JointRows<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], joint => joint_columns(&super::JointColumns<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], pointwise => exp(&mut [f32]));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], pointwise => elu(&mut [f32]));
    };
}

mod portable {
    entry_points!(crate::kernel::portable::Portable);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    entry_points!(crate::kernel::avx2::Avx2, "avx2,fma");
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    entry_points!(crate::kernel::avx512::Avx512, "avx512f");
}

#[cfg(target_arch = "aarch64")]
mod neon {
    entry_points!(crate::kernel::neon::Neon, "neon");
}

/// `to` [nodes of the walk, panels · 16] += Σ over the edges of each node of the edge's number in
/// `head` times `from` [N, panels · 16] at its other end.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn gather(
    isa: Isa,
    walk: Walk<'_>,
    head: HeadNumbers<'_>,
    panels: usize,
    from: View<'_>,
    to: &mut ViewMut<'_>,
) {
    head.check(walk.edges());
    from.1.check(from.0.len(), panels, walk.nodes_of_graph());
    to.1.check(to.0.len(), panels, walk.nodes());
    let arguments = Gather {
        walk,
        head,
        panels,
        from: from.0[from.1.start..].as_ptr(),
        from_stride: from.1.stride,
        to: to.0[to.1.start..].as_mut_ptr(),
        to_stride: to.1.stride,
    };
    dispatch!(isa, gather, &arguments);
}

/// The number of each edge in `to` = the row of its node in `nodes` [nodes of the walk, panels ·
/// 16] · the row of its other end in `ends` [N, panels · 16].
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn dots(isa: Isa, walk: Walk<'_>, panels: usize, nodes: View<'_>, ends: View<'_>, to: HeadNumbersMut<'_>) {
    to.check(walk.edges());
    nodes.1.check(nodes.0.len(), panels, walk.nodes());
    ends.1.check(ends.0.len(), panels, walk.nodes_of_graph());
    let mut arguments = EdgeDots {
        walk,
        panels,
        nodes: nodes.0[nodes.1.start..].as_ptr(),
        nodes_stride: nodes.1.stride,
        ends: ends.0[ends.1.start..].as_ptr(),
        ends_stride: ends.1.stride,
        to,
    };
    dispatch!(isa, dots, &mut arguments);
}

/// The number of each of `nodes` nodes in `to` = its row of `values` · `vector` [panels · 16].
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn node_dots(isa: Isa, nodes: usize, values: View<'_>, vector: &[f32], to: HeadNumbersMut<'_>) {
    to.check(nodes);
    values.1.check(values.0.len(), vector.len() / PANEL, nodes);
    let (values, values_stride) = (values.0[values.1.start..].as_ptr(), values.1.stride);
    dispatch!(isa, node_dots, &mut NodeDots { nodes, values, values_stride, vector, to });
}

/// [`node_dots`] backwards: `d_values` += `d` · `vector` and `d_vector` += `d` · `values`, with `d`
/// by node.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn spread(
    isa: Isa,
    nodes: usize,
    d: HeadNumbers<'_>,
    values: View<'_>,
    vector: &[f32],
    d_values: &mut ViewMut<'_>,
    d_vector: &mut [f32],
) {
    d.check(nodes);
    values.1.check(values.0.len(), vector.len() / PANEL, nodes);
    d_values.1.check(d_values.0.len(), vector.len() / PANEL, nodes);
    assert_eq!(vector.len(), d_vector.len(), "a gradient of each number");
    let mut arguments = Spread {
        nodes,
        d,
        values: values.0[values.1.start..].as_ptr(),
        values_stride: values.1.stride,
        vector,
        d_values: d_values.0[d_values.1.start..].as_mut_ptr(),
        d_values_stride: d_values.1.stride,
        d_vector,
    };
    dispatch!(isa, spread, &mut arguments);
}

/// GATv2's scores of the edges of `walk`, which is by the node that receives: attention ·
/// LeakyReLU(from + to + map of the attributes).
///
/// # Panics
/// If a slice is shorter than the sizes of `joint`.
pub(crate) fn joint_scores(isa: Isa, walk: Walk<'_>, joint: Joint<'_>, to: HeadNumbersMut<'_>) {
    joint.check(walk.nodes_of_graph(), walk.nodes(), walk.edges());
    to.check(walk.edges());
    dispatch!(isa, joint_scores, &mut JointScores { walk, joint, to });
}

/// [`joint_scores`] backwards to all but the nodes that give: `d_to` [nodes, panels · 16] is
/// written, `d_attention` and `d_edge_weight`, which lies as the weights do, are added to.
///
/// # Panics
/// If a slice is shorter than the sizes of `joint`.
pub(crate) fn joint_rows(
    isa: Isa,
    walk: Walk<'_>,
    d_scores: HeadNumbers<'_>,
    joint: Joint<'_>,
    d_to: &mut ViewMut<'_>,
    d_attention: &mut [f32],
    d_edge_weight: &mut [f32],
) {
    joint.check(walk.nodes_of_graph(), walk.nodes(), walk.edges());
    d_scores.check(walk.edges());
    d_to.1.check(d_to.0.len(), joint.panels, walk.nodes());
    assert!(joint.panels * PANEL <= d_attention.len(), "a gradient of the attention vector");
    check_edge_weight(&joint, d_edge_weight.len());
    let (d_to, d_to_stride) = (d_to.0[d_to.1.start..].as_mut_ptr(), d_to.1.stride);
    let mut arguments = JointRows { walk, joint, d_scores, d_to, d_to_stride, d_attention, d_edge_weight };
    dispatch!(isa, joint_rows, &mut arguments);
}

/// Gradients that one head of GATv2 gives back to the nodes that it gathers from.
#[derive(Clone, Copy)]
pub(crate) struct JointGiven<'a> {
    /// By the node that gives, and the place of each of its edges.
    pub(crate) walk: Walk<'a>,
    pub(crate) places: &'a [u32],
    /// Coefficients and gradients of scores, by place.
    pub(crate) coefficients: HeadNumbers<'a>,
    pub(crate) d_scores: HeadNumbers<'a>,
    /// The gradient of what the head gathered, [N, panels · 16].
    pub(crate) d_y: View<'a>,
}

/// Both passes backwards to the nodes that give: `d_from` [nodes, panels · 16] is written.
///
/// # Panics
/// If a slice is shorter than the sizes of `joint`, or a place is that of no coefficient.
pub(crate) fn joint_columns(isa: Isa, given: JointGiven<'_>, joint: Joint<'_>, d_from: &mut ViewMut<'_>) {
    let JointGiven { walk, places, coefficients, d_scores, d_y } = given;
    let end = places.iter().max().map_or(0, |&last| last as usize + 1);
    joint.check(walk.nodes(), walk.nodes_of_graph(), end);
    coefficients.check(end);
    d_scores.check(end);
    assert_eq!(places.len(), walk.edges(), "a place for each edge");
    d_y.1.check(d_y.0.len(), joint.panels, walk.nodes_of_graph());
    d_from.1.check(d_from.0.len(), joint.panels, walk.nodes());
    let (d_y, d_y_stride) = (d_y.0[d_y.1.start..].as_ptr(), d_y.1.stride);
    let (d_from, d_from_stride) = (d_from.0[d_from.1.start..].as_mut_ptr(), d_from.1.stride);
    let arguments =
        JointColumns { walk, places, joint, coefficients, d_scores, d_y, d_y_stride, d_from, d_from_stride };
    dispatch!(isa, joint_columns, &arguments);
}

/// Each of `values`, none positive, becomes its exponential, within 2 units in the last place; 0
/// where that would be subnormal.
///
/// # Panics
/// If they are not a multiple of sixteen.
pub(crate) fn exp(isa: Isa, values: &mut [f32]) {
    assert_eq!(values.len() % PANEL, 0, "whole rows of a panel");
    dispatch!(isa, exp, values);
}

/// Each of `values` that is negative becomes its exponential less 1, within 4 units in the last
/// place.
///
/// # Panics
/// If they are not a multiple of sixteen.
pub(crate) fn elu(isa: Isa, values: &mut [f32]) {
    assert_eq!(values.len() % PANEL, 0, "whole rows of a panel");
    dispatch!(isa, elu, values);
}

#[cfg(test)]
mod tests;
