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
    edges: Option<Arc<BatchEdges>>,
}

/// Form of the edges of a batch's graphs.
#[derive(Clone, Copy, Debug)]
pub enum EdgeForm {
    /// A view of each graph.
    Views,
    /// A view of each graph, and lists of the edges of all, for a device that computes them
    /// together.
    Lists {
        /// The edges that the device sees.
        seen: SeenEdges,
        /// Number of nodes that lists of a number of nodes are padded to.
        padded_nodes: fn(usize) -> usize,
    },
    /// None: a device keeps the lists of all graphs of the source.
    OnDevice,
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
    /// The graphs `indices`, which [`check_graphs`] let pass, with their edges in this form.
    pub fn read(graphs: &'a dyn Graphs, indices: &[usize], form: EdgeForm) -> Result<Self> {
        let mut offsets = vec![0];
        for &graph in indices {
            offsets.push(offsets[offsets.len() - 1] + graphs.nodes(graph).len());
        }
        let mut batch = GraphBatch { indices: indices.to_vec(), views: Vec::new(), offsets, edges: None };
        if matches!(form, EdgeForm::OnDevice) {
            return Ok(batch);
        }
        let (_, edges_max) = graphs.largest();
        batch.views.reserve_exact(indices.len());
        for &graph in indices {
            let view = graphs.graph(graph).map_err(|source| Error::Graph { graph, source })?;
            check_view(graphs, graph, &view, edges_max)?;
            batch.views.push(view);
        }
        if let EdgeForm::Lists { seen, padded_nodes } = form {
            let mut lists = batch.lists(seen)?;
            lists.pad(padded_nodes(lists.graph_of.len()));
            batch.edges = Some(Arc::new(lists));
        }
        Ok(batch)
    }

    /// Lists of what is `seen` of the graphs' edges.
    ///
    /// # Errors
    /// [`Error::Setting`] for 2³² nodes and edges or more.
    pub fn lists(&self, seen: SeenEdges) -> Result<BatchEdges> {
        check_places(&self.views)?;
        Ok(BatchEdges::new(self.indices.iter().copied().zip(self.views.iter().copied()), seen))
    }

    /// Number of graphs.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// True if there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Place of each graph in the source.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// One of the graphs.
    ///
    /// # Panics
    /// If a device keeps the edges.
    pub fn view(&self, graph: usize) -> GraphView<'a> {
        self.views[graph]
    }

    /// Lists of the edges of all graphs, if the batch brings them.
    pub fn edges(&self) -> Option<&Arc<BatchEdges>> {
        self.edges.as_ref()
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
fn check_view(graphs: &dyn Graphs, graph: usize, view: &GraphView<'_>, edges_max: usize) -> Result<()> {
    let (nodes, attributes) = (graphs.nodes(graph).len(), graphs.edge_attributes());
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
