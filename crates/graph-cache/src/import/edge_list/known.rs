use super::features;
use super::nodes::NodeNames;
use crate::error::Result;
use crate::import::classes::LabelClasses;
use crate::import::columns::NamedColumns;
use crate::import::table::{DelimitedText, TableRow};
use crate::import::text::Text;

/// A part of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitPart {
    Train,
    Validation,
    Test,
}

impl SplitPart {
    pub(super) const ALL: [SplitPart; 3] = [SplitPart::Train, SplitPart::Validation, SplitPart::Test];

    pub(super) fn key(self) -> &'static str {
        match self {
            SplitPart::Train => "train",
            SplitPart::Validation => "validation",
            SplitPart::Test => "test",
        }
    }

    fn read(row: &TableRow<'_>, column: usize) -> Result<Option<SplitPart>> {
        match row.bytes(column) {
            b"train" => Ok(Some(SplitPart::Train)),
            b"validation" | b"val" | b"valid" => Ok(Some(SplitPart::Validation)),
            b"test" => Ok(Some(SplitPart::Test)),
            b"none" | b"" => Ok(None),
            _ => Err(row.error(column, "`train`, `validation`, `test` or `none`")),
        }
    }
}

/// Known attributes of the nodes, and their use.
#[derive(Default)]
pub(super) struct KnownNodes {
    /// [nodes, K], NaN where it is not known.
    pub(super) targets: NamedColumns,
    /// [nodes], or empty where no file speaks of nodes.
    pub(super) parts: Vec<Option<SplitPart>>,
}

impl KnownNodes {
    pub(super) fn read(text: &Text, nodes: &NodeNames) -> Result<Self> {
        let (mut table, header) = DelimitedText::with_header(text)?;
        let split = header.iter().position(|name| name == "split");
        let columns: Vec<usize> = (1..header.len()).filter(|&column| Some(column) != split).collect();
        let labels = text.name() == super::KNOWN[0];
        if labels && (columns.len() > 1 || columns.iter().any(|&column| header[column] != "label")) {
            let found = format!("the columns are `{}`", header.join(","));
            return Err(text.contradiction(found, "`node`, `label` and `split`; numbers stand in `targets.csv`"));
        }
        let mut rows: Vec<Option<NodeEntry>> = vec![None; nodes.len()];
        let mut parts = vec![None; nodes.len()];
        while let Some(row) = table.next()? {
            row.check_len(header.len())?;
            let node = nodes.place(row.bytes(0)) as usize;
            if rows[node].is_some() {
                return Err(row.error(0, "a node that is not named above"));
            }
            parts[node] = split.map_or(Ok(None), |column| SplitPart::read(&row, column))?;
            rows[node] = Some(NodeEntry::read(&row, &columns, labels)?);
        }
        let entries = columns.len() * rows.iter().flatten().count();
        features::check_size(text, entries, nodes.len(), columns.len())?;
        let names = columns.iter().map(|&column| header[column].clone()).collect();
        let targets = if labels { one_hot(text, &rows)? } else { numbers(names, &rows) };
        Ok(KnownNodes { targets, parts })
    }
}

/// Label or targets of a node.
#[derive(Clone)]
enum NodeEntry {
    Label(Option<String>),
    Numbers(Vec<f32>),
}

impl NodeEntry {
    fn read(row: &TableRow<'_>, columns: &[usize], labels: bool) -> Result<Self> {
        if !labels {
            return Ok(NodeEntry::Numbers(columns.iter().map(|&column| row.target(column)).collect::<Result<_>>()?));
        }
        let label = columns.iter().filter(|&&column| !row.bytes(column).is_empty());
        Ok(NodeEntry::Label(
            label.map(|&column| row.name(column, "a label in UTF-8").map(str::to_owned)).next().transpose()?,
        ))
    }
}

/// Labels in the order of numbers where all are numbers, or else in that of text.
fn one_hot(text: &Text, rows: &[Option<NodeEntry>]) -> Result<NamedColumns> {
    let label = |(node, row): (usize, &Option<NodeEntry>)| match row {
        Some(NodeEntry::Label(Some(label))) => Some((node, label.clone())),
        _ => None,
    };
    let (labelled, labels): (Vec<usize>, Vec<String>) = rows.iter().enumerate().filter_map(label).unzip();
    let number = |label: &String| label.parse::<i64>().ok();
    let by_number = labels.iter().all(|label| number(label).is_some());
    let keyed: Vec<_> = labels.into_iter().map(|label| (number(&label).filter(|_| by_number), label)).collect();
    let classes = LabelClasses::new(text, &keyed)?;
    let width = classes.distinct.len();
    let mut values = vec![f32::NAN; rows.len() * width];
    for (node, row) in labelled.into_iter().zip(classes.one_hot().chunks_exact(width.max(1))) {
        values[node * width..(node + 1) * width].copy_from_slice(row);
    }
    Ok(NamedColumns { names: classes.distinct.into_iter().map(|(_, label)| label).collect(), values })
}

fn numbers(names: Vec<String>, rows: &[Option<NodeEntry>]) -> NamedColumns {
    let unknown = vec![f32::NAN; names.len()];
    let numbers = |row: &Option<NodeEntry>| match row {
        Some(NodeEntry::Numbers(numbers)) => numbers.clone(),
        _ => unknown.clone(),
    };
    NamedColumns { values: rows.iter().flat_map(numbers).collect(), names }
}
