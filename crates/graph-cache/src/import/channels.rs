//! Attributes of nodes beside their observations.

use std::collections::HashMap;

use crate::build::{Channel, ChannelValues};
use crate::error::Result;
use crate::import::table::DelimitedText;
use crate::import::text::Text;

/// The columns of a CSV as [`Channel`]s of the nodes called `names`: a header, whose first column
/// is that of the nodes' names, and a row a node, in any order. A column whose fields are all
/// numbers or empty has sizes, any other one labels. Rows of other nodes are passed over; a node
/// without a row, and an empty field, are not known.
///
/// # Errors
/// [`Error::Field`](crate::Error::Field) for a node with two rows and a row that is too short or
/// too long; [`Error::Contradiction`](crate::Error::Contradiction) for a file with one column or of
/// none of the nodes.
pub fn channels(text: &Text, names: &[String]) -> Result<Vec<Channel>> {
    let (mut table, header) = DelimitedText::with_header(text)?;
    if header.len() < 2 {
        return Err(text.contradiction("there is one column", "names of nodes, and what is known of them beside it"));
    }
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    let mut columns = vec![vec![String::new(); names.len()]; header.len() - 1];
    let mut seen = vec![false; names.len()];
    while let Some(row) = table.next()? {
        row.check_len(header.len())?;
        let Some(&place) = places.get(row.name(0, "the name of a node")?) else { continue };
        if std::mem::replace(&mut seen[place], true) {
            return Err(row.error(0, "one row a node"));
        }
        for (column, fields) in columns.iter_mut().enumerate() {
            fields[place] = String::from_utf8_lossy(row.bytes(column + 1)).into_owned();
        }
    }
    if !names.is_empty() && !seen.contains(&true) {
        let expected = format!("names such as {:?} in the first column", names[0]);
        return Err(text.contradiction("it has none of the nodes", expected));
    }
    let channel = |(name, fields): (&String, Vec<String>)| Channel { name: name.clone(), values: values(fields) };
    Ok(header[1..].iter().zip(columns).map(channel).collect())
}

fn values(fields: Vec<String>) -> ChannelValues {
    let size = |field: &String| if field.is_empty() { Some(f64::NAN) } else { field.parse().ok() };
    match fields.iter().map(size).collect() {
        Some(sizes) => ChannelValues::Sizes(sizes),
        None => ChannelValues::Labels(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &str) -> Result<Vec<Channel>> {
        let names = ["A", "B", "C"].map(str::to_owned);
        channels(&Text::new("nodes.csv", bytes.into()).unwrap(), &names)
    }

    #[test]
    fn numbers_are_sizes_and_texts_are_labels() {
        let found = read("symbol,cap,sector\nC,3,Energy\nX,9,Banks\nA,1.5,\n").unwrap();
        let [cap, sector] = &found[..] else { panic!("two columns") };
        let ChannelValues::Sizes(sizes) = &cap.values else { panic!("numbers") };
        assert_eq!((&cap.name[..], sizes[0], sizes[1].is_nan(), sizes[2]), ("cap", 1.5, true, 3.0));
        let labels = ["", "", "Energy"].map(str::to_owned).to_vec();
        assert_eq!((&sector.name[..], &sector.values), ("sector", &ChannelValues::Labels(labels)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (bytes, message) in [
            ("symbol\nA\n", "nodes.csv: there is one column"),
            ("symbol,cap\nX,1\n", "nodes.csv: it has none of the nodes"),
            ("symbol,cap\nA,1\n\nA,2\n", "nodes.csv: line 4, column 1: expected one row a node, found `A`"),
            ("symbol,cap\nA\n", "nodes.csv: line 2, column 2: expected 2 fields"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
