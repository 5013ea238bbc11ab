use std::fmt::{Display, Write as _};
use std::ops::Range;

use super::{ends, graphs, hot, refused, row};
use crate::builder::Builder;
use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::import::Text;
use crate::schema::{Schema, TargetLevel};

/// The texts of a TU dataset, as [`import::tu`](crate::import::tu) reads them.
///
/// Columns whose names are a word and an integer, such as `label=3`, and whose rows are one-hot,
/// are labels; others are attributes, and so is the weight of an edge, before the others. Targets
/// whose names are integers and whose rows are one-hot are labels of graphs, others attributes.
/// Keys, the names of nodes and columns, and known times have no place in the format.
///
/// # Errors
/// [`Error::NotExportable`](crate::Error::NotExportable) for targets of nodes; and as
/// [`Builder::build`](crate::Builder::build).
pub fn tu(builder: &dyn Builder, dataset: &str) -> Result<Vec<Text>> {
    let (schema, graphs) = (builder.schema(), graphs(builder)?);
    if schema.target_level == TargetLevel::Node {
        return Err(refused("TU", "targets of nodes", "the format knows labels of graphs; export edge_index instead"));
    }
    let mut files = Vec::new();
    let (mut edges, mut indicator, mut first) = (String::new(), String::new(), 1);
    for (number, graph) in (1..).zip(&graphs) {
        for (from, to) in ends(graph) {
            line(&mut edges, [from + first, to + first]);
        }
        graph.nodes.iter().for_each(|_| line(&mut indicator, [number]));
        first += graph.len() as u32;
    }
    files.extend([("A", edges), ("graph_indicator", indicator)]);
    files.extend(described("node", &schema.node_features, &joined(&graphs, |graph| &graph.node_features)));
    files.extend(edge_files(schema, &graphs));
    files.extend(graph_file(schema, &graphs));
    let text = |(ending, text): (&str, String)| Text::plain(format!("{dataset}_{ending}.txt"), text.into_bytes());
    Ok(files.into_iter().map(text).collect())
}

fn line<T: Display>(text: &mut String, fields: impl IntoIterator<Item = T>) {
    for (place, field) in fields.into_iter().enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        write!(text, "{comma}{field}").expect("memory takes text");
    }
    text.push('\n');
}

/// The values of all graphs, one graph after the other.
fn joined<'g>(graphs: &'g [Graph], values: impl Fn(&'g Graph) -> &'g [f32]) -> Vec<f32> {
    graphs.iter().flat_map(values).copied().collect()
}

fn edge_files(schema: &Schema, graphs: &[Graph]) -> Vec<(&'static str, String)> {
    if !schema.weighted {
        return described("edge", &schema.edge_attributes, &joined(graphs, |graph| &graph.edge_attributes));
    }
    let width = schema.edge_attributes.len();
    let weights = joined(graphs, |graph| &graph.weights);
    let attributes = joined(graphs, |graph| &graph.edge_attributes);
    let both = weights.iter().enumerate();
    let both = both.flat_map(|(edge, weight)| std::iter::once(weight).chain(row(&attributes, edge, width))).copied();
    let names: Vec<String> =
        std::iter::once("weight".to_owned()).chain(schema.edge_attributes.iter().cloned()).collect();
    described("edge", &names, &both.collect::<Vec<_>>())
}

/// The files of attributes and of labels of nodes or edges, as far as there are any.
fn described(what: &str, names: &[String], values: &[f32]) -> Vec<(&'static str, String)> {
    let width = names.len();
    let groups = labels(names, values);
    let is_attribute = |column: &usize| !groups.iter().any(|group| group.contains(column));
    let columns: Vec<usize> = (0..width).filter(is_attribute).collect();
    let (mut attributes, mut labels) = (String::new(), String::new());
    for values in values.chunks_exact(width.max(1)) {
        line(&mut attributes, columns.iter().map(|&column| values[column]));
        let place = |group: &Range<usize>| group.start + hot(&values[group.clone()]).expect("labels are one-hot");
        line(&mut labels, groups.iter().map(|group| label(&names[place(group)]).expect("labels have names").1));
    }
    let endings = if what == "node" { ["node_attributes", "node_labels"] } else { ["edge_attributes", "edge_labels"] };
    let used = [!columns.is_empty(), !groups.is_empty()];
    endings.into_iter().zip([attributes, labels]).zip(used).filter(|(_, used)| *used).map(|(file, _)| file).collect()
}

/// Runs of columns that are labels.
fn labels(names: &[String], values: &[f32]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (column, name) in names.iter().enumerate() {
        let Some((word, _)) = label(name) else { continue };
        match runs
            .last_mut()
            .filter(|run| run.end == column && label(&names[run.start]).is_some_and(|other| other.0 == word))
        {
            Some(run) => run.end = column + 1,
            None => runs.push(column..column + 1),
        }
    }
    runs.retain(|run| values.chunks_exact(names.len()).all(|row| hot(&row[run.clone()]).is_some()));
    runs
}

/// The parts of a name such as `label=3`.
fn label(name: &str) -> Option<(&str, i64)> {
    let (word, number) = name.rsplit_once('=')?;
    Some((word, number.parse().ok()?))
}

fn graph_file(schema: &Schema, graphs: &[Graph]) -> Option<(&'static str, String)> {
    let targets: Vec<&Vec<f32>> = graphs
        .iter()
        .filter_map(|graph| match &graph.targets {
            Targets::Graph(targets) => Some(targets),
            _ => None,
        })
        .collect();
    if schema.target_level != TargetLevel::Graph || schema.targets.is_empty() {
        return None;
    }
    let mut text = String::new();
    let are_labels = schema.targets.iter().all(|name| name.parse::<i64>().is_ok());
    let places = targets.iter().map(|targets| hot(targets)).collect::<Option<Vec<usize>>>().filter(|_| are_labels);
    match places {
        Some(places) => {
            places.into_iter().for_each(|place| line(&mut text, [&schema.targets[place]]));
            Some(("graph_labels", text))
        }
        None => {
            targets.into_iter().for_each(|targets| line(&mut text, targets));
            Some(("graph_attributes", text))
        }
    }
}
