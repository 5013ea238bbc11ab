#![forbid(unsafe_code)]

/// What all graphs of one collection have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// Names that nodes are told apart by, such as symbols; a graph's nodes are places in this list. Empty where nodes have no identity
    /// beyond their graph.
    pub names: Vec<String>,
    /// Whether edges have weights.
    pub weighted: bool,
    /// A: names of the attributes of edges, in order.
    pub edge_attributes: Vec<String>,
    /// F: names of the features of nodes, in order.
    pub node_features: Vec<String>,
    /// K: names of the targets, in order; for a classification, the classes.
    pub targets: Vec<String>,
    /// What has the targets.
    pub target_level: TargetLevel,
}

/// What has targets in a collection of graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetLevel {
    /// Nothing: the graphs are joined with targets from elsewhere.
    #[default]
    None,
    /// Every node.
    Node,
    /// Every graph as a whole.
    Graph,
}
