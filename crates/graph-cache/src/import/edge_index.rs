//! PyTorch Geometric's tensors of graphs, `edge_index` and others, in a safetensors file.

mod meaning;
mod tensors;

use std::path::Path;

use crate::builder::Identity;
use crate::error::{Error, Result};
use crate::graph::{Graph, Targets};
use crate::import::Imported;
use crate::import::columns::NamedColumns;
use crate::import::edges::{EdgeList, split};
use crate::schema::{Schema, TargetLevel};
use tensors::{TensorReader, TypedTensor};

/// The graphs in a safetensors file. N nodes, E edges, G graphs:
///
/// | tensor | shape | |
/// | --- | --- | --- |
/// | `edge_index` | [2, E] integers | row 0: source nodes, row 1: target nodes |
/// | `edge_weight` | `[E]` | weights of edges |
/// | `edge_attr` | `[E]` or [E, A] | attributes of edges |
/// | `x` | `[N]` or [N, F] | features of nodes |
/// | `y` | [N, K], [G, K], `[N]` or `[G]` | targets of nodes or graphs |
/// | `ptr` | [G + 1] integers | first node of each graph, and the number of nodes |
/// | `batch` | `[N]` integers | graph of each node, ascending; instead of `ptr` |
/// | `n_id` | `[N]` integers | the place of each node's name |
/// | `train_mask`, `val_mask`, `test_mask` | `[N]` | split of a single graph |
///
/// All but `edge_index` may be missing. Integers in `y` are classes, made one-hot; negative ones
/// are unknown. Each mask becomes a key, with the targets of its nodes alone. The metadata may have
/// lists in JSON: `keys`, `node_names`, `node_features`, `edge_attributes`, `targets`, `known_time`
/// (ns since 1970 UTC, or null), and `target_level`, `"node"` or `"graph"`, which is otherwise
/// inferred from the shape of `y`. This is what [`export::edge_index`](crate::export::edge_index)
/// writes. Without `keys` the key of a single graph is `graph`, those of several are numbers from
/// 1.
///
/// # Errors
/// [`Error::Io`]; [`Error::Contradiction`] for tensors that do not fit together.
pub fn edge_index(path: &Path) -> Result<Imported> {
    edge_index_bytes(path, &Error::read_file(path)?)
}

/// The graphs of a safetensors file in memory; `path` is for errors; see [`edge_index`].
///
/// # Errors
/// As [`edge_index`].
pub fn edge_index_bytes(path: &Path, bytes: &[u8]) -> Result<Imported> {
    let file = SafetensorsFile { tensors: TensorReader::new(path, bytes)?, bytes: bytes.len() };
    let (ends, edges) = file.ends()?;
    let weights = file.matrix("edge_weight", "edges", edges, "weight")?;
    if weights.width() > 1 {
        return Err(file
            .tensors
            .contradiction("`edge_weight` has several columns", "one; more of them are `edge_attr`"));
    }
    let attributes = file.matrix("edge_attr", "edges", edges, "edge_attributes")?;
    let offsets = file.offsets(&ends)?;
    let nodes = *offsets.last().expect("offsets have an end");
    let features = file.matrix("x", "nodes", nodes, "node_features")?;
    let list = EdgeList { weights: weights.values, attributes: attributes.values, ..file.edge_list(&ends, &offsets)? };
    let block = Graph { node_features: features.values, ..list.into_graph(nodes)? };
    let mut graphs = split(&block, &offsets);
    let names = file.name_nodes(&mut graphs, &offsets)?;
    let (targets, level) = file.targets(&offsets)?;
    place_targets(&mut graphs, &targets, level);
    file.known_times(&mut graphs)?;
    let (keys, graphs) = file.keyed(graphs)?;
    Ok(Imported {
        schema: Schema {
            names,
            weighted: !weights.names.is_empty(),
            edge_attributes: attributes.names,
            node_features: features.names,
            targets: targets.names,
            target_level: level,
        },
        keys,
        graphs,
        identity: Identity { data: Identity::hash([bytes]), builder: "edge-index/1".into(), parameters: "{}".into() },
        notes: Vec::new(),
    })
}

