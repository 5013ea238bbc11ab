#![forbid(unsafe_code)]

use super::features;
use super::nodes::Nodes;
use crate::error::Result;
use crate::import::classes::Classes;
use crate::import::columns::Columns;
use crate::import::table::{Row, Table};
use crate::import::text::Text;

/// A part of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Train,
    Validation,
    Test,
}

impl Part {
    pub(super) const ALL: [Part; 3] = [Part::Train, Part::Validation, Part::Test];

    pub(super) fn key(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Validation => "validation",
            Part::Test => "test",
        }
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Option<Part>> {
        match row.bytes(column) {
            b"train" => Ok(Some(Part::Train)),
            b"validation" | b"val" | b"valid" => Ok(Some(Part::Validation)),
            b"test" => Ok(Some(Part::Test)),
            b"none" | b"" => Ok(None),
            _ => Err(row.error(column, "`train`, `validation`, `test` or `none`")),
        }
    }
}

/// Known attributes of the nodes, and their use.
#[derive(Default)]
pub(super) struct Known {
    /// [nodes, K], NaN where it is not known.
    pub(super) targets: Columns,
    /// [nodes], or empty where no file speaks of nodes.
    pub(super) parts: Vec<Option<Part>>,
}

impl Known {
    pub(super) fn read(text: &Text, nodes: &Nodes) -> Result<Self> {
        let (mut table, header) = Table::with_header(text)?;
        let split = header.iter().position(|name| name == "split");
        let columns: Vec<usize> = (1..header.len()).filter(|&column| Some(column) != split).collect();
        let labels = text.name() == super::KNOWN[0];
        if labels && (columns.len() > 1 || columns.iter().any(|&column| header[column] != "label")) {
            let found = format!("the columns are `{}`", header.join(","));
            return Err(text.contradiction(found, "`node`, `label` and `split`; numbers stand in `targets.csv`"));
        }
        let mut rows: Vec<Option<Entry>> = vec![None; nodes.len()];
        let mut parts = vec![None; nodes.len()];
        while let Some(row) = table.next()? {
            row.check_len(header.len())?;
            let node = nodes.place(row.bytes(0)) as usize;
            if rows[node].is_some() {
                return Err(row.error(0, "a node that is not named above"));
            }
            parts[node] = split.map_or(Ok(None), |column| Part::read(&row, column))?;
            rows[node] = Some(Entry::read(&row, &columns, labels)?);
        }
        let entries = columns.len() * rows.iter().flatten().count();
        features::check_size(text, entries, nodes.len(), columns.len())?;
        let names = columns.iter().map(|&column| header[column].clone()).collect();
        let targets = if labels { one_hot(text, &rows)? } else { numbers(names, &rows) };
        Ok(Known { targets, parts })
    }
}

/// Entry of a row about a node.
#[derive(Clone)]
enum Entry {
    Label(Option<String>),
    Numbers(Vec<f32>),
}

impl Entry {
    fn read(row: &Row<'_>, columns: &[usize], labels: bool) -> Result<Self> {
        if !labels {
            return Ok(Entry::Numbers(columns.iter().map(|&column| row.target(column)).collect::<Result<_>>()?));
        }
        let label = columns.iter().filter(|&&column| !row.bytes(column).is_empty());
        Ok(Entry::Label(
            label.map(|&column| row.name(column, "a label in UTF-8").map(str::to_owned)).next().transpose()?,
        ))
    }
}

/// Labels in the order of numbers where all are numbers, or else in that of text.
fn one_hot(text: &Text, rows: &[Option<Entry>]) -> Result<Columns> {
    let label = |(node, row): (usize, &Option<Entry>)| match row {
        Some(Entry::Label(Some(label))) => Some((node, label.clone())),
        _ => None,
    };
    let (labelled, labels): (Vec<usize>, Vec<String>) = rows.iter().enumerate().filter_map(label).unzip();
    let number = |label: &String| label.parse::<i64>().ok();
    let by_number = labels.iter().all(|label| number(label).is_some());
    let keyed: Vec<_> = labels.into_iter().map(|label| (number(&label).filter(|_| by_number), label)).collect();
    let classes = Classes::of(text, &keyed)?;
    let width = classes.distinct.len();
    let mut values = vec![f32::NAN; rows.len() * width];
    for (node, row) in labelled.into_iter().zip(classes.one_hot().chunks_exact(width.max(1))) {
        values[node * width..(node + 1) * width].copy_from_slice(row);
    }
    Ok(Columns { names: classes.distinct.into_iter().map(|(_, label)| label).collect(), values })
}

fn numbers(names: Vec<String>, rows: &[Option<Entry>]) -> Columns {
    let unknown = vec![f32::NAN; names.len()];
    let numbers = |row: &Option<Entry>| match row {
        Some(Entry::Numbers(numbers)) => numbers.clone(),
        _ => unknown.clone(),
    };
    Columns { values: rows.iter().flat_map(numbers).collect(), names }
}
