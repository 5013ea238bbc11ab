//! Batches of graphs as one block-diagonal graph, by offsets alone.

use std::marker::PhantomData;

use megabatch_segment::Index;

use crate::error::Result;
use crate::file::{GraphFile, StoredGraph};

/// Graphs of a file as one graph without edges between them, whose adjacency matrix has theirs on
/// its diagonal. It holds the list of graphs, and the first node and edge of each in the whole: no
/// edge is copied or renumbered, and each block is a graph in the file's memory.
///
/// The lists are reused from batch to batch; a batch of the same graphs as before costs a
/// comparison. A mapped file is looked at once a batch: one that was cut short is an error then.
///
/// ```
/// # use megabatch_graph_cache::{
/// #     BlockDiagonal, BuildOptions, Builder, Graph, GraphFile, Identity, Result, Schema,
/// #     build_cached, unwatched,
/// # };
/// # struct Paths(Schema, Vec<String>);
/// # impl Builder for Paths {
/// #     fn identity(&self) -> Identity { Identity::default() }
/// #     fn schema(&self) -> &Schema { &self.0 }
/// #     fn keys(&self) -> &[String] { &self.1 }
/// #     fn build(&self, index: usize) -> Result<Graph> {
/// #         let nodes = index as u32 + 1;
/// #         let edges: Vec<_> = (1..nodes).map(|node| (node - 1, node, 1.0)).collect();
/// #         Graph::from_edges(&self.0, (0..nodes).collect(), &edges)
/// #     }
/// # }
/// # let folder = tempfile::tempdir().unwrap();
/// # let paths = Paths(Schema::default(), (1..=3).map(|nodes| nodes.to_string()).collect());
/// # let path = folder.path().join("paths.mbg");
/// # let file = build_cached(path, &paths, &BuildOptions::default(), &mut unwatched)?;
/// // `file` has paths of 1, 2 and 3 nodes: 0, 0 → 1 and 0 → 1 → 2.
/// let mut batch = BlockDiagonal::<u32>::new(file);
/// batch.set(&[2, 1])?;
/// assert_eq!(batch.node_offsets(), [0, 3, 5]);
/// assert_eq!(batch.edge_offsets(), [0, 2, 3]);
/// assert_eq!(batch.block(1).csr().columns_of(1), [0]);
/// assert_eq!(batch.edge_index(), [0, 1, 3, 1, 2, 4]); // from, to: as in PyTorch Geometric
/// # Ok::<(), megabatch_graph_cache::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockDiagonal<I = u32> {
    file: GraphFile,
    graphs: Vec<usize>,
    node_offsets: Vec<usize>,
    edge_offsets: Vec<usize>,
    indices: PhantomData<I>,
}

impl<I: Index> BlockDiagonal<I> {
    /// A batch of no graphs of `file`.
    pub fn new(file: GraphFile) -> Self {
        BlockDiagonal { file, graphs: Vec::new(), node_offsets: vec![0], edge_offsets: vec![0], indices: PhantomData }
    }

    /// Sets the batch to `graphs`, in any order and with repetitions.
    ///
    /// # Errors
    /// [`Error::NoGraph`](crate::Error::NoGraph), [`Error::IndexWidth`](crate::Error::IndexWidth)
    /// or [`Error::Damaged`](crate::Error::Damaged); the batch is then unchanged.
    pub fn set(&mut self, graphs: &[usize]) -> Result<()> {
        self.file.ready::<I>(graphs)?;
        if self.graphs == graphs {
            return Ok(());
        }
        self.graphs.clear();
        self.graphs.extend_from_slice(graphs);
        self.node_offsets.truncate(1);
        self.edge_offsets.truncate(1);
        let (mut node, mut edge) = (0, 0);
        for &graph in graphs {
            let (nodes, edges) = self.file.size(graph);
            (node, edge) = (node + nodes, edge + edges);
            self.node_offsets.push(node);
            self.edge_offsets.push(edge);
        }
        Ok(())
    }

    /// The file of the graphs.
    pub fn file(&self) -> &GraphFile {
        &self.file
    }

    /// The graphs, in order.
    pub fn graphs(&self) -> &[usize] {
        &self.graphs
    }

    /// Number of graphs.
    pub fn len(&self) -> usize {
        self.graphs.len()
    }

    /// True if there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.graphs.is_empty()
    }

    /// [graphs + 1] the first node of each graph in the whole, and the number of all.
    pub fn node_offsets(&self) -> &[usize] {
        &self.node_offsets
    }

    /// [graphs + 1] the first edge of each graph in the whole, and the number of all.
    pub fn edge_offsets(&self) -> &[usize] {
        &self.edge_offsets
    }

    /// Number of nodes of all graphs.
    pub fn nodes(&self) -> usize {
        self.node_offsets[self.len()]
    }

    /// Number of edges of all graphs.
    pub fn edges(&self) -> usize {
        self.edge_offsets[self.len()]
    }

    /// The graph at `place` of the batch.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn block(&self, place: usize) -> StoredGraph<'_, I> {
        self.file.stored_after_check(self.graphs[place])
    }

    /// The graphs of the batch, in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = StoredGraph<'_, I>> {
        (0..self.len()).map(|place| self.block(place))
    }

    /// The whole as PyTorch Geometric's `edge_index`, [2, edges] row-major: the nodes that edges
    /// come from, then those that they go to, in the order of the blocks and of their rows.
    pub fn edge_index(&self) -> Vec<i64> {
        let mut ends = vec![0; 2 * self.edges()];
        let (mut from, mut to) = ends.split_at_mut(self.edges());
        for (block, &start) in self.blocks().zip(&self.node_offsets) {
            let csr = block.csr();
            for row in 0..csr.rows() {
                let columns = csr.columns_of(row);
                let (own_from, own_to);
                (own_from, from) = from.split_at_mut(columns.len());
                (own_to, to) = to.split_at_mut(columns.len());
                for (end, column) in own_from.iter_mut().zip(columns) {
                    *end = start as i64 + column.wide() as i64;
                }
                own_to.fill((start + row) as i64);
            }
        }
        ends
    }
}
