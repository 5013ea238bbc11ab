//! Edges between samples, as the trainer reads them.

use megabatch_graph_cache::Graph;
use megabatch_nn::graph::GraphView;
use megabatch_segment::{Compressed, Csc, Csr};

use crate::error::Result;

/// The edges of one graph in memory, by row and by column.
pub(crate) struct Edges {
    row_ptr: Vec<u32>, // [N + 1]
    col: Vec<u32>,     // [E]
    by_column: Compressed<u32>,
    attributes: Vec<f32>, // [E, A]
}

impl Edges {
    /// The edges of `nodes` nodes. Each of `rows` has its columns, below `nodes`, and their
    /// attributes.
    pub(crate) fn from_rows<'r>(nodes: usize, rows: impl Iterator<Item = (&'r [u32], &'r [f32])>) -> Result<Self> {
        let (mut row_ptr, mut col, mut attributes) = (vec![0], Vec::new(), Vec::new());
        for (columns, row_attributes) in rows {
            col.extend_from_slice(columns);
            attributes.extend_from_slice(row_attributes);
            row_ptr.push(u32::try_from(col.len())?);
        }
        Edges::new(nodes, row_ptr, col, attributes)
    }

    /// The edges of a graph, whose attributes are their weights.
    pub(crate) fn from_graph(graph: Graph) -> Result<Self> {
        Edges::new(graph.len(), graph.row_ptr, graph.col, graph.weights)
    }

    fn new(nodes: usize, row_ptr: Vec<u32>, col: Vec<u32>, attributes: Vec<f32>) -> Result<Self> {
        let by_column = Csr::new(&row_ptr, &col, nodes)?.transposed()?;
        Ok(Edges { row_ptr, col, by_column, attributes })
    }

    /// Number of edges.
    pub(crate) fn len(&self) -> usize {
        self.col.len()
    }

    /// Bytes of its lists.
    pub(crate) fn bytes(&self) -> usize {
        let Compressed { offsets, indices, edges } = &self.by_column;
        let indices = [&self.row_ptr, &self.col, offsets, indices, edges].map(|list| size_of_val(list.as_slice()));
        indices.iter().sum::<usize>() + size_of_val(self.attributes.as_slice())
    }

    pub(crate) fn view(&self) -> Result<GraphView<'_>, megabatch_segment::Error> {
        let Compressed { offsets, indices, edges } = &self.by_column;
        let nodes = self.row_ptr.len() - 1;
        Ok(GraphView {
            csr: Csr::new(&self.row_ptr, &self.col, nodes)?,
            csc: Csc::new(offsets, indices, edges, nodes)?,
            attributes: &self.attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_seen_from_both_ends() {
        let rows: [(&[u32], &[f32]); 3] = [(&[1, 2], &[0.5, 0.25]), (&[], &[]), (&[0], &[1.0])];
        let edges = Edges::from_rows(3, rows.into_iter()).unwrap();
        let view = edges.view().unwrap();
        assert_eq!((view.csr.columns_of(0), view.csr.columns_of(2)), (&[1, 2][..], &[0][..]));
        assert_eq!(
            (view.csc.offsets(), view.csc.rows(), view.csc.edges()),
            (&[0, 1, 2, 3][..], &[2, 0, 0][..], &[2, 0, 1][..])
        );
        assert_eq!((edges.len(), view.attributes), (3, &[0.5, 0.25, 1.0][..]));
    }
}
