use megabatch_segment::{Compressed, Csr, Index};

use crate::error::{Error, Result};
use crate::schema::Schema;

/// A graph in its own memory, in CSR by the nodes that receive messages: the edges of row `r` go
/// from the nodes of its columns to node `r`. N nodes, E edges; A, F and K as in the [`Schema`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph<I = u32> {
    /// `[N]` the place of each node's name in [`Schema::names`]; `0..N` where there are no names.
    pub nodes: Vec<u32>,
    /// [N + 1] first edge of each node, and the number of edges.
    pub row_ptr: Vec<I>,
    /// `[E]` source node of each edge, a place in `nodes`.
    pub col: Vec<I>,
    /// `[E]`, or empty where edges have no weights.
    pub weights: Vec<f32>,
    /// [E, A] row-major.
    pub edge_attributes: Vec<f32>,
    /// [N, F] row-major.
    pub node_features: Vec<f32>,
    /// As the schema's [`TargetLevel`](crate::TargetLevel) says; a target that is not known is NaN.
    pub targets: Targets,
    /// Time from which the graph may be used, in ns since 1970 UTC: when the last of its data
    /// became known.
    pub known_time: Option<i64>,
}

/// Targets of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Targets {
    /// There are none.
    #[default]
    None,
    /// [N, K] of the nodes.
    Nodes(Vec<f32>),
    /// `[K]` of the graph.
    Graph(Vec<f32>),
}

impl<I: Index> Graph<I> {
    /// N.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if the graph has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The edges as CSR, checked.
    ///
    /// # Errors
    /// [`Error::Csr`].
    pub fn csr(&self) -> Result<Csr<'_, I>> {
        Csr::new(&self.row_ptr, &self.col, self.len()).map_err(|source| Error::Csr { graph: String::new(), source })
    }
}

impl Graph {
    /// The graph of weighted edges `(from, to, weight)`, in any order; those of one receiving node
    /// keep it. Weights are dropped where the schema has none.
    ///
    /// # Errors
    /// [`Error::Csr`] for an edge whose end is not a node.
    pub fn from_edges(schema: &Schema, nodes: Vec<u32>, edges: &[(u32, u32, f32)]) -> Result<Self> {
        let count = nodes.len();
        let (from, to): (Vec<u32>, Vec<u32>) = edges.iter().map(|&(from, to, _)| (from, to)).unzip();
        let by_row = Compressed::from_edges(&to, &from, count, count)
            .map_err(|source| Error::Csr { graph: String::new(), source })?;
        let weight = |&edge: &u32| edges[edge as usize].2;
        Ok(Graph {
            nodes,
            weights: if schema.weighted { by_row.edges.iter().map(weight).collect() } else { Vec::new() },
            row_ptr: by_row.offsets,
            col: by_row.indices,
            ..Graph::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_kept_with_the_node_that_receives_them() {
        let schema = Schema { weighted: true, ..Schema::default() };
        let graph = Graph::from_edges(&schema, vec![0, 1, 2], &[(1, 0, 0.5), (0, 2, 1.0), (2, 0, 0.25)]).unwrap();
        assert_eq!((graph.row_ptr, graph.col, graph.weights), (vec![0, 2, 2, 3], vec![1, 2, 0], vec![0.5, 0.25, 1.0]));
        let error = Graph::from_edges(&schema, vec![0], &[(0, 1, 0.0)]).unwrap_err();
        assert!(error.to_string().contains("row[0] is 1"), "{error}");
    }
}
