//! Contents of a file of graphs.

use std::path::Path;

use megabatch_atomic_file as atomic_file;
use megabatch_graph_cache::{Builder as _, FloatWidth, GraphFile, IndexWidth, TargetLevel, export};
use serde_json::{Value, json};

use super::sizes::sizes;
use super::stored::Stored;
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::output;
use crate::report::chart::Network;
use crate::text::{bytes, plural, shown, utc};

/// Contents of the file of graphs `path`.
///
/// # Errors
/// A data error where it is none, or damaged.
pub fn inspect(path: &Path) -> Result<CommandReport> {
    let file = GraphFile::open(path)?;
    Ok(CommandReport::new(describe(&file), &facts(&file)))
}

/// Writes the graph `key` of the file `path` to the safetensors file `out`: `edge_index` `[2, E]`
/// int64 (row 0: sources), `edge_weight`, and its other data.
///
/// # Errors
/// A usage error for a key that is not there, or an output that cannot be written.
pub fn dump(path: &Path, key: &str, out: &Path) -> Result<CommandReport> {
    let file = GraphFile::open(path)?;
    output::check(out, &[path])?;
    let stored = Stored::with_keys(&file, &[key])?;
    atomic_file::write(out, &export::edge_index(&stored, &[0])?)?;
    let (nodes, edges) = stored.sizes();
    Ok(written(out, key, nodes, edges))
}

/// Draws the graph `key` of the file `path` as the SVG file `out`.
///
/// # Errors
/// A usage error for a key that is not there, or an output that cannot be written.
pub fn draw(path: &Path, key: &str, out: &Path) -> Result<CommandReport> {
    let file = GraphFile::open(path)?;
    output::require_ending(out, &["svg"])?;
    output::check(out, &[path])?;
    let stored = Stored::with_keys(&file, &[key])?;
    let graph = stored.build(0)?;
    let csr = graph.csr()?;
    let edge = |row: usize| csr.edges_of(row).map(move |edge| (csr.col()[edge] as usize, row, edge));
    let edges = (0..graph.len()).flat_map(edge);
    let weight = |edge: usize| graph.weights.get(edge).copied().unwrap_or(1.0);
    let network = Network {
        title: format!("{key}: {} and {}", plural(graph.len(), "node"), plural(graph.col.len(), "edge")),
        names: stored.names(&graph),
        edges: edges.map(|(from, to, edge)| (from, to, weight(edge))).collect(),
    };
    atomic_file::write(out, network.to_svg().as_bytes())?;
    let (nodes, edges) = stored.sizes();
    Ok(written(out, key, nodes, edges))
}

fn written(out: &Path, key: &str, nodes: usize, edges: usize) -> CommandReport {
    let text = format!("{}: {key}, {}, {}", out.display(), plural(nodes, "node"), plural(edges, "edge"));
    CommandReport::new(text, &json!({ "out": shown(out), "key": key, "nodes": nodes, "edges": edges }))
}

fn known(file: &GraphFile) -> Option<(i64, i64)> {
    let times = (0..file.len()).filter_map(|index| file.known_time(index));
    times.clone().min().zip(times.max())
}

fn describe(file: &GraphFile) -> String {
    let (nodes, edges) = sizes(file);
    let (schema, identity, widths) = (file.schema(), file.identity(), file.widths());
    let mut lines =
        vec![format!("{}: {}, {}", file.path().display(), plural(file.len(), "graph"), bytes(file.bytes()))];
    if let Some(last) = file.len().checked_sub(1) {
        lines.push(format!("keys {} to {}", file.key(0), file.key(last)));
        lines.push(format!("{}; {}", nodes.words("node"), edges.words("edge")));
    }
    if let Some((first, last)) = known(file) {
        lines.push(format!("known from {} to {}", utc(first), utc(last)));
    }
    lines.push(format!("built by {} with {}", identity.builder, identity.parameters));
    lines.push(format!("from data of XXH3-128 {:032x}", identity.data));
    let float = |width: FloatWidth| if width == FloatWidth::F32 { "f32" } else { "f16" };
    let index = if widths.indices == IndexWidth::U32 { "u32" } else { "u64" };
    let (edges, features) = (float(widths.edges), float(widths.features));
    lines.push(format!("stored as {index}, edges as {edges}, features as {features}"));
    if schema.weighted {
        lines.push("edges have weights".to_owned());
    }
    for (what, names) in [
        ("names of nodes", &schema.names),
        ("attributes of edges", &schema.edge_attributes),
        ("features of nodes", &schema.node_features),
        (targets_of(schema.target_level), &schema.targets),
    ] {
        if !names.is_empty() {
            lines.push(format!("{} {what}: {}", names.len(), some_of(names)));
        }
    }
    lines.join("\n")
}

fn targets_of(level: TargetLevel) -> &'static str {
    match level {
        TargetLevel::None => "targets of nothing",
        TargetLevel::Node => "targets of nodes",
        TargetLevel::Graph => "targets of graphs",
    }
}

/// The first of many names.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

/// Contents of a file of graphs, as JSON.
pub(super) fn facts(file: &GraphFile) -> Value {
    let (nodes, edges) = sizes(file);
    let (schema, identity) = (file.schema(), file.identity());
    json!({
        "file": shown(file.path()),
        "bytes": file.bytes(),
        "graphs": file.len(),
        "keys": (0..file.len()).map(|index| file.key(index)).collect::<Vec<_>>(),
        "nodes": nodes.json(),
        "edges": edges.json(),
        "first_known_time_ns": known(file).map(|known| known.0),
        "last_known_time_ns": known(file).map(|known| known.1),
        "builder": identity.builder,
        "parameters": serde_json::from_str(&identity.parameters).unwrap_or(Value::Null),
        "data": format!("{:032x}", identity.data),
        "weighted": schema.weighted,
        "names": schema.names,
        "edge_attributes": schema.edge_attributes,
        "node_features": schema.node_features,
        "targets": schema.targets,
        "target_level": match schema.target_level {
            TargetLevel::None => Value::Null,
            TargetLevel::Node => "node".into(),
            TargetLevel::Graph => "graph".into(),
        },
    })
}
