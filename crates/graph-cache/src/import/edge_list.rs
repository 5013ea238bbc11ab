//! One graph as a folder of CSV: edges, and features and labels of nodes.

mod features;
mod known;
mod nodes;

use std::path::Path;

use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::import::columns::NamedColumns;
use crate::import::edges::EdgeList;
use crate::import::table::DelimitedText;
use crate::import::text::Text;
use crate::import::{Imported, ImportedGraphs, identity};
use crate::schema::{Schema, TargetLevel};
use known::{KnownNodes, SplitPart};
use nodes::NodeNames;

/// Names of the files by their contents.
const EDGES: &str = "edges.csv";
const FEATURES: [&str; 2] = ["features.csv", "features_sparse.csv"];
const KNOWN: [&str; 2] = ["labels.csv", "targets.csv"];

/// Options of reading an edge list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeListOptions {
    /// Treatment of the features.
    pub features: FeatureRows,
}

/// Treatment of the features of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureRows {
    /// They stay as they are.
    #[default]
    AsGiven,
    /// They are divided by their sum, if it is not zero: relative word frequencies of a document.
    Normalized,
}

/// The graph in a folder of CSV files, each with a header:
///
/// - `edges.csv`: `src,dst`, and any columns of numbers. One named `weight` is the weight of edges,
///   the others are attributes.
/// - `features.csv`: `node` and a column a feature, a row a node; or `features_sparse.csv`:
///   `node,feature` or `node,feature,value`, a row a feature that is not zero. Features are
///   numbered from 0, or have names.
/// - `labels.csv`: `node`, and, as there are, `label` and `split`; or `targets.csv`: `node`, a
///   column of numbers a target, and `split`. An empty field is a label or target that is not
///   known.
///
/// All but the edges may be missing. Nodes are in the order of their numbers; if any name is no
/// number, in the order of their first occurrence in the files: labels or targets, features, edges.
/// Labels become one-hot targets. With a column `split` there is a key for each part that occurs
/// (`train`, `validation`, which may be written `val`, and `test`): the same graph, whose targets
/// are known at the nodes of that part alone; nodes of `none` are of no part. Without it the key is
/// `graph`.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io), [`Error::Field`](crate::Error::Field), and
/// [`Error::Contradiction`](crate::Error::Contradiction) for a file that is missing, there twice,
/// or without the columns that it has.
pub fn edge_list(folder: &Path, options: EdgeListOptions) -> Result<Imported> {
    let texts = Text::in_folder(folder, &[EDGES, FEATURES[0], FEATURES[1], KNOWN[0], KNOWN[1]])?;
    match texts.is_empty() {
        true => Err(Text::new(folder, Vec::new())?.contradiction("there is no edge list in it", "a file `edges.csv`")),
        false => edge_list_texts(&texts, options),
    }
}

/// The graph of CSV files in memory; see [`edge_list`].
///
/// # Errors
/// As [`edge_list`].
pub fn edge_list_texts(texts: &[Text], options: EdgeListOptions) -> Result<Imported> {
    let edges = one_of(texts, &[EDGES])?.ok_or_else(|| missing(texts))?;
    let (features, known) = (one_of(texts, &FEATURES)?, one_of(texts, &KNOWN)?);
    let nodes = NodeNames::read(known, features, edges)?;
    let (list, names, weighted) = read_edges(edges, &nodes)?;
    let mut features_of_nodes = features.map_or(Ok(NamedColumns::default()), |text| features::read(text, &nodes))?;
    if options.features == FeatureRows::Normalized {
        normalize(&mut features_of_nodes);
    }
    let known = known.map_or(Ok(KnownNodes::default()), |text| KnownNodes::read(text, &nodes))?;
    let (keys, targets): (_, Vec<_>) = parts(&known, nodes.len()).into_iter().unzip();
    let mut graph = Graph { node_features: features_of_nodes.values, ..list.into_graph(nodes.len())? };
    if let [all_targets] = targets.as_slice() {
        graph.targets = all_targets.clone();
    }
    let used: Vec<&Text> = texts.iter().collect();
    let normalized = options.features == FeatureRows::Normalized;
    Ok(Imported {
        schema: Schema {
            names: nodes.names(),
            weighted,
            edge_attributes: names,
            node_features: features_of_nodes.names,
            target_level: if known.targets.names.is_empty() { TargetLevel::None } else { TargetLevel::Node },
            targets: known.targets.names,
        },
        keys,
        graphs: ImportedGraphs::Parts { graph, targets },
        identity: identity(&used, "edge-list/1", format!(r#"{{"normalize_features":{normalized}}}"#)),
        notes: Vec::new(),
    })
}

fn one_of<'t>(texts: &'t [Text], names: &[&str]) -> Result<Option<&'t Text>> {
    let mut found = texts.iter().filter(|text| names.contains(&text.name()));
    match (found.next(), found.next()) {
        (first, None) => Ok(first),
        (first, Some(second)) => Err(second.contradiction(
            format!("{} is there too", first.map(Text::name).unwrap_or_default()),
            "one of the two: they hold the same; take one away",
        )),
    }
}

fn missing(texts: &[Text]) -> crate::Error {
    let path = texts.first().map_or(Path::new(EDGES), Text::path);
    let found = "the edges are missing beside it".to_owned();
    crate::Error::Contradiction { path: path.to_owned(), found, expected: format!("a file `{EDGES}`") }
}

/// The edges, the names of their attributes, and whether they have weights.
fn read_edges(text: &Text, nodes: &NodeNames) -> Result<(EdgeList, Vec<String>, bool)> {
    let (mut table, header) = DelimitedText::with_header(text)?;
    nodes::check_ends(text, &header)?;
    let weight = header.iter().position(|name| name == "weight").filter(|&column| column >= 2);
    let attributes: Vec<usize> = (2..header.len()).filter(|&column| Some(column) != weight).collect();
    let mut list = EdgeList::default();
    while let Some(row) = table.next()? {
        row.check_len(header.len())?;
        list.from.push(nodes.place(row.bytes(0)));
        list.to.push(nodes.place(row.bytes(1)));
        if let Some(column) = weight {
            list.weights.push(row.number(column)?);
        }
        for &column in &attributes {
            list.attributes.push(row.number(column)?);
        }
    }
    let names = attributes.iter().map(|&column| header[column].clone()).collect();
    Ok((list, names, weight.is_some()))
}

fn normalize(features: &mut NamedColumns) {
    for row in features.values.chunks_exact_mut(features.names.len().max(1)) {
        let sum: f64 = row.iter().map(|&value| f64::from(value)).sum();
        if sum != 0.0 {
            row.iter_mut().for_each(|value| *value = (f64::from(*value) / sum) as f32);
        }
    }
}

/// Keys, and the targets of each.
fn parts(known: &KnownNodes, nodes: usize) -> Vec<(String, Targets)> {
    let width = known.targets.width();
    let targets = |part: Option<SplitPart>| {
        let mut values = known.targets.values.clone();
        for node in (0..nodes).filter(|&node| part.is_some() && known.parts[node] != part) {
            values[node * width..(node + 1) * width].fill(f32::NAN);
        }
        if width == 0 { Targets::None } else { Targets::Nodes(values) }
    };
    let occurring = SplitPart::ALL.into_iter().filter(|part| known.parts.contains(&Some(*part)));
    let parts: Vec<_> = occurring.map(|part| (part.key().to_owned(), targets(Some(part)))).collect();
    if parts.is_empty() { vec![("graph".to_owned(), targets(None))] } else { parts }
}

#[cfg(test)]
mod tests;
