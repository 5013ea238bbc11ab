//! Graphs of a file as a builder has them, for exporters.

use megabatch_graph_cache::{Builder, Graph, GraphFile, Identity, IndexWidth, Result, Schema, Targets};

/// Some graphs of a file, which are read when they are asked for.
pub(super) struct Stored<'f> {
    file: &'f GraphFile,
    /// The place of each in the file.
    indices: Vec<usize>,
    keys: Vec<String>,
}

impl<'f> Stored<'f> {
    /// The graphs with these keys, in their order.
    ///
    /// # Errors
    /// [`Error::NoKey`](megabatch_graph_cache::Error::NoKey), which names those around it.
    pub(super) fn with_keys<K: AsRef<str>>(file: &'f GraphFile, keys: &[K]) -> Result<Self> {
        let indices = keys.iter().map(|key| file.index_of(key.as_ref())).collect::<Result<Vec<_>>>()?;
        Ok(Stored::at(file, indices))
    }

    /// All graphs of the file.
    pub(super) fn all(file: &'f GraphFile) -> Self {
        Stored::at(file, (0..file.len()).collect())
    }

    fn at(file: &'f GraphFile, indices: Vec<usize>) -> Self {
        let keys = indices.iter().map(|&index| file.key(index).to_owned()).collect();
        Stored { file, indices, keys }
    }

    pub(super) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Numbers of nodes and of edges, of all together.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let sizes = self.indices.iter().map(|&index| self.file.size(index));
        sizes.fold((0, 0), |(nodes, edges), size| (nodes + size.0, edges + size.1))
    }

    /// The names of a graph's nodes, or their numbers.
    pub(super) fn names(&self, graph: &Graph) -> Vec<String> {
        let names = &self.schema().names;
        let name = |&node: &u32| names.get(node as usize).cloned().unwrap_or_else(|| node.to_string());
        graph.nodes.iter().map(name).collect()
    }
}

impl Builder for Stored<'_> {
    fn identity(&self) -> Identity {
        self.file.identity().clone()
    }

    fn schema(&self) -> &Schema {
        self.file.schema()
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn build(&self, index: usize) -> Result<Graph> {
        let index = self.indices[index];
        Ok(match self.file.widths().indices {
            IndexWidth::U32 => self.file.graph(index)?.to_graph(),
            IndexWidth::U64 => narrow(self.file.wide_graph(index)?.to_graph()),
        })
    }
}

/// The same graph with narrow indices, which count the nodes of any graph, and the edges of any
/// that was built.
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
