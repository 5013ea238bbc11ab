//! Encoding of a graph as a block.

#![forbid(unsafe_code)]

use std::ops::Range;

use bytemuck::Pod;
use half::f16;
use megabatch_gpu_core::convert::f32_to_f16;

use super::layout::{BlockLayout, BlockShape, FloatWidth, IndexWidth};
use crate::error::{Error, Result};
use crate::graph::{Graph, Targets};
use crate::schema::TargetLevel;

/// A graph as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GraphBlock {
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
    pub(crate) known_time: Option<i64>,
    pub(crate) bytes: Vec<u8>,
}

/// The block of `graph`, checked against the schema; `key` is for messages.
pub(crate) fn encode(shape: &BlockShape, key: &str, graph: &Graph) -> Result<GraphBlock> {
    check(shape, key, graph)?;
    let (nodes, edges) = (graph.len() as u64, graph.col.len() as u64);
    let layout = BlockLayout::new(shape, nodes, edges).expect("the graph's own arrays are in memory");
    let mut bytes = vec![0; layout.bytes];
    let mut put = |range: &Range<usize>, values: &[u8]| bytes[range.clone()].copy_from_slice(values);
    put(&layout.nodes, bytemuck::cast_slice(&graph.nodes));
    let csc = transposed(graph);
    let topology = [
        (&layout.row_ptr, &graph.row_ptr),
        (&layout.col, &graph.col),
        (&layout.csc_offsets, &csc[0]),
        (&layout.csc_rows, &csc[1]),
        (&layout.csc_edges, &csc[2]),
    ];
    for (range, indices) in topology {
        match shape.widths.indices {
            IndexWidth::U32 => put(range, bytemuck::cast_slice(indices)),
            IndexWidth::U64 => put(range, bytemuck::cast_slice(&widened(indices))),
        }
    }
    let floats = [
        (&layout.weights, "weights", &graph.weights, shape.widths.edges),
        (&layout.edge_attributes, "edge_attributes", &graph.edge_attributes, shape.widths.edges),
        (&layout.node_features, "node_features", &graph.node_features, shape.widths.features),
    ];
    for (range, array, values, width) in floats {
        if let Some(position) = first_wrong(values, f32::is_finite) {
            return Err(Error::NotFinite { graph: key.to_owned(), array, position, value: values[position] });
        }
        match width {
            FloatWidth::F32 => put(range, bytemuck::cast_slice(values)),
            FloatWidth::F16 => put(range, bytemuck::cast_slice(&narrowed(key, array, values)?)),
        }
    }
    match &graph.targets {
        Targets::None => {}
        Targets::Nodes(targets) | Targets::Graph(targets) => {
            if let Some(position) = first_wrong(targets, is_target) {
                let (graph, value) = (key.to_owned(), targets[position]);
                return Err(Error::NotFinite { graph, array: "targets", position, value });
            }
            put(&layout.targets, bytemuck::cast_slice(targets));
        }
    }
    Ok(GraphBlock { nodes, edges, known_time: graph.known_time, bytes })
}

/// Checks that a graph's arrays have the lengths that the schema gives them, and that its indices
/// in the list of names exist.
fn check(shape: &BlockShape, key: &str, graph: &Graph) -> Result<()> {
    graph.csr().map_err(|error| error.about_graph(key))?;
    let (nodes, edges) = (graph.len(), graph.col.len());
    let (level, targets) = match &graph.targets {
        Targets::None => (TargetLevel::None, 0),
        Targets::Nodes(targets) => (TargetLevel::Node, targets.len()),
        Targets::Graph(targets) => (TargetLevel::Graph, targets.len()),
    };
    if level != shape.level {
        return Err(Error::TargetLevel { graph: key.to_owned(), found: level, expected: shape.level });
    }
    let lengths = [
        ("row_ptr", graph.row_ptr.len(), (nodes + 1, 1)),
        ("weights", graph.weights.len(), (edges, shape.weights)),
        ("edge_attributes", graph.edge_attributes.len(), (edges, shape.attributes)),
        ("node_features", graph.node_features.len(), (nodes, shape.features)),
        ("targets", targets, (shape.target_rows(nodes as u64) as usize, shape.targets)),
    ];
    for (array, found, (rows, columns)) in lengths {
        if Some(found) != rows.checked_mul(columns) {
            return Err(Error::Shape {
                graph: key.to_owned(),
                array,
                found,
                expected_rows: rows,
                expected_columns: columns,
            });
        }
    }
    let Some(node) = unnamed(&graph.nodes, shape.names) else { return Ok(()) };
    Err(Error::Unnamed { graph: key.to_owned(), node, place: graph.nodes[node], names: shape.names })
}

/// The first of a graph's nodes that is not below `names`, or, without names, not its own place.
pub(crate) fn unnamed(nodes: &[u32], names: usize) -> Option<usize> {
    if names == 0 {
        return (0..).zip(nodes).position(|(place, &node): (u32, _)| place != node);
    }
    nodes.iter().position(|&node| node as usize >= names)
}

/// The edges by the nodes that they come from: offsets, rows and places. A graph is small, and
/// several are encoded at once.
fn transposed(graph: &Graph) -> [Vec<u32>; 3] {
    let mut offsets = vec![0; graph.len() + 1];
    graph.col.iter().for_each(|&column| offsets[column as usize + 1] += 1);
    (0..graph.len()).for_each(|column| offsets[column + 1] += offsets[column]);
    let (mut rows, mut edges, mut next) = (vec![0; graph.col.len()], vec![0; graph.col.len()], offsets.clone());
    for (row, bounds) in (0..).zip(graph.row_ptr.windows(2)) {
        for edge in bounds[0]..bounds[1] {
            let place = &mut next[graph.col[edge as usize] as usize];
            (rows[*place as usize], edges[*place as usize]) = (row, edge);
            *place += 1;
        }
    }
    [offsets, rows, edges]
}

fn widened(indices: &[u32]) -> Vec<u64> {
    indices.iter().map(|&index| index.into()).collect()
}

/// The finite values as f16; an error if one would become infinite.
fn narrowed(graph: &str, array: &'static str, values: &[f32]) -> Result<Vec<f16>> {
    let mut narrow = vec![f16::ZERO; values.len()];
    f32_to_f16(values, &mut narrow);
    let Some(position) = narrow.iter().position(|narrow| narrow.is_infinite()) else { return Ok(narrow) };
    Err(Error::TooLargeForF16 { graph: graph.to_owned(), array, position, value: values[position] })
}

/// Values tested at once by [`first_wrong`].
const SCANNED_TOGETHER: usize = 512;

/// The position of the first value that is not right.
pub(crate) fn first_wrong<T: Copy>(values: &[T], is_right: impl Fn(T) -> bool) -> Option<usize> {
    values.chunks(SCANNED_TOGETHER).zip((0..).step_by(SCANNED_TOGETHER)).find_map(|(block, start)| {
        // A loop without an early exit is vectorised.
        let are_right = block.iter().fold(true, |all, &value| all & is_right(value));
        let place = if are_right { None } else { block.iter().position(|&value| !is_right(value)) };
        place.map(|place| start + place)
    })
}

/// True for a target that is known, and for NaN, which is an unknown one.
pub(crate) fn is_target(value: f32) -> bool {
    !value.is_infinite()
}

/// The values at `range` of a block.
pub(crate) fn array<'b, T: Pod>(block: &'b [u8], range: &Range<usize>) -> &'b [T] {
    bytemuck::cast_slice(&block[range.clone()])
}
