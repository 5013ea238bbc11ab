use std::error::Error as StdError;

use super::GraphView;

/// The time that a target is about, ns since 1970 UTC. Targets whose spans overlap share some of
/// what came, so that their errors and correlations are not independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelSpan {
    /// When it begins: for a return, the time of the first price.
    pub start_ns: i64,
    /// When it ends.
    pub end_ns: i64,
}

/// Owners of the targets in graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphTargets {
    /// Each node has a row of targets.
    Nodes,
    /// Each graph as a whole has a row of targets, which is given for each of its nodes.
    Graphs,
}

/// The port through which training reads graphs whose nodes are samples: a graph is a group of
/// samples, such as all symbols of one day or all atoms of one molecule. Reading happens on another
/// thread than training, hence `Sync`.
pub trait Graphs: Sync {
    /// Number of graphs.
    fn len(&self) -> usize;

    /// True if there are no graphs.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The owners of the targets; `None` where the source does not tell.
    fn targets_of(&self) -> Option<GraphTargets> {
        None
    }

    /// The sample of each node of a graph, in the order of the graph's rows; at least one. A sample
    /// may be a node of several graphs.
    fn nodes(&self, graph: usize) -> &[usize];

    /// The edges of a graph.
    ///
    /// # Errors
    /// Whatever keeps the source from reading; it names its file and place.
    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>>;

    /// A: attributes of an edge.
    fn edge_attributes(&self) -> usize;

    /// Most nodes and most edges of a graph: memory is taken once, for as many of both.
    fn largest(&self) -> (usize, usize);

    /// Edges of a graph, or a bound of their number.
    fn edges_max(&self, graph: usize) -> usize {
        let _ = graph;
        self.largest().1
    }

    /// Nodes of all graphs together.
    fn total_nodes(&self) -> usize {
        (0..self.len()).map(|graph| self.nodes(graph).len()).sum()
    }

    /// Edges of all graphs together.
    fn total_edges(&self) -> usize;

    /// Nodes of a graph whose targets are all known; of a graph that has targets as a whole, which
    /// are those of each of its nodes, 1 where they are known. The targets of others hold a NaN,
    /// and count nowhere.
    fn labelled(&self, graph: usize) -> usize;

    /// The time that the target in place `target` of a graph's nodes is about; `None` where targets
    /// of different graphs have no time in common, as those of molecules.
    fn label_span(&self, graph: usize, target: usize) -> Option<LabelSpan> {
        let _ = (graph, target);
        None
    }
}
