//! Graphs and numbers that the tests make up.

use megabatch_nn::graph::GraphView;
use megabatch_segment::{Compressed, Csc, Csr};

/// A graph that owns its arrays.
pub(crate) struct OwnedGraph {
    row_ptr: Vec<u32>,
    col: Vec<u32>,
    turned: Compressed<u32>,
    pub(crate) attributes: Vec<f32>,
}

impl OwnedGraph {
    /// The graph of `nodes` nodes with these edges, (row, column) in the order of the rows.
    pub(crate) fn new(nodes: usize, edges: &[(u32, u32)], attributes: Vec<f32>) -> Self {
        let ends = (0..=nodes as u32).map(|row| edges.partition_point(|edge| edge.0 < row) as u32);
        let (row_ptr, col): (Vec<u32>, Vec<u32>) = (ends.collect(), edges.iter().map(|edge| edge.1).collect());
        let turned = Csr::new(&row_ptr, &col, nodes).unwrap().transposed().unwrap();
        OwnedGraph { row_ptr, col, turned, attributes }
    }

    /// Each node receives an edge from any node, itself included, with probability `density`.
    pub(crate) fn random(seed: u64, nodes: usize, density: f64, attributes: usize) -> Self {
        let chance = numbers(seed, nodes * nodes);
        let pairs = (0..nodes as u32).flat_map(|row| (0..nodes as u32).map(move |column| (row, column)));
        let edges: Vec<_> =
            pairs.zip(chance).filter(|(_, x)| (x + 1.0) / 2.0 < density).map(|(edge, _)| edge).collect();
        let attributes = numbers(seed + 1, edges.len() * attributes).into_iter().map(|x| x as f32).collect();
        OwnedGraph::new(nodes, &edges, attributes)
    }

    pub(crate) fn view(&self) -> GraphView<'_> {
        let nodes = self.row_ptr.len() - 1;
        GraphView {
            csr: Csr::new(&self.row_ptr, &self.col, nodes).unwrap(),
            csc: Csc::new(&self.turned.offsets, &self.turned.indices, &self.turned.edges, nodes).unwrap(),
            attributes: &self.attributes,
        }
    }
}

/// Numbers in (-1, 1) without pattern: the fractions of a sine's multiple.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let number = |i: usize| ((i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() * 43_758.545_3).fract();
    (0..len).map(number).collect()
}
