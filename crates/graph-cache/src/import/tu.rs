//! TU datasets: graphs in a folder of texts, `DS_A.txt` and those beside it.
//!
//! Source: Morris et al., "TUDataset: A collection of benchmark datasets for learning with graphs",
//! 2020, and the README.txt of every dataset.

use std::path::Path;

use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::import::classes::LabelClasses;
use crate::import::columns::NamedColumns;
use crate::import::edges::{EdgeList, split};
use crate::import::table::DelimitedText;
use crate::import::text::Text;
use crate::import::{Imported, ImportedGraphs, identity, numbered};
use crate::schema::{Schema, TargetLevel};

/// Endings of the file names after the dataset's name.
const ENDINGS: [&str; 8] = [
    "_A.txt",
    "_graph_indicator.txt",
    "_graph_labels.txt",
    "_graph_attributes.txt",
    "_node_labels.txt",
    "_node_attributes.txt",
    "_edge_labels.txt",
    "_edge_attributes.txt",
];

/// The graphs of a TU dataset in the folder of its texts.
///
/// Keys are the numbers of the graphs in the files, from 1. A line `i, j` of `DS_A.txt` is an edge
/// from i to j, as PyTorch Geometric reads it. Features of nodes are their attributes
/// (`attribute_1`, …) and then their labels, one-hot (`label=0`, …; `label_2=0` for a second
/// column); attributes of edges likewise. Targets are the attributes of graphs where there are any,
/// or else their labels, one-hot.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io), [`Error::Field`](crate::Error::Field), and
/// [`Error::Contradiction`](crate::Error::Contradiction) for a file that is missing or of another
/// length.
pub fn tu(folder: &Path) -> Result<Imported> {
    let texts = Text::in_folder(folder, &ENDINGS)?;
    match texts.is_empty() {
        true => Err(Text::new(folder, Vec::new())?.contradiction("there is no TU dataset in it", "a file `DS_A.txt`")),
        false => tu_texts(&texts),
    }
}

/// The graphs of a TU dataset whose files are in memory; see [`tu`].
///
/// # Errors
/// As [`tu`].
pub fn tu_texts(texts: &[Text]) -> Result<Imported> {
    let files = DatasetFiles { texts, dataset: dataset(texts)? };
    let owners = Owners::read(&files)?;
    let nodes = owners.graph_of.len();
    let mut edges = files.edges(&owners)?;
    let edge_count = edges.from.len();
    let edge_columns = files.columns("edge", edge_count)?;
    edges.attributes = edge_columns.values;
    let node_columns = files.columns("node", nodes)?;
    let (targets, level) = files.targets(owners.offsets.len() - 1)?;
    let block = Graph { node_features: node_columns.values, ..edges.into_graph(nodes)? };
    let mut graphs = split(&block, &owners.offsets);
    if level == TargetLevel::Graph {
        for (graph, targets) in graphs.iter_mut().zip(targets.values.chunks_exact(targets.width().max(1))) {
            graph.targets = Targets::Graph(targets.to_vec());
        }
    }
    let used: Vec<&Text> = ENDINGS.iter().filter_map(|ending| files.get(ending)).collect();
    Ok(Imported {
        schema: Schema {
            edge_attributes: edge_columns.names,
            node_features: node_columns.names,
            targets: targets.names,
            target_level: level,
            ..Schema::default()
        },
        keys: numbered(graphs.len()),
        graphs: ImportedGraphs::Each(graphs),
        identity: identity(&used, "tu/1", "{}".to_owned()),
        notes: note_on_empty_graphs(&owners.offsets).into_iter().collect(),
    })
}

/// Graphs that a note names one by one.
const NAMED_MAX: usize = 10;

/// A sentence on graphs without nodes, where there are some; their nodes begin at `offsets`.
fn note_on_empty_graphs(offsets: &[usize]) -> Option<String> {
    let empty = offsets.windows(2).enumerate().filter(|(_, ends)| ends[0] == ends[1]);
    let empty: Vec<String> = empty.map(|(graph, _)| (graph + 1).to_string()).collect();
    let named = empty[..empty.len().min(NAMED_MAX)].join(", ");
    let more = if empty.len() > NAMED_MAX { ", …" } else { "" };
    (!empty.is_empty())
        .then(|| format!("{} of the graphs have no nodes, and no model is trained on such: {named}{more}", empty.len()))
}

