use std::ops::Range;

use megabatch_nn::model::graph::{AttentionKind, GraphAttention, Joined, LayerSizes};

use super::columns::{Columns, Map};
use crate::kernel::attention::{HeadNumbers, HeadNumbersMut};

/// Most heads of a group: as many numbers as are worked on at once.
const GROUP_MAX: usize = 16;

/// The heads of a layer in groups, whose numbers for an edge or a node lie side by side: groups of
/// a power of two, filled up with heads that nothing reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) count: usize,
    pub(super) group: usize,
}

impl Heads {
    pub(super) fn groups(self) -> usize {
        self.count.div_ceil(self.group)
    }

    /// Heads with those that nothing reads.
    pub(super) fn padded(self) -> usize {
        self.groups() * self.group
    }

    /// The heads of group `group`.
    pub(super) fn group_heads(self, group: usize) -> Range<usize> {
        group * self.group..self.count.min((group + 1) * self.group)
    }

    /// Numbers of `items` edges or nodes for one group.
    pub(super) fn numbers(self, items: &Range<usize>) -> Range<usize> {
        items.start * self.group..items.end * self.group
    }

    /// The range of group `group` in the numbers of all groups, [groups][items][group].
    pub(super) fn among(self, group: usize, items: usize) -> Range<usize> {
        group * items * self.group..(group + 1) * items * self.group
    }

    /// The numbers of head `head` among those of its group, [items][group].
    pub(super) fn numbers_of(self, values: &[f32], head: usize) -> HeadNumbers<'_> {
        HeadNumbers { values, group: self.group, index: head % self.group }
    }

    /// The same, to write.
    pub(super) fn numbers_of_mut(self, values: &mut [f32], head: usize) -> HeadNumbersMut<'_> {
        HeadNumbersMut { values, group: self.group, index: head % self.group }
    }
}

/// A layer in panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct PanelShape {
    pub(super) sizes: LayerSizes,
    pub(super) kind: AttentionKind,
    pub(super) heads: Heads,
    /// The columns of what it reads, of one map of the nodes, and of what it gives.
    pub(super) input: Columns,
    pub(super) projected: Columns,
    pub(super) output: Columns,
}

/// The shapes of all layers.
pub(super) fn shapes(attention: &GraphAttention) -> Vec<PanelShape> {
    let first = attention.layers().first().map_or(0, |layer| layer.sizes.input);
    let mut input = Columns { blocks: 1, units: first };
    let shape = |sizes: LayerSizes| {
        let projected = Columns { blocks: sizes.heads, units: sizes.units };
        let output = match sizes.joined {
            Joined::Concatenated => projected,
            Joined::Averaged => Columns { blocks: 1, units: sizes.units },
        };
        let kind = attention.config().attention;
        let heads = Heads { count: sizes.heads, group: sizes.heads.next_power_of_two().min(GROUP_MAX) };
        let shape = PanelShape { sizes, kind, heads, input, projected, output };
        input = output;
        shape
    };
    attention.layers().iter().map(|layer| layer.sizes).map(shape).collect()
}

impl PanelShape {
    /// Maps of the nodes: GAT has one, GATv2 one for nodes that give and one for nodes that
    /// receive.
    pub(super) fn maps(self) -> usize {
        match self.kind {
            AttentionKind::Gat => 1,
            AttentionKind::GatV2 => 2,
        }
    }

    /// Panels of all maps.
    pub(super) fn map_panels(self) -> usize {
        self.maps() * self.projected.panels()
    }

    /// Columns of all maps, zeros included.
    pub(super) fn map_columns(self) -> usize {
        self.maps() * self.projected.padded()
    }

    pub(super) fn map(self) -> Map {
        Map { rows: self.projected, columns: self.input }
    }

    pub(super) fn residual(self) -> Map {
        Map { rows: self.output, columns: self.input }
    }

    /// The first panel of head `head` among those of a map, and among those of the output.
    pub(super) fn panels_of(self, head: usize) -> (usize, usize) {
        let first = head * self.projected.block_panels();
        match self.sizes.joined {
            Joined::Concatenated => (first, first),
            Joined::Averaged => (first, 0),
        }
    }

    /// Heads with panels of a map among `panels`, each with those panels.
    pub(super) fn heads_among(self, panels: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let head_panels = self.projected.block_panels();
        let heads = panels.start / head_panels..panels.end.div_ceil(head_panels);
        heads.map(move |head| (head, panels.start.max(head * head_panels)..panels.end.min((head + 1) * head_panels)))
    }

    /// The share of the output that a head makes.
    pub(super) fn share(self) -> f32 {
        match self.sizes.joined {
            Joined::Concatenated => 1.0,
            Joined::Averaged => 1.0 / self.sizes.heads as f32,
        }
    }
}
