//! Graphs of a file as arrays, for programs that train on their own.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use megabatch_graph_cache::{BlockDiagonal, FloatArray, Floats, GraphFile, IndexWidth, PrivateGraphs, TargetLevel};
use megabatch_segment::Index;
use serde_json::Value;

use super::inspect::facts;
use crate::error::{Error, Result};

/// An open file of graphs. Above 128 MiB its memory is shared with other processes that have the
/// file open.
#[derive(Clone, Debug)]
pub struct GraphReader {
    file: GraphFile,
    /// Memory of [`GraphReader::graph`], from its first call on; `None` for a mapped file.
    private: Arc<OnceLock<Option<Arc<PrivateGraphs>>>>,
}

/// One graph, whose floats lie in memory that programs may write. N nodes, E edges; F, A and K
/// features, attributes and targets.
#[derive(Clone, Debug)]
pub struct GraphInPlace {
    /// `[2, E]` the nodes that edges come from, then those that they go to.
    pub edge_index: Vec<i64>,
    /// `[N]` the place of each node's name in the file's list of names.
    pub node_names: Vec<i64>,
    /// `[E]`.
    pub edge_weight: Option<FloatTable>,
    /// [E, A].
    pub edge_attr: Option<FloatTable>,
    /// [N, F].
    pub x: Option<FloatTable>,
    /// [N, K] of nodes or [1, K] of the graph. Unknown ones are NaN.
    pub y: Option<FloatTable>,
    /// Memory that the floats may lie in: whoever uses them keeps it. `None` for a mapped file.
    pub memory: Option<Arc<PrivateGraphs>>,
}

/// Numbers of a graph, row-major.
#[derive(Clone, Debug)]
pub struct FloatTable {
    /// The numbers.
    pub values: FloatValues,
    /// Their shape.
    pub shape: Vec<usize>,
}

/// Place of the numbers of a graph.
#[derive(Clone, Debug)]
pub enum FloatValues {
    /// In the memory of the file.
    InPlace(FloatArray),
    /// In memory of their own, as the file is mapped or has them in half precision.
    Copied(Vec<f32>),
}

/// Some graphs as one without edges between them, as PyTorch Geometric has batches. G graphs, N
/// nodes, E edges; F, A and K features, attributes and targets. Arrays are row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphArrays {
    /// `[2, E]` the nodes that edges come from, then those that they go to.
    pub edge_index: Vec<i64>,
    /// `[E]`, or empty where edges have no weights.
    pub edge_weight: Vec<f32>,
    /// [E, A].
    pub edge_attr: Vec<f32>,
    /// [N, F].
    pub x: Vec<f32>,
    /// [N, K] of nodes or [G, K] of graphs; empty without targets. Unknown ones are NaN.
    pub y: Vec<f32>,
    /// `[N]` the place of each node's name in the file's list of names.
    pub node_names: Vec<i64>,
    /// `[N]` the graph that each node is in.
    pub batch: Vec<i64>,
    /// [G + 1] the first node of each graph, and N.
    pub node_offsets: Vec<i64>,
    /// [G + 1] the first edge of each graph, and E.
    pub edge_offsets: Vec<i64>,
}

