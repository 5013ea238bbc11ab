//! Graphs whose nodes are samples: the port that they come through, views, lists of edges.

mod batch;
mod dropout;
mod edges;
mod lists;
mod port;

use megabatch_segment::{Csc, Csr};

pub use batch::{EdgeForm, GraphBatch, check_graphs, samples_of};
pub use dropout::{GraphDropout, GraphMask};
pub use edges::{place_attributes, places};
pub use lists::{BatchEdges, GraphStart, ListStart, NO_EDGE, SeenEdges};
pub use port::{GraphTargets, Graphs, LabelSpan};

/// One graph as training reads it, wherever it lies: N nodes, E edges with A attributes. The batch
/// of several graphs is a list of these, and no edge is copied.
#[derive(Clone, Copy, Debug)]
pub struct GraphView<'a> {
    /// The edges by the node that receives them: node `r` gathers from `csr.columns_of(r)`.
    pub csr: Csr<'a, u32>,
    /// The same edges by the node that they come from, for the backward pass.
    pub csc: Csc<'a, u32>,
    /// [E, A] in the order of `csr`, row-major; what attention sees of an edge. Empty where A = 0.
    pub attributes: &'a [f32],
}

impl GraphView<'_> {
    /// N.
    pub fn nodes(&self) -> usize {
        self.csr.rows()
    }

    /// E.
    pub fn edges(&self) -> usize {
        self.csr.edges()
    }
}
