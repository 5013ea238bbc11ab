//! Layout of the arrays of a block: a function of the collection's schema and a graph's numbers of
//! nodes and edges.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::schema::{Schema, TargetLevel};

/// Alignment of every array and of every block, in bytes: a cache line, and what gpu-core gives its
/// buffers.
pub(crate) const ALIGN: usize = 64;
/// Alignment of every section, in bytes.
pub(crate) const PAGE: usize = 4096;

/// Widths of the numbers of a file. Targets are always f32, and a graph's places in the list of
/// names always u32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Widths {
    /// Offsets and indices.
    pub indices: IndexWidth,
    /// Weights and attributes of edges.
    pub edges: FloatWidth,
    /// Features of nodes.
    pub features: FloatWidth,
}

/// Width of offsets and indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexWidth {
    /// For graphs of less than 2³² nodes and edges, each.
    #[default]
    U32,
    /// For all others.
    U64,
}

impl IndexWidth {
    /// Size of one.
    pub fn bytes(self) -> usize {
        match self {
            IndexWidth::U32 => 4,
            IndexWidth::U64 => 8,
        }
    }
}

/// Width of floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FloatWidth {
    /// As they are in memory.
    #[default]
    F32,
    /// Rounded to nearest, ties to even: eleven significant bits, up to 65,504.
    F16,
}

impl FloatWidth {
    /// Size of one.
    pub fn bytes(self) -> usize {
        match self {
            FloatWidth::F32 => 4,
            FloatWidth::F16 => 2,
        }
    }
}

/// Shape that all blocks of a collection share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockShape {
    pub(crate) widths: Widths,
    pub(crate) names: usize,
    pub(crate) weights: usize,
    pub(crate) attributes: usize,
    pub(crate) features: usize,
    pub(crate) targets: usize,
    pub(crate) level: TargetLevel,
}

impl BlockShape {
    pub(crate) fn new(schema: &Schema, widths: Widths) -> Self {
        BlockShape {
            widths,
            names: schema.names.len(),
            weights: usize::from(schema.weighted),
            attributes: schema.edge_attributes.len(),
            features: schema.node_features.len(),
            targets: schema.targets.len(),
            level: schema.target_level,
        }
    }

    /// Rows of targets in a graph of `nodes` nodes.
    pub(crate) fn target_rows(&self, nodes: u64) -> u64 {
        match self.level {
            TargetLevel::None => 0,
            TargetLevel::Node => nodes,
            TargetLevel::Graph => 1,
        }
    }
}

/// Bytes of each array within a block, in the order in which they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    pub(crate) nodes: Range<usize>,
    pub(crate) row_ptr: Range<usize>,
    pub(crate) col: Range<usize>,
    pub(crate) csc_offsets: Range<usize>,
    pub(crate) csc_rows: Range<usize>,
    pub(crate) csc_edges: Range<usize>,
    pub(crate) weights: Range<usize>,
    pub(crate) edge_attributes: Range<usize>,
    pub(crate) node_features: Range<usize>,
    pub(crate) targets: Range<usize>,
    /// Size of the block, a multiple of [`ALIGN`].
    pub(crate) bytes: usize,
}

impl BlockLayout {
    /// `None` for a graph that is too large for the machine's memory.
    pub(crate) fn new(shape: &BlockShape, nodes: u64, edges: u64) -> Option<Self> {
        let Widths { indices, edges: edge_floats, features } = shape.widths;
        let (index, weight, feature) = (indices.bytes(), edge_floats.bytes(), features.bytes());
        let offsets = nodes.checked_add(1)?;
        let mut end = 0;
        let mut array = |rows, columns, bytes| place(&mut end, rows, columns, bytes);
        let layout = BlockLayout {
            nodes: array(nodes, 1, size_of::<u32>())?,
            row_ptr: array(offsets, 1, index)?,
            col: array(edges, 1, index)?,
            csc_offsets: array(offsets, 1, index)?,
            csc_rows: array(edges, 1, index)?,
            csc_edges: array(edges, 1, index)?,
            weights: array(edges, shape.weights, weight)?,
            edge_attributes: array(edges, shape.attributes, weight)?,
            node_features: array(nodes, shape.features, feature)?,
            targets: array(shape.target_rows(nodes), shape.targets, size_of::<f32>())?,
            bytes: 0,
        };
        Some(BlockLayout { bytes: end, ..layout })
    }
}

/// The bytes of an array behind `end`, which moves behind them and their padding.
fn place(end: &mut usize, rows: u64, columns: usize, bytes: usize) -> Option<Range<usize>> {
    let start = *end;
    let len = usize::try_from(rows).ok()?.checked_mul(columns)?.checked_mul(bytes)?;
    let stop = start.checked_add(len)?;
    *end = stop.checked_next_multiple_of(ALIGN)?;
    Some(start..stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(widths: Widths) -> BlockShape {
        BlockShape { widths, names: 9, weights: 1, attributes: 2, features: 3, targets: 4, level: TargetLevel::Node }
    }

    #[test]
    fn arrays_follow_one_another_at_multiples_of_64() {
        let layout = BlockLayout::new(&shape(Widths::default()), 16, 17).unwrap();
        let expected = BlockLayout {
            nodes: 0..64,
            row_ptr: 64..132,
            col: 192..260,
            csc_offsets: 320..388,
            csc_rows: 448..516,
            csc_edges: 576..644,
            weights: 704..772,
            edge_attributes: 832..968,
            node_features: 1024..1216,
            targets: 1216..1472,
            bytes: 1472,
        };
        assert_eq!(layout, expected);
        let widths = Widths { indices: IndexWidth::U64, edges: FloatWidth::F16, features: FloatWidth::F16 };
        let other = BlockLayout::new(&shape(widths), 16, 17).unwrap();
        let lengths =
            [other.row_ptr, other.weights, other.edge_attributes, other.node_features].map(|array| array.len());
        assert_eq!(lengths, [17 * 8, 17 * 2, 34 * 2, 48 * 2]);
    }

    #[test]
    fn sizes_that_no_memory_has_are_refused() {
        for (nodes, edges) in [(u64::MAX, 0), (0, u64::MAX), (1 << 61, 1), (1, 1 << 61), (u64::MAX - 1, 1)] {
            assert_eq!(BlockLayout::new(&shape(Widths::default()), nodes, edges), None, "{nodes} {edges}");
        }
        assert_eq!(BlockLayout::new(&shape(Widths::default()), 0, 0).unwrap().bytes, 128);
    }
}
