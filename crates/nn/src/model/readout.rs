use serde::{Deserialize, Serialize};

/// Level at which a model over graphs predicts: each node, or a graph as a whole from its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readout {
    /// For each node, as it is.
    #[default]
    Node,
    /// For the graph, from the mean over its nodes.
    Mean,
    /// For the graph, from the sum over its nodes.
    Sum,
    /// For the graph, from the largest number of any node, unit by unit; the first node's where
    /// several have it.
    Max,
}

impl Readout {
    /// Rows of what is predicted for a graph of `nodes` nodes.
    pub fn rows(self, nodes: usize) -> usize {
        if self == Readout::Node { nodes } else { 1 }
    }
}