/// The name that the files begin with.
fn dataset(texts: &[Text]) -> Result<&str> {
    let mut names = texts.iter().filter_map(|text| Some((text, text.name().strip_suffix(ENDINGS[0])?)));
    match (names.next(), names.next()) {
        (Some((_, name)), None) => Ok(name),
        (Some((_, one)), Some((text, _))) => Err(text.contradiction(
            format!("there is another dataset, {one}, beside it"),
            "the files of one dataset; give each a folder of its own",
        )),
        (None, _) => match texts.first() {
            Some(text) => Err(text.contradiction("there is no file of edges beside it", "a file `DS_A.txt`")),
            None => Err(Text::new("", Vec::new())?.contradiction("there are no files", "the files of a TU dataset")),
        },
    }
}

/// The files of a dataset.
struct DatasetFiles<'t> {
    texts: &'t [Text],
    dataset: &'t str,
}

impl<'t> DatasetFiles<'t> {
    fn get(&self, ending: &str) -> Option<&'t Text> {
        self.texts.iter().find(|text| text.name().strip_prefix(self.dataset) == Some(ending))
    }

    fn edges(&self, owners: &Owners) -> Result<EdgeList> {
        let text = self.get(ENDINGS[0]).expect("the dataset has its name from this file");
        let mut list = EdgeList::default();
        let mut table = DelimitedText::new(text);
        while let Some(row) = table.next()? {
            row.check_len(2)?;
            let nodes = owners.graph_of.len();
            let end = |column| {
                let expected = || format!("the number of a node, 1 to {nodes}");
                let number = row.integer::<usize>(column, &expected())?;
                let node = number.checked_sub(1).filter(|&node| node < nodes);
                node.ok_or_else(|| row.error(column, expected()))
            };
            let (from, to) = (end(0)?, end(1)?);
            let (graph, other) = (owners.graph_of[from], owners.graph_of[to]);
            if graph != other {
                let (graph, other) = (graph + 1, other + 1);
                let expected = format!("a node of graph {graph}, as is the first; this is one of graph {other}");
                return Err(row.error(1, expected));
            }
            list.from.push(from as u32);
            list.to.push(to as u32);
        }
        Ok(list)
    }

    /// Attributes and then labels of `rows` nodes or edges.
    fn columns(&self, what: &str, rows: usize) -> Result<NamedColumns> {
        let attributes = self.get(&format!("_{what}_attributes.txt")).map(|text| attributes(text, rows)).transpose()?;
        let labels = self.get(&format!("_{what}_labels.txt")).map(|text| labels(text, rows)).transpose()?;
        let mut columns = attributes.unwrap_or_default();
        for (number, classes) in (1..).zip(labels.unwrap_or_default()) {
            let prefix = if number == 1 { "label".to_owned() } else { format!("label_{number}") };
            let names = classes.distinct.iter().map(|label| format!("{prefix}={label}")).collect();
            columns = columns.beside(NamedColumns { names, values: classes.one_hot() }, rows);
        }
        Ok(columns)
    }

    fn targets(&self, graphs: usize) -> Result<(NamedColumns, TargetLevel)> {
        if let Some(text) = self.get("_graph_attributes.txt") {
            return Ok((attributes(text, graphs)?, TargetLevel::Graph));
        }
        let Some(text) = self.get("_graph_labels.txt") else { return Ok((NamedColumns::default(), TargetLevel::None)) };
        let [classes] = labels(text, graphs)?.try_into().map_err(|columns: Vec<_>| {
            text.contradiction(format!("{} labels a graph", columns.len()), "one; several are attributes of graphs")
        })?;
        let names = classes.distinct.iter().map(i64::to_string).collect();
        Ok((NamedColumns { names, values: classes.one_hot() }, TargetLevel::Graph))
    }
}

/// Graph of each node.
struct Owners {
    /// [nodes]
    graph_of: Vec<usize>,
    /// [graphs + 1] first node of each graph, and the number of nodes.
    offsets: Vec<usize>,
}

