//! The texts of "An end-to-end deep learning architecture for graph classification" (2018) as TU
//! datasets.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The four files of a TU dataset.
#[derive(Debug, Default, PartialEq, Eq)]
struct Texts {
    edges: String,
    owners: String,
    node_labels: String,
    graph_labels: String,
}

/// Writes the graphs of the compressed text at `path` as a TU dataset called `name` in the new
/// folder `folder`.
pub(super) fn to_tu(path: &str, folder: &str, name: &str) -> Result<()> {
    let output = Command::new("gzip").args(["-dc", path]).output().context("cannot run gzip")?;
    ensure!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let texts = texts(&String::from_utf8(output.stdout)?).with_context(|| path.to_owned())?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    for (part, text) in [
        ("A", texts.edges),
        ("graph_indicator", texts.owners),
        ("node_labels", texts.node_labels),
        ("graph_labels", texts.graph_labels),
    ] {
        fs::write(format!("{folder}/{name}_{part}.txt"), text)?;
    }
    Ok(())
}

/// A line has the number of graphs; then each graph has a line with its number of nodes and its
/// class, and a line a node: its label, its number of
/// neighbours and these, from 0.
fn texts(text: &str) -> Result<Texts> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(k, line)| {
        let numbers = line.split_whitespace().map(str::parse::<usize>).collect::<Result<Vec<_>, _>>();
        numbers.with_context(|| format!("line {}: expected whole numbers, found {line:?}", k + 1))
    });
    let mut next = |expected: &str| lines.next().with_context(|| format!("the text ends before {expected}"))?;
    let (mut texts, mut first) = (Texts::default(), 1);
    let graphs = next("the number of graphs")?;
    for graph in 1..=graphs.first().copied().unwrap_or(0) {
        let head = next("a graph")?;
        ensure!(head.len() == 2, "graph {graph}: expected its number of nodes and its class, found {head:?}");
        writeln!(texts.graph_labels, "{}", head[1])?;
        let mut edges = Vec::new();
        for node in 0..head[0] {
            let row = next("a node")?;
            ensure!(row.len() >= 2, "graph {graph}, node {node}: expected a label and neighbours, found {row:?}");
            writeln!(texts.owners, "{graph}")?;
            writeln!(texts.node_labels, "{}", row[0])?;
            // Some list an edge at one of its ends alone.
            row[2..].iter().for_each(|&other| edges.extend([(node, other), (other, node)]));
        }
        edges.sort_unstable();
        edges.dedup();
        edges.iter().try_for_each(|(from, to)| writeln!(texts.edges, "{}, {}", first + from, first + to))?;
        first += head[0];
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_numbered_from_one_and_edges_go_both_ways() {
        let found = texts("2\n2 1\n7 1 1\n8 0\n1 0\n9 0\n").unwrap();
        let expected = Texts {
            edges: "1, 2\n2, 1\n".to_owned(),
            owners: "1\n1\n2\n".to_owned(),
            node_labels: "7\n8\n9\n".to_owned(),
            graph_labels: "1\n0\n".to_owned(),
        };
        assert_eq!(found, expected);
        assert!(texts("2\n1 0\n5 0\n").unwrap_err().to_string().contains("ends before a graph"));
        assert!(format!("{:#}", texts("x").unwrap_err()).contains("line 1: expected whole numbers"));
    }
}