impl GraphReader {
    /// Opens the file of graphs `path`.
    ///
    /// # Errors
    /// A data error where it is none, or damaged.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(GraphReader { file: GraphFile::open(path)?, private: Arc::default() })
    }

    /// Contents of the file: what `megabatch graph inspect --json` prints.
    pub fn facts(&self) -> Value {
        facts(&self.file)
    }

    /// Fingerprint of the file, of all its bytes.
    pub fn fingerprint(&self) -> String {
        format!("{:032x}", self.file.fingerprint())
    }

    /// Number of graphs.
    pub fn len(&self) -> usize {
        self.file.len()
    }

    /// True if there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// Number of the graph with this key.
    ///
    /// # Errors
    /// A usage error that names the keys around it.
    pub fn find(&self, key: &str) -> Result<usize> {
        Ok(self.file.index_of(key)?)
    }

    /// Numbers of nodes and of edges of each graph.
    pub fn sizes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.file.len()).map(|graph| self.file.size(graph))
    }

    /// Time from which each graph may be used, in ns since 1970 UTC.
    pub fn known_times(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        (0..self.file.len()).map(|graph| self.file.known_time(graph))
    }

    /// The graph with this number, whose floats are copied only if the file is mapped or has them
    /// in half precision.
    ///
    /// # Errors
    /// A usage error for a number that no graph has; a data error that names a damaged graph.
    pub fn graph(&self, graph: usize) -> Result<GraphInPlace> {
        self.require_number(graph)?;
        match self.file.widths().indices {
            IndexWidth::U32 => self.graph_of_width::<u32>(graph),
            IndexWidth::U64 => self.graph_of_width::<u64>(graph),
        }
    }

    fn graph_of_width<I: Index>(&self, graph: usize) -> Result<GraphInPlace> {
        let memory = self.private_graphs();
        let floats = memory.as_ref().map(|memory| memory.graph(graph)).transpose()?;
        let mut batch = BlockDiagonal::<I>::new(self.file.clone());
        batch.set(&[graph])?;
        let block = batch.block(0);
        let schema = self.file.schema();
        let (nodes, edges) = (batch.nodes(), batch.edges());
        let values = |in_place: Option<FloatArray>, stored: Floats<'_>| match in_place {
            Some(array) => FloatValues::InPlace(array),
            None => FloatValues::Copied(stored.to_vec()),
        };
        let table = |rows, columns: &[String], values| {
            (!columns.is_empty()).then(|| FloatTable { values, shape: vec![rows, columns.len()] })
        };
        let weights = values(floats.and_then(|floats| floats.weights), block.weights());
        let attributes = values(floats.and_then(|floats| floats.edge_attributes), block.edge_attributes());
        let features = values(floats.and_then(|floats| floats.node_features), block.node_features());
        let target_rows = match schema.target_level {
            TargetLevel::None => None,
            TargetLevel::Node => Some(nodes),
            TargetLevel::Graph => Some(1),
        };
        let targets = match floats {
            Some(floats) => FloatValues::InPlace(floats.targets),
            None => FloatValues::Copied(block.targets().to_vec()),
        };
        Ok(GraphInPlace {
            edge_index: batch.edge_index(),
            node_names: block.nodes().iter().map(|&name| i64::from(name)).collect(),
            edge_weight: schema.weighted.then(|| FloatTable { values: weights, shape: vec![edges] }),
            edge_attr: table(edges, &schema.edge_attributes, attributes),
            x: table(nodes, &schema.node_features, features),
            y: target_rows.and_then(|rows| table(rows, &schema.targets, targets)),
            memory,
        })
    }

    /// The memory that the floats of single graphs lie in; `None` for a mapped file.
    fn private_graphs(&self) -> Option<Arc<PrivateGraphs>> {
        if let Some(private) = self.private.get() {
            return private.clone();
        }
        let private = self.file.private().map(Arc::new);
        self.private.get_or_init(|| private).clone()
    }

    fn require_number(&self, graph: usize) -> Result<()> {
        if graph < self.file.len() {
            return Ok(());
        }
        Err(Error::usage(format!("graph {graph}: the file has {}, counted from 0", self.file.len())))
    }

    /// The graphs with these numbers, in this order, which may repeat some.
    ///
    /// # Errors
    /// A usage error for a number that no graph has; a data error that names a damaged graph.
    pub fn arrays(&self, graphs: &[usize]) -> Result<GraphArrays> {
        graphs.iter().try_for_each(|&graph| self.require_number(graph))?;
        match self.file.widths().indices {
            IndexWidth::U32 => self.arrays_of_width::<u32>(graphs),
            IndexWidth::U64 => self.arrays_of_width::<u64>(graphs),
        }
    }

    fn arrays_of_width<I: Index>(&self, graphs: &[usize]) -> Result<GraphArrays> {
        let mut batch = BlockDiagonal::<I>::new(self.file.clone());
        batch.set(graphs)?;
        let schema = self.file.schema();
        let (nodes, edges) = (batch.nodes(), batch.edges());
        let target_rows = match schema.target_level {
            TargetLevel::None => 0,
            TargetLevel::Node => nodes,
            TargetLevel::Graph => batch.len(),
        };
        let mut arrays = GraphArrays {
            edge_index: batch.edge_index(),
            edge_weight: vec![0.0; if schema.weighted { edges } else { 0 }],
            edge_attr: vec![0.0; edges * schema.edge_attributes.len()],
            x: vec![0.0; nodes * schema.node_features.len()],
            y: Vec::with_capacity(target_rows * schema.targets.len()),
            node_names: Vec::with_capacity(nodes),
            batch: Vec::with_capacity(nodes),
            node_offsets: batch.node_offsets().iter().map(|&node| node as i64).collect(),
            edge_offsets: batch.edge_offsets().iter().map(|&edge| edge as i64).collect(),
        };
        for (graph, block) in batch.blocks().enumerate() {
            let (first_node, first_edge) = (batch.node_offsets()[graph], batch.edge_offsets()[graph]);
            let part = |values: usize, width: usize, first: usize| first * width..first * width + values;
            let (weights, attributes, features) = (block.weights(), block.edge_attributes(), block.node_features());
            weights.copy_to(&mut arrays.edge_weight[part(weights.len(), usize::from(schema.weighted), first_edge)]);
            let width = schema.edge_attributes.len();
            attributes.copy_to(&mut arrays.edge_attr[part(attributes.len(), width, first_edge)]);
            let width = schema.node_features.len();
            features.copy_to(&mut arrays.x[part(features.len(), width, first_node)]);
            arrays.y.extend_from_slice(block.targets());
            arrays.node_names.extend(block.nodes().iter().map(|&name| i64::from(name)));
            arrays.batch.extend(std::iter::repeat_n(graph as i64, block.len()));
        }
        Ok(arrays)
    }
}