/// Gives each graph its rows of the targets.
fn place_targets(graphs: &mut [Graph], targets: &NamedColumns, level: TargetLevel) {
    let mut rest = targets.values.as_slice();
    let mut take = |rows: usize| {
        let (taken, left) = rest.split_at(rows * targets.width());
        rest = left;
        taken.to_vec()
    };
    for graph in graphs {
        graph.targets = match level {
            TargetLevel::None => Targets::None,
            TargetLevel::Node => Targets::Nodes(take(graph.len())),
            TargetLevel::Graph => Targets::Graph(take(1)),
        };
    }
}

struct SafetensorsFile<'b> {
    tensors: TensorReader<'b>,
    /// Its length, which bounds the number of nodes: most have an edge, a feature or a place in
    /// `batch`.
    bytes: usize,
}

impl SafetensorsFile<'_> {
    /// `edge_index`, and the number of edges.
    fn ends(&self) -> Result<(Vec<i64>, usize)> {
        let Some(tensor) = self.tensors.integers("edge_index")? else {
            let found = format!("there is no tensor `edge_index`, but {}", self.tensors.list());
            return Err(self.tensors.contradiction(found, "`edge_index` [2, E]"));
        };
        match tensor.shape.as_slice() {
            &[2, edges] => Ok((tensor.values, edges)),
            shape => Err(self
                .tensors
                .contradiction(format!("`edge_index` is {shape:?}"), "[2, E]: a row of sources, one of targets")),
        }
    }

    /// Floats, a row each of `rows` things, with the names of their columns.
    fn matrix(&self, name: &str, things: &str, rows: usize, key: &str) -> Result<NamedColumns> {
        let Some(tensor) = self.tensors.floats(name)? else { return Ok(NamedColumns::default()) };
        let (found, width) = tensor.rows();
        if found != rows || tensor.shape.is_empty() {
            let expected = format!("a row for each of {rows} {things}");
            return Err(self.tensors.contradiction(format!("`{name}` is {:?}", tensor.shape), expected));
        }
        Ok(NamedColumns { names: self.names(key, name, width)?, values: tensor.values })
    }

    /// The list of names under a key of the metadata, or the tensor's name and the numbers of its
    /// columns.
    fn names(&self, key: &str, tensor: &str, width: usize) -> Result<Vec<String>> {
        if width > self.bytes {
            let found = format!("`{tensor}` has {width} columns and no rows");
            return Err(self.tensors.contradiction(found, "columns of values"));
        }
        let numbered = || (0..width).map(|column| format!("{tensor}_{column}")).collect::<Vec<_>>();
        let names: Vec<String> = self.tensors.metadata(key, "a list of names")?.unwrap_or_else(numbered);
        match names.len() == width {
            true => Ok(names),
            false => Err(self.tensors.contradiction(
                format!("`{key}` of the metadata has {} names", names.len()),
                format!("{width}, one for each column of `{tensor}`"),
            )),
        }
    }

    /// Starts of the nodes of each graph, and the end of the last.
    fn offsets(&self, ends: &[i64]) -> Result<Vec<usize>> {
        let offsets = match (self.tensors.integers("ptr")?, self.tensors.integers("batch")?) {
            (Some(ptr), _) => self.by_ptr(&ptr)?,
            (None, Some(batch)) => self.by_batch(&batch)?,
            (None, None) => vec![0, self.single(ends)?],
        };
        let nodes = offsets[offsets.len() - 1];
        match nodes <= self.bytes && u32::try_from(nodes).is_ok() {
            true => Ok(offsets),
            false => Err(self.tensors.contradiction(
                format!("it speaks of {nodes} nodes, and has {} bytes", self.bytes),
                "nodes that are numbered from 0 on",
            )),
        }
    }

    fn by_ptr(&self, ptr: &TypedTensor<i64>) -> Result<Vec<usize>> {
        let rises = ptr.values.first() == Some(&0) && ptr.values.is_sorted();
        let offsets = ptr.values.iter().map(|&offset| usize::try_from(offset).ok()).collect::<Option<Vec<_>>>();
        offsets
            .filter(|_| rises)
            .ok_or_else(|| self.tensors.contradiction("`ptr` begins elsewhere or decreases", "offsets from 0 on"))
    }

    fn by_batch(&self, batch: &TypedTensor<i64>) -> Result<Vec<usize>> {
        let mut offsets = vec![0];
        for (node, &graph) in batch.values.iter().enumerate() {
            match graph.checked_sub(offsets.len() as i64 - 1) {
                Some(0) => {}
                Some(1) if node > 0 => offsets.push(node),
                _ => {
                    let expected = format!("{} or the next: graphs in order from 0 on", offsets.len() - 1);
                    return Err(self.tensors.contradiction(format!("`batch`[{node}] is {graph}"), expected));
                }
            }
        }
        offsets.push(batch.values.len());
        Ok(offsets)
    }

    /// The number of nodes of a file with one graph.
    fn single(&self, ends: &[i64]) -> Result<usize> {
        if let Some(features) = self.tensors.floats("x")? {
            return Ok(features.rows().0);
        }
        let named: Option<Vec<String>> = self.tensors.metadata("node_names", "a list of names")?;
        let known = self.tensors.integers("n_id")?.map(|names| names.rows().0).or(named.map(|names| names.len()));
        let last = ends.iter().max().map_or(0, |&last| usize::try_from(last).map_or(0, |last| last.saturating_add(1)));
        Ok(known.unwrap_or(last))
    }

    fn edge_list(&self, ends: &[i64], offsets: &[usize]) -> Result<EdgeList> {
        let (nodes, edges) = (offsets[offsets.len() - 1], ends.len() / 2);
        let end = |place: usize| {
            let node = u32::try_from(ends[place]).ok().filter(|&node| (node as usize) < nodes);
            node.ok_or_else(|| {
                let found = format!("`edge_index`[{}, {}] is {}", place / edges, place % edges, ends[place]);
                self.tensors.contradiction(found, format!("a node, 0 to below {nodes}"))
            })
        };
        let graph_of = |node: u32| offsets.partition_point(|&offset| offset <= node as usize);
        let mut list = EdgeList::default();
        for edge in 0..edges {
            let (from, to) = (end(edge)?, end(edges + edge)?);
            if offsets.len() > 2 && graph_of(from) != graph_of(to) {
                let found = format!("edge {edge} goes from node {from} to node {to}, which is of another graph");
                return Err(self.tensors.contradiction(found, "edges within the graphs that `ptr` or `batch` says"));
            }
            list.from.push(from);
            list.to.push(to);
        }
        Ok(list)
    }

    /// The names of nodes; gives the nodes of the graphs their places in it.
    fn name_nodes(&self, graphs: &mut [Graph], offsets: &[usize]) -> Result<Vec<String>> {
        let names: Vec<String> = self.tensors.metadata("node_names", "a list of names")?.unwrap_or_default();
        if let Some(places) = self.tensors.integers("n_id")? {
            let place = |&place: &i64| {
                u32::try_from(place).ok().filter(|&place| names.is_empty() || (place as usize) < names.len())
            };
            let places = places.values.iter().map(place).collect::<Option<Vec<u32>>>();
            let places = places.filter(|places| places.len() == offsets[offsets.len() - 1]).ok_or_else(|| {
                self.tensors.contradiction(
                    "`n_id` has no place for every node",
                    format!("for each a place among {} names", names.len()),
                )
            })?;
            for (graph, ends) in graphs.iter_mut().zip(offsets.windows(2)) {
                graph.nodes = places[ends[0]..ends[1]].to_vec();
            }
        }
        let most = graphs.iter().flat_map(|graph| &graph.nodes).max().map_or(0, |&last| last as usize + 1);
        match names.is_empty() || most <= names.len() {
            true => Ok(names),
            false => Err(self
                .tensors
                .contradiction(format!("`node_names` has {} names", names.len()), format!("at least {most}"))),
        }
    }
}

#[cfg(test)]
mod tests;
