#![forbid(unsafe_code)]

//! The graphs of a batch.

use std::ops::Range;
use std::sync::Arc;

use super::{BatchEdges, GraphView, Graphs, SeenEdges};
use crate::error::{Error, Result};

/// Graphs whose nodes, graph after graph, are the samples of a batch.
#[derive(Clone, Debug)]
pub struct GraphBatch<'a> {
    /// Their places in the source.
    indices: Vec<usize>,
    views: Vec<GraphView<'a>>,
    /// Starts of each graph's samples, and the end of the last.
    offsets: Vec<usize>,
    /// The edges of all of them, for what computes them together.
    edges: Option<Arc<BatchEdges>>,
}

/// Refuses graphs that there are not, that have no nodes or more than the largest is said to have.
pub fn check_graphs(graphs: &dyn Graphs, indices: impl IntoIterator<Item = usize>) -> Result<()> {
    let (len, nodes_max) = (graphs.len(), graphs.largest().0);
    for graph in indices {
        if graph >= len {
            return Err(Error::GraphOutOfRange { graph, len });
        }
        let nodes = graphs.nodes(graph).len();
        if !(1..=nodes_max).contains(&nodes) {
            let expected = format!("1 to {nodes_max} nodes; leave out graphs without nodes");
            return Err(Error::GraphShape { graph, found: format!("{nodes} nodes"), expected });
        }
    }
    Ok(())
}

/// The samples of `indices`, which [`check_graphs`] let pass, graph after graph.
pub fn samples_of(graphs: &dyn Graphs, indices: &[usize]) -> Vec<usize> {
    indices.iter().flat_map(|&graph| graphs.nodes(graph)).copied().collect()
}

impl<'a> GraphBatch<'a> {
    /// The graphs `indices`, which [`check_graphs`] let pass; with the lists of their edges where
    /// it is said what of these is `seen`.
    pub fn read(graphs: &'a dyn Graphs, indices: &[usize], seen: Option<SeenEdges>) -> Result<Self> {
        let mut offsets = vec![0];
        let mut views = Vec::with_capacity(indices.len());
        for &graph in indices {
            let view = graphs.graph(graph).map_err(|source| Error::Graph { graph, source })?;
            check_view(graphs, graph, &view)?;
            offsets.push(offsets[offsets.len() - 1] + view.nodes());
            views.push(view);
        }
        if seen.is_some() {
            check_places(&views)?;
        }
        let graphs = || indices.iter().copied().zip(views.iter().copied());
        let edges = seen.map(|seen| Arc::new(BatchEdges::new(graphs(), seen)));
        Ok(GraphBatch { indices: indices.to_vec(), views, offsets, edges })
    }

    /// Number of graphs.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// True if there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Its place in the source.
    pub fn index(&self, graph: usize) -> usize {
        self.indices[graph]
    }

    /// One of the graphs.
    pub fn view(&self, graph: usize) -> GraphView<'a> {
        self.views[graph]
    }

    /// The edges of all graphs.
    ///
    /// # Panics
    /// If it was not said what of them is seen.
    pub fn edges(&self) -> Arc<BatchEdges> {
        Arc::clone(self.edges.as_ref().expect("a batch that was read for lists of its edges"))
    }

    /// The samples that are the nodes of each.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        self.offsets.windows(2).map(|pair| pair[0]..pair[1])
    }
}

/// Refuses batches whose nodes and edges numbers of 32 bits do not count.
fn check_places(views: &[GraphView<'_>]) -> Result<()> {
    let places: usize = views.iter().map(|view| view.nodes() + view.edges()).sum();
    if u32::try_from(places).is_ok() {
        return Ok(());
    }
    let expected = "less on a GPU, with more gradient accumulation: nodes and edges of a batch must be fewer than 2^32";
    Err(Error::setting("batch_size", &views.len(), expected))
}

/// Refuses edges that are not of the graph's nodes, or more than memory was taken for.
fn check_view(graphs: &dyn Graphs, graph: usize, view: &GraphView<'_>) -> Result<()> {
    let (nodes, (_, edges_max), attributes) = (graphs.nodes(graph).len(), graphs.largest(), graphs.edge_attributes());
    let fits = [view.nodes(), view.csr.columns(), view.csc.columns()] == [nodes; 3]
        && view.edges() <= edges_max
        && view.csc.edges().len() == view.edges()
        && view.attributes.len() == view.edges() * attributes;
    if fits {
        return Ok(());
    }
    let found = format!("{} nodes, {} edges and {} attributes", view.nodes(), view.edges(), view.attributes.len());
    let expected = format!("{nodes} nodes, up to {edges_max} edges and {attributes} attributes of each");
    Err(Error::GraphShape { graph, found, expected })
}