impl Owners {
    /// The number of graphs is that of graph labels or attributes, or else the nodes' largest.
    fn read(files: &DatasetFiles<'_>) -> Result<Self> {
        let Some(text) = files.get("_graph_indicator.txt") else {
            let edges = files.get(ENDINGS[0]).expect("the dataset has its name from this file");
            let expected = format!("`{}_graph_indicator.txt`, which says of which graph each node is", files.dataset);
            return Err(edges.contradiction("a file is missing beside it", expected));
        };
        let described = files.get("_graph_attributes.txt").or(files.get("_graph_labels.txt"));
        let described = described.map(rows).transpose()?;
        let (mut graph_of, mut offsets) = (Vec::new(), vec![0]);
        let mut table = DelimitedText::new(text);
        while let Some(row) = table.next()? {
            row.check_len(1)?;
            // A graph without a line of its own must have nodes; otherwise any number of graphs
            // would be accepted.
            let first = offsets.len();
            let end = described.unwrap_or(first + usize::from(!graph_of.is_empty()));
            let expected = || {
                format!(
                    "the number of a graph, {first} to {end}: nodes of one graph stand together, in the order of graphs"
                )
            };
            let number = row.integer::<usize>(0, &expected())?;
            if !(first..=end).contains(&number) {
                return Err(row.error(0, expected()));
            }
            offsets.resize(number, graph_of.len());
            graph_of.push(number - 1);
        }
        let begun = if graph_of.is_empty() { 0 } else { offsets.len() };
        offsets.resize(described.unwrap_or(begun), graph_of.len());
        offsets.push(graph_of.len());
        Ok(Owners { graph_of, offsets })
    }
}

fn rows(text: &Text) -> Result<usize> {
    let (mut table, mut rows) = (DelimitedText::new(text), 0);
    while table.next()?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

fn check_rows(text: &Text, found: usize, expected: usize) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(text
            .contradiction(format!("there are {found} lines"), format!("{expected}, one for each that it describes"))),
    }
}

/// Numbers, as many in every line.
fn attributes(text: &Text, expected: usize) -> Result<NamedColumns> {
    let (mut values, mut width, mut rows) = (Vec::new(), 0, 0);
    let mut table = DelimitedText::new(text);
    while let Some(row) = table.next()? {
        width = if rows == 0 { row.len() } else { width };
        row.check_len(width)?;
        for column in 0..width {
            values.push(row.number(column)?);
        }
        rows += 1;
    }
    check_rows(text, rows, expected)?;
    Ok(NamedColumns { names: (1..=width).map(|number| format!("attribute_{number}")).collect(), values })
}