#[cfg(test)]
mod tests {
    use megabatch_graph_cache::{BuildOptions, Builder, Graph, Identity, Schema, Targets, build_cached, unwatched};

    use super::*;

    /// Paths of 1, 2 and 3 nodes, with everything that a graph may have.
    struct Paths(Schema, Vec<String>);

    impl Builder for Paths {
        fn identity(&self) -> Identity {
            Identity::default()
        }

        fn schema(&self) -> &Schema {
            &self.0
        }

        fn keys(&self) -> &[String] {
            &self.1
        }

        fn build(&self, index: usize) -> megabatch_graph_cache::Result<Graph> {
            let nodes = index as u32 + 1;
            let edges: Vec<_> = (1..nodes).map(|node| (node - 1, node, node as f32)).collect();
            let mut graph = Graph::from_edges(&self.0, (0..nodes).collect(), &edges)?;
            graph.node_features = (0..2 * nodes).map(|value| (10 * index) as f32 + value as f32).collect();
            graph.edge_attributes = edges.iter().map(|edge| -edge.2).collect();
            graph.targets = Targets::Graph(vec![index as f32]);
            graph.known_time = (index > 0).then_some(index as i64);
            Ok(graph)
        }
    }

    fn reader() -> (tempfile::TempDir, GraphReader) {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let schema = Schema {
            weighted: true,
            edge_attributes: names(&["length"]),
            node_features: names(&["a", "b"]),
            targets: names(&["size"]),
            target_level: TargetLevel::Graph,
            ..Schema::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("paths.mbg");
        build_cached(&path, &Paths(schema, names(&["one", "two", "three"])), &BuildOptions::default(), &mut unwatched)
            .unwrap();
        let reader = GraphReader::open(&path).unwrap();
        (folder, reader)
    }

    #[test]
    fn floats_of_a_graph_lie_in_the_memory_of_its_file() {
        let (_folder, reader) = reader();
        let one = reader.graph(2).unwrap();
        assert_eq!((one.edge_index, one.node_names), (vec![0, 1, 1, 2], vec![0, 1, 2]));
        let shapes = [one.edge_weight, one.edge_attr, one.x, one.y].map(|table| table.unwrap().shape);
        assert_eq!(shapes, [vec![2], vec![2, 1], vec![3, 2], vec![1, 1]]);
        let place = |table: Option<FloatTable>| match table.unwrap().values {
            FloatValues::InPlace(array) => array,
            FloatValues::Copied(_) => panic!("the file has single precision"),
        };
        let again = place(reader.clone().graph(2).unwrap().x);
        assert_eq!((place(reader.graph(2).unwrap().x), again.len), (again, 6));
        assert!(reader.graph(3).unwrap_err().to_string().contains("graph 3: the file has 3, counted from 0"));
    }

    /// Floats of a mapped file lay in a second mapping: using them ended the process with SIGBUS
    /// once another program had cut the file short.
    #[test]
    fn floats_of_a_graph_of_a_mapped_file_are_copies() {
        let (_folder, reader) = reader();
        let mapped = GraphReader { private: Arc::new(OnceLock::from(None)), ..reader };
        let (graph, arrays) = (mapped.graph(2).unwrap(), mapped.arrays(&[2]).unwrap());
        assert!(graph.memory.is_none());
        for (table, expected) in [
            (graph.edge_weight, arrays.edge_weight),
            (graph.edge_attr, arrays.edge_attr),
            (graph.x, arrays.x),
            (graph.y, arrays.y),
        ] {
            let FloatValues::Copied(values) = table.unwrap().values else { panic!("they lie in the file's memory") };
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn arrays_are_those_of_the_graphs_one_after_the_other() {
        let (_folder, reader) = reader();
        assert_eq!((reader.len(), reader.find("three").unwrap()), (3, 2));
        assert_eq!(reader.sizes().collect::<Vec<_>>(), [(1, 0), (2, 1), (3, 2)]);
        assert_eq!(reader.known_times().collect::<Vec<_>>(), [None, Some(1), Some(2)]);
        let arrays = reader.arrays(&[2, 0, 1, 0]).unwrap();
        let expected = GraphArrays {
            edge_index: vec![0, 1, 4, 1, 2, 5],
            edge_weight: vec![1.0, 2.0, 1.0],
            edge_attr: vec![-1.0, -2.0, -1.0],
            x: vec![20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 0.0, 1.0, 10.0, 11.0, 12.0, 13.0, 0.0, 1.0],
            y: vec![2.0, 0.0, 1.0, 0.0],
            node_names: vec![0, 1, 2, 0, 0, 1, 0],
            batch: vec![0, 0, 0, 1, 2, 2, 3],
            node_offsets: vec![0, 3, 4, 6, 7],
            edge_offsets: vec![0, 2, 2, 3, 3],
        };
        assert_eq!(arrays, expected);
        assert_eq!(reader.arrays(&[]).unwrap().node_offsets, [0]);
        let error = reader.arrays(&[0, 3]).unwrap_err().to_string();
        assert!(error.contains("graph 3: the file has 3, counted from 0"), "{error}");
    }
}
