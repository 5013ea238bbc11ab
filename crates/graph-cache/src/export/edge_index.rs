use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};

use super::{ends, refused};
use crate::builder::Builder;
use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::schema::{Schema, TargetLevel};

/// The bytes of a safetensors file with the graphs of `indices`, as
/// [`import::edge_index`](crate::import::edge_index()) reads them, complete: `edge_index` [2, E]
/// int64 (row 0: where an edge comes from), `edge_weight`, `edge_attr`, `x` and `y` as there are
/// any, and names in the metadata. The same graphs give the same bytes. Several graphs have `ptr`,
/// and where nodes have names `n_id`, the place of each in `node_names`; of a single graph
/// `node_names` are those of its nodes, in their order.
///
/// # Errors
/// As [`Builder::build`](crate::Builder::build).
///
/// # Panics
/// If there is no graph of an index.
pub fn edge_index(builder: &dyn Builder, indices: &[usize]) -> Result<Vec<u8>> {
    let schema = builder.schema();
    let graphs = indices.iter().map(|&index| builder.build(index)).collect::<Result<Vec<_>>>()?;
    let keys: Vec<&String> = indices.iter().map(|&index| &builder.keys()[index]).collect();
    let tensors = tensors(schema, &graphs);
    let views = tensors.iter().map(|(name, tensor)| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
        (*name, view.expect("the shape is that of the values"))
    });
    let metadata = metadata(schema, &keys, &graphs);
    let bytes = serialize(views, Some(metadata));
    bytes.map(in_order).map_err(|error| refused("safetensors", error.to_string(), "choose fewer graphs"))
}

/// The same file with its header entries sorted by name; safetensors writes metadata in random
/// order.
fn in_order(mut file: Vec<u8>) -> Vec<u8> {
    let (len, rest) = file.split_first_chunk_mut().expect("a file begins with the length of its header");
    let header = &mut rest[..u64::from_le_bytes(*len) as usize];
    let entries: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_slice(header).expect("a header is JSON");
    let text = json!(entries).to_string();
    let (entries, padding) = header.split_at_mut(text.len());
    entries.copy_from_slice(text.as_bytes());
    padding.fill(b' ');
    file
}

struct ExportTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn integers(shape: Vec<usize>, values: impl IntoIterator<Item = i64>) -> ExportTensor {
    ExportTensor { dtype: Dtype::I64, shape, bytes: values.into_iter().flat_map(i64::to_le_bytes).collect() }
}

fn floats<'v>(shape: Vec<usize>, values: impl IntoIterator<Item = &'v f32>) -> ExportTensor {
    ExportTensor { dtype: Dtype::F32, shape, bytes: values.into_iter().flat_map(|value| value.to_le_bytes()).collect() }
}

fn tensors(schema: &Schema, graphs: &[Graph]) -> Vec<(&'static str, ExportTensor)> {
    let mut offsets = vec![0];
    graphs.iter().for_each(|graph| offsets.push(offsets[offsets.len() - 1] + graph.len()));
    let (nodes, edges): (usize, usize) = (offsets[graphs.len()], graphs.iter().map(|graph| graph.col.len()).sum());
    let placed = || {
        let shifted = |(graph, &first): (_, &usize)| {
            ends(graph).map(move |(from, to)| (from as usize + first, to as usize + first))
        };
        graphs.iter().zip(&offsets).flat_map(shifted)
    };
    let both = placed().map(|(from, _)| from as i64).chain(placed().map(|(_, to)| to as i64));
    let mut tensors = vec![("edge_index", integers(vec![2, edges], both))];
    if schema.weighted {
        tensors.push(("edge_weight", floats(vec![edges], graphs.iter().flat_map(|graph| &graph.weights))));
    }
    for (name, rows, columns, values) in [
        ("edge_attr", edges, &schema.edge_attributes, edge_attributes as fn(&Graph) -> &[f32]),
        ("x", nodes, &schema.node_features, |graph| &graph.node_features),
    ] {
        if !columns.is_empty() {
            tensors.push((name, floats(vec![rows, columns.len()], graphs.iter().flat_map(values))));
        }
    }
    let rows = match schema.target_level {
        TargetLevel::None => None,
        TargetLevel::Node => Some(nodes),
        TargetLevel::Graph => Some(graphs.len()),
    };
    tensors.extend(rows.map(|rows| ("y", floats(vec![rows, schema.targets.len()], graphs.iter().flat_map(targets)))));
    // Otherwise a single graph without features would lose its nodes without edges.
    if graphs.len() != 1 || schema.node_features.is_empty() {
        tensors.push(("ptr", integers(vec![offsets.len()], offsets.iter().map(|&offset| offset as i64))));
    }
    if graphs.len() != 1 && !schema.names.is_empty() {
        let places = graphs.iter().flat_map(|graph| &graph.nodes).map(|&place| place.into());
        tensors.push(("n_id", integers(vec![nodes], places)));
    }
    tensors
}

fn edge_attributes(graph: &Graph) -> &[f32] {
    &graph.edge_attributes
}

fn targets(graph: &Graph) -> &[f32] {
    match &graph.targets {
        Targets::None => &[],
        Targets::Nodes(targets) | Targets::Graph(targets) => targets,
    }
}

fn metadata(schema: &Schema, keys: &[&String], graphs: &[Graph]) -> HashMap<String, String> {
    let mut entries = vec![("keys", json!(keys))];
    match graphs {
        [graph] if !schema.names.is_empty() => {
            let names: Vec<&String> = graph.nodes.iter().map(|&node| &schema.names[node as usize]).collect();
            entries.push(("node_names", json!(names)));
        }
        _ if !schema.names.is_empty() => entries.push(("node_names", json!(schema.names))),
        _ => {}
    }
    let lists = [
        ("node_features", &schema.node_features),
        ("edge_attributes", &schema.edge_attributes),
        ("targets", &schema.targets),
    ];
    entries.extend(lists.into_iter().filter(|(_, names)| !names.is_empty()).map(|(key, names)| (key, json!(names))));
    match schema.target_level {
        TargetLevel::None => {}
        TargetLevel::Node => entries.push(("target_level", json!("node"))),
        TargetLevel::Graph => entries.push(("target_level", json!("graph"))),
    }
    if graphs.iter().any(|graph| graph.known_time.is_some()) {
        entries.push(("known_time", json!(graphs.iter().map(|graph| graph.known_time).collect::<Vec<_>>())));
    }
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}