/// Integers, as many in every line: the classes of every column.
fn labels(text: &Text, expected: usize) -> Result<Vec<LabelClasses<i64>>> {
    let (mut columns, mut rows) = (Vec::<Vec<i64>>::new(), 0);
    let mut table = DelimitedText::new(text);
    while let Some(row) = table.next()? {
        if rows == 0 {
            columns.resize_with(row.len(), Vec::new);
        }
        row.check_len(columns.len())?;
        for (column, labels) in columns.iter_mut().enumerate() {
            labels.push(row.integer(column, "an integer, the label of a class; other numbers are attributes")?);
        }
        rows += 1;
    }
    check_rows(text, rows, expected)?;
    columns.iter().map(|labels| LabelClasses::new(text, labels)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;

    fn texts(files: &[(&str, &str)]) -> Vec<Text> {
        files
            .iter()
            .map(|(name, text)| Text::new(format!("DS_{name}.txt"), text.as_bytes().to_vec()).unwrap())
            .collect()
    }

    const EDGES: (&str, &str) = ("A", "1, 2\n2, 1\n5, 4\n4,4\n");
    const NODES: (&str, &str) = ("graph_indicator", "1\n1\n1\n2\n2\n");

    #[test]
    fn every_file_of_the_format_is_read() {
        let imported = tu_texts(&texts(&[
            EDGES,
            NODES,
            ("graph_labels", "1\n-1\n"),
            ("node_labels", "7,0\n3,0\n3,1\n7,0\n7,0\n"),
            ("node_attributes", "0.5\n1\n1.5\n2\n-3e-1\n"),
            ("edge_labels", "1\n1\n0\n1\n"),
            ("edge_attributes", "1, 2\n3, 4\n5, 6\n7, 8\n"),
        ]))
        .unwrap();
        assert!(imported.notes().is_empty());
        let schema = imported.schema();
        assert_eq!(schema.node_features, ["attribute_1", "label=3", "label=7", "label_2=0", "label_2=1"]);
        assert_eq!(schema.edge_attributes, ["attribute_1", "attribute_2", "label=0", "label=1"]);
        assert_eq!(
            (schema.targets.as_slice(), imported.keys()),
            (["-1", "1"].map(String::from).as_slice(), ["1", "2"].map(String::from).as_slice())
        );
        let first = imported.build(0).unwrap();
        assert_eq!((first.row_ptr, first.col), (vec![0, 1, 2, 2], vec![1, 0]));
        assert_eq!(first.node_features[10..], [1.5, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(
            (first.edge_attributes, first.targets),
            (vec![3.0, 4.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0], Targets::Graph(vec![0.0, 1.0]))
        );
        let second = imported.build(1).unwrap();
        assert_eq!((second.row_ptr, second.col), (vec![0, 2, 2], vec![0, 1]));
        assert_eq!(second.edge_attributes, [7.0, 8.0, 0.0, 1.0, 5.0, 6.0, 1.0, 0.0]);
    }

    #[test]
    fn attributes_of_graphs_are_their_targets_and_graphs_may_be_empty() {
        let imported = tu_texts(&texts(&[
            EDGES,
            ("graph_indicator", "2\n2\n2\n3\n3"),
            ("graph_attributes", "1,2\n3,4\n5,6\n7,8\n"),
        ]))
        .unwrap();
        let sizes = (0..4).map(|index| imported.build(index).unwrap().len()).collect::<Vec<_>>();
        assert_eq!(sizes, [0, 3, 2, 0]);
        assert_eq!(imported.notes(), ["2 of the graphs have no nodes, and no model is trained on such: 1, 4"]);
        assert_eq!(imported.build(3).unwrap().targets, Targets::Graph(vec![7.0, 8.0]));
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        for (files, message) in [
            (vec![EDGES], "`DS_graph_indicator.txt`, which says"),
            (vec![NODES], "a file `DS_A.txt`"),
            (
                vec![EDGES, ("graph_indicator", "1\n1\n1\n3\n3")],
                "DS_graph_indicator.txt: line 4, column 1: expected the number of a graph, 1 to 2",
            ),
            (
                vec![EDGES, ("graph_indicator", "1\n2\n1\n3\n3")],
                "line 3, column 1: expected the number of a graph, 2 to 3",
            ),
            (vec![EDGES, NODES, ("graph_labels", "1\n")], "DS_graph_indicator.txt: line 4"),
            (
                vec![("A", "1,2\n\n1,6\n"), NODES],
                "DS_A.txt: line 3, column 2: expected the number of a node, 1 to 5, found `6`",
            ),
            (vec![("A", "0,2\n"), NODES], "column 1: expected the number of a node, 1 to 5, found `0`"),
            (vec![("A", "3,4\n"), NODES], "a node of graph 1, as is the first; this is one of graph 2, found `4`"),
            (vec![EDGES, NODES, ("node_labels", "1\n2\n")], "DS_node_labels.txt: there are 2 lines; expected 5"),
            (vec![EDGES, NODES, ("edge_labels", "1\n2\n3\n4.5\n")], "line 4, column 1: expected an integer"),
            (
                vec![EDGES, NODES, ("edge_attributes", "1\n2\nnan\n")],
                "line 3, column 1: expected a finite number, found `nan`",
            ),
            (vec![EDGES, NODES, ("graph_labels", "1,1\n1,2\n")], "2 labels a graph; expected one"),
            (vec![EDGES, NODES, ("node_attributes", "1\n1,2\n")], "line 2, column 2: expected 1 fields"),
        ] {
            let error = tu_texts(&texts(&files)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}\ndoes not contain\n{message}");
        }
        let error = tu(Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("no TU dataset"), "{error}");
    }
}
