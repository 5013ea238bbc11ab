use std::collections::HashMap;

use super::nodes::NodeNames;
use crate::error::Result;
use crate::import::columns::NamedColumns;
use crate::import::table::{DelimitedText, TableRow};
use crate::import::text::Text;

/// Most values that a matrix may have for each entry in its file, beyond [`DENSE_VALUES_MIN`]: bags
/// of words have about a hundred.
const VALUES_PER_ENTRY_MAX: usize = 1000;
const DENSE_VALUES_MIN: usize = 1 << 20;

/// The features of all nodes, dense.
pub(super) fn read(text: &Text, nodes: &NodeNames) -> Result<NamedColumns> {
    let (table, header) = DelimitedText::with_header(text)?;
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["node", "feature"] | ["node", "feature", "value"] => sparse(text, table, names.len(), nodes),
        _ => dense(text, table, header[1..].to_vec(), nodes),
    }
}

fn dense(text: &Text, mut table: DelimitedText<'_>, names: Vec<String>, nodes: &NodeNames) -> Result<NamedColumns> {
    let width = names.len();
    let mut rows: HashMap<u32, Vec<f32>> = HashMap::new();
    while let Some(row) = table.next()? {
        row.check_len(width + 1)?;
        let values = (1..=width).map(|column| row.number(column)).collect::<Result<Vec<_>>>()?;
        if rows.insert(nodes.place(row.bytes(0)), values).is_some() {
            return Err(row.error(0, "a node that has no features yet"));
        }
    }
    if rows.len() < nodes.len() {
        let found = format!("{} of {} nodes have features", rows.len(), nodes.len());
        return Err(text.contradiction(found, "a row a node, or the sparse form, in which what is missing is zero"));
    }
    let values = (0..nodes.len() as u32).flat_map(|node| rows.remove(&node).unwrap_or_default()).collect();
    Ok(NamedColumns { names, values })
}

/// Refuses a matrix of `size` that is far more than the entries of its file.
pub(super) fn check_size(text: &Text, entries: usize, nodes: usize, width: usize) -> Result<()> {
    let most = entries.saturating_mul(VALUES_PER_ENTRY_MAX).saturating_add(DENSE_VALUES_MIN);
    match width.saturating_mul(nodes) <= most {
        true => Ok(()),
        false => Err(text.contradiction(
            format!("{entries} entries are to fill {nodes} nodes by {width} columns"),
            "columns that are numbered from 0 on, or fewer of them",
        )),
    }
}

/// Features by number where all are numbers, or else in the order in which they occur.
fn sparse(text: &Text, mut table: DelimitedText<'_>, columns: usize, nodes: &NodeNames) -> Result<NamedColumns> {
    let (mut entries, mut features) = (Vec::new(), Names::default());
    while let Some(row) = table.next()? {
        row.check_len(columns)?;
        let value = if columns == 3 { row.number(2)? } else { 1.0 };
        entries.push((nodes.place(row.bytes(0)), features.place(&row)?, value));
    }
    let (width, numbers) = features.width();
    check_size(text, entries.len(), nodes.len(), width)?;
    let mut values = vec![0.0; nodes.len() * width];
    for (node, place, value) in entries {
        let column = if numbers { features.numbers[place] as usize } else { place };
        values[node as usize * width + column] = value;
    }
    let names = if numbers { (0..width).map(|number| number.to_string()).collect() } else { features.names };
    Ok(NamedColumns { names, values })
}

/// The features that a sparse file names.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    places: HashMap<Vec<u8>, usize>,
    /// Numbers from the names, as long as all of them are numbers.
    numbers: Vec<u32>,
}

impl Names {
    /// The place of the feature of a row among those seen.
    fn place(&mut self, row: &TableRow<'_>) -> Result<usize> {
        if let Some(&place) = self.places.get(row.bytes(1)) {
            return Ok(place);
        }
        let name = row.name(1, "the number or name of a feature")?;
        let place = self.names.len();
        self.places.insert(name.as_bytes().to_vec(), place);
        self.names.push(name.to_owned());
        self.numbers.extend(name.parse::<u32>().ok().filter(|_| self.numbers.len() == place));
        Ok(place)
    }

    /// Number of columns, and whether the names are their numbers.
    fn width(&self) -> (usize, bool) {
        match self.numbers.len() == self.names.len() {
            true => (self.numbers.iter().max().map_or(0, |&last| last as usize + 1), true),
            false => (self.names.len(), false),
        }
    }
}
