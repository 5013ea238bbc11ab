#![forbid(unsafe_code)]

//! Arguments of the kernels.

use std::ops::Range;

use super::edges::Walk;
use crate::kernel::{PANEL, View};

/// Numbers of one head: that of edge or node `i` is `values[i * group + index]`.
#[derive(Clone, Copy)]
pub(crate) struct HeadNumbers<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) group: usize,
    pub(crate) index: usize,
}

/// The same, to write.
pub(crate) struct HeadNumbersMut<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) group: usize,
    pub(crate) index: usize,
}

impl HeadNumbers<'_> {
    /// Panics unless there are numbers of `count` edges or nodes.
    pub(super) fn check(&self, count: usize) {
        assert!(self.index < self.group && count * self.group <= self.values.len(), "{count} numbers of a head");
    }
}

impl HeadNumbersMut<'_> {
    pub(super) fn check(&self, count: usize) {
        HeadNumbers { values: self.values, group: self.group, index: self.index }.check(count);
    }
}

/// Scores of GATv2, for one head of `panels` panels.
#[derive(Clone, Copy)]
pub(crate) struct Joint<'a> {
    pub(crate) panels: usize,
    /// The maps of the nodes that give and of those that receive, [N, panels · 16]. Of those whose
    /// edges are walked, there are the walk's.
    pub(crate) from: View<'a>,
    pub(crate) to: View<'a>,
    /// [panels · 16].
    pub(crate) attention: &'a [f32],
    /// The attributes of the edges by place, [P, A], and the rows [A] that map them, `edge_stride`
    /// apart.
    pub(crate) attributes: &'a [f32],
    pub(crate) width: usize,
    pub(crate) edge_weight: &'a [f32],
    pub(crate) edge_stride: usize,
    pub(crate) slope: f32,
}

impl Joint<'_> {
    /// Some of the panels.
    pub(crate) fn among_panels(self, panels: &Range<usize>) -> Self {
        Joint {
            panels: panels.len(),
            from: View(self.from.0, self.from.1.panel(panels.start)),
            to: View(self.to.0, self.to.1.panel(panels.start)),
            attention: &self.attention[panels.start * PANEL..],
            edge_weight: self.edge_weight.get(panels.start * PANEL..).unwrap_or_default(),
            ..self
        }
    }

    /// Panics unless there are rows of `from` and `to` nodes, and all that `places` edges need.
    pub(super) fn check(&self, from: usize, to: usize, places: usize) {
        self.from.1.check(self.from.0.len(), self.panels, from);
        self.to.1.check(self.to.0.len(), self.panels, to);
        assert!(self.panels * PANEL <= self.attention.len(), "an attention vector");
        assert!(places * self.width <= self.attributes.len(), "attributes of {places} edges");
        check_edge_weight(self, self.edge_weight.len());
    }
}

/// Panics unless `len` numbers hold the rows that map attributes.
pub(super) fn check_edge_weight(joint: &Joint<'_>, len: usize) {
    let end = joint.width.checked_sub(1).map_or(0, |last| last * joint.edge_stride + joint.panels * PANEL);
    assert!(end <= len, "weights of {} attributes", joint.width);
}

/// Arguments of the kernel `gather`: to [panels][N][16] += numbers of a head · from [panels][N][16]
/// at the edges' other ends.
pub(super) struct Gather<'a> {
    pub(super) walk: Walk<'a>,
    pub(super) head: HeadNumbers<'a>,
    pub(super) panels: usize,
    pub(super) from: *const f32,
    pub(super) from_stride: usize,
    pub(super) to: *mut f32,
    pub(super) to_stride: usize,
}

/// Arguments of the kernel `dots`: numbers of a head = nodes [panels][N][16] · ends
/// [panels][N][16], by edge.
pub(super) struct EdgeDots<'a> {
    pub(super) walk: Walk<'a>,
    pub(super) panels: usize,
    pub(super) nodes: *const f32,
    pub(super) nodes_stride: usize,
    pub(super) ends: *const f32,
    pub(super) ends_stride: usize,
    pub(super) to: HeadNumbersMut<'a>,
}

/// Arguments of the kernel `node_dots`: numbers of a head = values [panels][N][16] · vector, by
/// node.
pub(super) struct NodeDots<'a> {
    pub(super) nodes: usize,
    pub(super) values: *const f32,
    pub(super) values_stride: usize,
    pub(super) vector: &'a [f32],
    pub(super) to: HeadNumbersMut<'a>,
}

/// Arguments of the kernel `spread`: d_values [panels][N][16] += d · vector and d_vector += d ·
/// values, for d of a head by node.
pub(super) struct Spread<'a> {
    pub(super) nodes: usize,
    pub(super) d: HeadNumbers<'a>,
    pub(super) values: *const f32,
    pub(super) values_stride: usize,
    pub(super) vector: &'a [f32],
    pub(super) d_values: *mut f32,
    pub(super) d_values_stride: usize,
    pub(super) d_vector: &'a mut [f32],
}

/// Arguments of the kernel `joint_scores`.
pub(super) struct JointScores<'a> {
    pub(super) walk: Walk<'a>,
    pub(super) joint: Joint<'a>,
    pub(super) to: HeadNumbersMut<'a>,
}

/// Arguments of the kernel `joint_rows`.
pub(super) struct JointRows<'a> {
    pub(super) walk: Walk<'a>,
    pub(super) joint: Joint<'a>,
    pub(super) d_scores: HeadNumbers<'a>,
    pub(super) d_to: *mut f32,
    pub(super) d_to_stride: usize,
    pub(super) d_attention: &'a mut [f32],
    pub(super) d_edge_weight: &'a mut [f32],
}

/// Arguments of the kernel `joint_columns`. `places` are those of the walk's edges, all below the
/// numbers of edges in the heads.
pub(super) struct JointColumns<'a> {
    pub(super) walk: Walk<'a>,
    pub(super) places: &'a [u32],
    pub(super) joint: Joint<'a>,
    pub(super) coefficients: HeadNumbers<'a>,
    pub(super) d_scores: HeadNumbers<'a>,
    pub(super) d_y: *const f32,
    pub(super) d_y_stride: usize,
    pub(super) d_from: *mut f32,
    pub(super) d_from_stride: usize,
}
