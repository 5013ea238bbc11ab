//! Graphs of a file as a builder has them, for exporters.

use megabatch_graph_cache::{Builder, Graph, GraphFile, Identity, IndexWidth, Result, Schema, Targets};

/// One graph of a file.
pub(super) struct Stored {
    schema: Schema,
    keys: Vec<String>,
    graph: Graph,
    identity: Identity,
}

impl Stored {
    /// The graph with a key.
    ///
    /// # Errors
    /// [`Error::NoKey`](megabatch_graph_cache::Error::NoKey), which names those around it; what is wrong with the graph.
    pub(super) fn read(file: &GraphFile, key: &str) -> Result<Self> {
        let index = file.index_of(key)?;
        let graph = match file.widths().indices {
            IndexWidth::U32 => file.graph(index)?.to_graph(),
            IndexWidth::U64 => narrow(file.wide_graph(index)?.to_graph()),
        };
        Ok(Stored {
            schema: file.schema().clone(),
            keys: vec![key.to_owned()],
            graph,
            identity: file.identity().clone(),
        })
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The names of the graph's nodes, or their numbers.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |&node: &u32| self.schema.names.get(node as usize).cloned().unwrap_or_else(|| node.to_string());
        self.graph.nodes.iter().map(name).collect()
    }
}

/// The same graph with narrow indices, which count the nodes of any graph, and the edges of any that was built.
fn narrow(graph: Graph<u64>) -> Graph {
    let narrow = |indices: Vec<u64>| indices.into_iter().map(|index| index as u32).collect();
    let targets: Targets = graph.targets;
    Graph {
        nodes: graph.nodes,
        row_ptr: narrow(graph.row_ptr),
        col: narrow(graph.col),
        weights: graph.weights,
        edge_attributes: graph.edge_attributes,
        node_features: graph.node_features,
        targets,
        known_time: graph.known_time,
    }
}

impl Builder for Stored {
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn build(&self, _index: usize) -> Result<Graph> {
        Ok(self.graph.clone())
    }
}
