use csv::Writer;

use super::{ends, graphs, hot, refused, row};
use crate::builder::Builder;
use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::import::Text;
use crate::schema::{Schema, TargetLevel};

const FORMAT: &str = "an edge list";
/// A matrix is written sparsely where at most one value in this many is not zero.
const SPARSE_FROM: usize = 4;

/// The CSV files of one graph, as [`import::edge_list`](crate::import::edge_list) reads them. Keys
/// named `train`, `validation` and `test` become a split; any other single key is not kept, nor is
/// the known time.
///
/// # Errors
/// [`Error::NotExportable`](crate::Error::NotExportable) for several graphs that are not parts of
/// one, and for targets of graphs; and as [`Builder::build`](crate::Builder::build).
pub fn edge_list(builder: &dyn Builder) -> Result<Vec<Text>> {
    let (schema, graphs) = (builder.schema(), graphs(builder)?);
    let split = split(builder.keys());
    let first = the_one(&graphs, split.is_some())?;
    if schema.target_level == TargetLevel::Graph {
        return Err(refused(FORMAT, "targets of graphs", "it knows those of nodes; export TU or edge_index instead"));
    }
    let names: Vec<String> = first.nodes.iter().map(|&node| name(schema, node)).collect();
    let mut texts = vec![Text::plain("edges.csv", edges(schema, first, &names)?)];
    if !schema.node_features.is_empty() {
        texts.push(features(schema, first, &names)?);
    }
    texts.push(known(schema, &graphs, split, &names)?);
    Ok(texts)
}

/// The parts that keys name, where they are of a split.
fn split(keys: &[String]) -> Option<&[String]> {
    let is_part = |key: &String| matches!(key.as_str(), "train" | "validation" | "test");
    (!keys.is_empty() && keys.iter().all(is_part)).then_some(keys)
}

/// The one graph that all are, apart from their targets.
fn the_one(graphs: &[Graph], split: bool) -> Result<&Graph> {
    let Some((first, others)) = graphs.split_first() else {
        return Err(refused(FORMAT, "no graph among them", "choose one"));
    };
    let same = |other: &Graph| {
        (&other.nodes, &other.row_ptr, &other.col) == (&first.nodes, &first.row_ptr, &first.col)
            && (&other.weights, &other.edge_attributes) == (&first.weights, &first.edge_attributes)
            && other.node_features == first.node_features
    };
    match others.is_empty() || (split && others.iter().all(same)) {
        true => Ok(first),
        false => {
            Err(refused(FORMAT, "different edges", "it holds one graph; choose one, or export edge_index instead"))
        }
    }
}

fn name(schema: &Schema, node: u32) -> String {
    schema.names.get(node as usize).cloned().unwrap_or_else(|| node.to_string())
}

/// A CSV: its header and its rows.
fn csv<R: IntoIterator<Item = String>>(header: Vec<String>, rows: impl Iterator<Item = R>) -> Result<Vec<u8>> {
    let mut writer = Writer::from_writer(Vec::new());
    let fits = "memory takes rows, all of one length";
    writer.write_record(header).expect(fits);
    rows.for_each(|row| writer.write_record(row).expect(fits));
    Ok(writer.into_inner().expect(fits))
}

fn edges(schema: &Schema, graph: &Graph, names: &[String]) -> Result<Vec<u8>> {
    let mut header = vec!["src".to_owned(), "dst".to_owned()];
    header.extend(schema.weighted.then(|| "weight".to_owned()));
    header.extend(schema.edge_attributes.iter().cloned());
    let width = schema.edge_attributes.len();
    let rows = ends(graph).enumerate().map(|(edge, (from, to))| {
        let weight = schema.weighted.then(|| graph.weights[edge]);
        let numbers = weight.into_iter().chain(row(&graph.edge_attributes, edge, width).iter().copied());
        [&names[from as usize], &names[to as usize]]
            .into_iter()
            .cloned()
            .chain(numbers.map(|number| number.to_string()))
    });
    csv(header, rows)
}

fn features(schema: &Schema, graph: &Graph, names: &[String]) -> Result<Text> {
    let width = schema.node_features.len();
    let values = graph.node_features.chunks_exact(width);
    let entries = || {
        let rows = graph.node_features.chunks_exact(width).enumerate();
        rows.flat_map(|(node, row)| row.iter().enumerate().map(move |(column, &value)| (node, column, value)))
            .filter(|entry| entry.2 != 0.0)
    };
    let numbered = schema.node_features.iter().enumerate().all(|(column, name)| column.to_string() == *name);
    // The number of columns of the sparse form is that of the last non-zero one.
    let complete = entries().any(|(_, column, _)| column + 1 == width);
    if numbered && complete && entries().count() <= graph.node_features.len() / SPARSE_FROM {
        let header = ["node", "feature", "value"].map(str::to_owned).to_vec();
        let rows = entries().map(|(node, column, value)| [names[node].clone(), column.to_string(), value.to_string()]);
        return Ok(Text::plain("features_sparse.csv", csv(header, rows)?));
    }
    let header = std::iter::once("node".to_owned()).chain(schema.node_features.iter().cloned()).collect();
    let rows =
        names.iter().zip(values).map(|(name, row)| std::iter::once(name.clone()).chain(row.iter().map(f32::to_string)));
    Ok(Text::plain("features.csv", csv(header, rows)?))
}

/// Nodes table, which names all nodes.
fn known(schema: &Schema, graphs: &[Graph], split: Option<&[String]>, names: &[String]) -> Result<Text> {
    let width = schema.targets.len();
    let mut known: Vec<(&str, Option<&[f32]>)> = vec![("none", None); names.len()];
    for (place, graph) in graphs.iter().enumerate() {
        let Targets::Nodes(targets) = &graph.targets else { continue };
        for (node, row) in
            targets.chunks_exact(width.max(1)).enumerate().filter(|(_, row)| !row.iter().all(|target| target.is_nan()))
        {
            if known[node].1.replace(row).is_some() {
                return Err(refused(FORMAT, "a node in two parts of the split", "export edge_index instead"));
            }
            known[node].0 = split.map_or("none", |parts| &parts[place]);
        }
    }
    // A node belongs to the part in which its targets are known.
    if let Some(lost) = split.and_then(|parts| parts.iter().find(|part| known.iter().all(|(own, _)| own != part))) {
        let what = format!("the part `{lost}`, of whose nodes no target is known");
        return Err(refused(FORMAT, what, "export edge_index instead"));
    }
    let one_hot = known.iter().all(|(_, row)| row.is_none_or(|row| hot(row).is_some()));
    let (file, columns) = match one_hot {
        true if width == 0 => ("labels.csv", Vec::new()),
        true => ("labels.csv", vec!["label".to_owned()]),
        false => ("targets.csv", schema.targets.clone()),
    };
    let part = |part: &str| split.map(|_| part.to_owned());
    let header = std::iter::once("node".to_owned()).chain(columns.clone()).chain(part("split")).collect();
    let rows = names.iter().zip(&known).map(|(name, &(own, row))| {
        let fields: Vec<String> = match (one_hot, row) {
            (true, Some(row)) => vec![schema.targets[hot(row).expect("it is one-hot")].clone()],
            (false, Some(row)) => row.iter().map(f32::to_string).collect(),
            (_, None) => vec![String::new(); columns.len()],
        };
        std::iter::once(name.clone()).chain(fields).chain(part(own))
    });
    Ok(Text::plain(file, csv(header, rows)?))
}
