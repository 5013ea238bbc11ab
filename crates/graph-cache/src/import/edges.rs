//! Edges in any order, sorted into a graph.

use crate::error::Result;
use crate::graph::Graph;
use megabatch_segment::Compressed;

/// Edges in any order.
#[derive(Debug, Default)]
pub(super) struct EdgeList {
    /// [E] nodes that edges come from.
    pub(super) from: Vec<u32>,
    /// [E] nodes that edges go to.
    pub(super) to: Vec<u32>,
    /// [E], or empty.
    pub(super) weights: Vec<f32>,
    /// [E, A] row-major.
    pub(super) attributes: Vec<f32>,
}

impl EdgeList {
    /// The graph of `nodes` nodes; the edges of a row in the order of their columns, those of equal
    /// ends in their own.
    pub(super) fn into_graph(self, nodes: usize) -> Result<Graph> {
        let ends = |source| crate::Error::Csr { graph: String::new(), source };
        // A stable sort by column and then by row gives columns in order within every row.
        let by_column = Compressed::from_edges(&self.from, &self.to, nodes, nodes).map_err(ends)?;
        let from: Vec<u32> = by_column.edges.iter().map(|&edge| self.from[edge as usize]).collect();
        let by_row = Compressed::from_edges(&by_column.indices, &from, nodes, nodes).map_err(ends)?;
        let order: Vec<usize> = by_row.edges.iter().map(|&edge| by_column.edges[edge as usize] as usize).collect();
        Ok(Graph {
            nodes: (0..nodes as u32).collect(),
            row_ptr: by_row.offsets,
            col: by_row.indices,
            weights: in_order(&self.weights, &order),
            edge_attributes: in_order(&self.attributes, &order),
            ..Graph::default()
        })
    }
}

fn in_order(values: &[f32], order: &[usize]) -> Vec<f32> {
    let width = values.len().checked_div(order.len()).unwrap_or(0);
    order.iter().flat_map(|&edge| &values[edge * width..(edge + 1) * width]).copied().collect()
}

/// The graphs whose nodes lie one after the other in `block`, which has no edge between two of
/// them: graph g has the nodes from `offsets[g]` to `offsets[g + 1]`.
pub(super) fn split(block: &Graph, offsets: &[usize]) -> Vec<Graph> {
    let edges = block.col.len();
    let width = |values: &[f32], rows: usize| values.len().checked_div(rows).unwrap_or(0);
    let (attributes, features) = (width(&block.edge_attributes, edges), width(&block.node_features, block.len()));
    let graph = |pair: &[usize]| {
        let (first, end) = (pair[0], pair[1]);
        let edges = block.row_ptr[first] as usize..block.row_ptr[end] as usize;
        let rows = |values: &[f32], width: usize| values[edges.start * width..edges.end * width].to_vec();
        Graph {
            nodes: (0..(end - first) as u32).collect(),
            row_ptr: block.row_ptr[first..=end].iter().map(|offset| offset - edges.start as u32).collect(),
            col: block.col[edges.clone()].iter().map(|column| column - first as u32).collect(),
            weights: rows(&block.weights, usize::from(!block.weights.is_empty())),
            edge_attributes: rows(&block.edge_attributes, attributes),
            node_features: block.node_features[first * features..end * features].to_vec(),
            ..Graph::default()
        }
    };
    offsets.windows(2).map(graph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(edges: &[(u32, u32)]) -> EdgeList {
        EdgeList {
            from: edges.iter().map(|edge| edge.0).collect(),
            to: edges.iter().map(|edge| edge.1).collect(),
            weights: (0..edges.len()).map(|edge| edge as f32).collect(),
            attributes: (0..2 * edges.len()).map(|value| value as f32).collect(),
        }
    }

    #[test]
    fn edges_come_by_row_then_by_column_with_what_belongs_to_them() {
        let graph = list(&[(2, 0), (1, 0), (0, 2), (1, 0)]).into_graph(3).unwrap();
        assert_eq!((graph.row_ptr, graph.col), (vec![0, 3, 3, 4], vec![1, 1, 2, 0]));
        assert_eq!(graph.weights, [1.0, 3.0, 0.0, 2.0]);
        assert_eq!(graph.edge_attributes, [2.0, 3.0, 6.0, 7.0, 0.0, 1.0, 4.0, 5.0]);
        assert!(list(&[(0, 3)]).into_graph(3).is_err());
    }

    #[test]
    fn a_block_is_taken_apart() {
        let mut block = list(&[(1, 0), (3, 3), (3, 2)]).into_graph(4).unwrap();
        block.node_features = vec![0.0, 1.0, 2.0, 3.0];
        let graphs = split(&block, &[0, 2, 2, 4]);
        let mut second = list(&[(1, 1), (1, 0)]).into_graph(2).unwrap();
        second.weights = vec![2.0, 1.0];
        second.edge_attributes = vec![4.0, 5.0, 2.0, 3.0];
        second.node_features = vec![2.0, 3.0];
        assert_eq!(graphs[2], second);
        assert_eq!((graphs[1].len(), &graphs[1].row_ptr), (0, &vec![0]));
        assert_eq!((graphs[0].col.as_slice(), graphs.len()), ([1].as_slice(), 3));
    }
}
