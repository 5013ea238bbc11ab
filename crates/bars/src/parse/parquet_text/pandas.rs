use jiff::tz::TimeZone;
use parquet::file::metadata::KeyValue;
use serde::Deserialize;
use serde_json::Value;

/// Beginning of the names of index columns whose index has no name.
const UNNAMED_INDEX: &str = "__index_level_";

/// Parts of a frame that pandas describes in the metadata of a file, as JSON under `pandas`:
/// its index, the levels of its column names and the zones of its times. Empty for other writers.
///
/// Source: pandas' developer guide, "Storing pandas DataFrame objects in Apache Parquet format".
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PandasTable {
    /// Names of columns; an object in place of a name is a range, which is no column.
    index_columns: Vec<Value>,
    column_indexes: Vec<ColumnLevel>,
    columns: Vec<PandasColumn>,
}

#[derive(Debug, Deserialize)]
struct ColumnLevel {
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct PandasColumn {
    field_name: Option<String>,
    metadata: Option<Value>,
}

impl PandasTable {
    pub(super) fn from_metadata(metadata: Option<&Vec<KeyValue>>) -> Self {
        let described = metadata.into_iter().flatten().find(|pair| pair.key == "pandas");
        let text = described.and_then(|pair| pair.value.as_deref());
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Place among the columns of the index; the columns that are none have one behind them.
    pub(super) fn place_in_index(&self, name: &str) -> usize {
        self.index_columns.iter().position(|index| index.as_str() == Some(name)).unwrap_or(usize::MAX)
    }

    /// The zone of a column's times.
    pub(super) fn zone(&self, name: &str) -> Option<TimeZone> {
        let column = self.columns.iter().find(|column| column.field_name.as_deref() == Some(name))?;
        TimeZone::get(column.metadata.as_ref()?.get("timezone")?.as_str()?).ok()
    }

    /// The lines of the header over columns with these names, those of the index first.
    pub(super) fn header(&self, names: &[&str]) -> Vec<u8> {
        let index_len = names.iter().filter(|name| self.place_in_index(name) < usize::MAX).count();
        let (index, others) = names.split_at(index_len);
        let index: Vec<&str> =
            index.iter().map(|name| if name.starts_with(UNNAMED_INDEX) { "" } else { *name }).collect();
        let levels = self.column_indexes.len();
        let parts: Option<Vec<Vec<String>>> =
            others.iter().map(|name| tuple_parts(name).filter(|parts| parts.len() == levels)).collect();
        match parts {
            Some(parts) if levels > 1 && index_len == 1 => self.stacked_header(index[0], &parts),
            _ => line(index.into_iter().chain(others.iter().copied())),
        }
    }

    /// A line for each level of the names, and one for the name of the index.
    fn stacked_header(&self, index: &str, parts: &[Vec<String>]) -> Vec<u8> {
        let mut text = Vec::new();
        for (place, level) in self.column_indexes.iter().enumerate() {
            let names = parts.iter().map(|parts| parts[place].as_str());
            text.extend(line(std::iter::once(level.name.as_deref().unwrap_or_default()).chain(names)));
        }
        if !index.is_empty() {
            text.extend(line(std::iter::once(index).chain(parts.iter().map(|_| ""))));
        }
        text
    }
}

/// One line of fields.
fn line<'a>(fields: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut text = Vec::new();
    for (place, field) in fields.enumerate() {
        if place > 0 {
            text.push(b',');
        }
        push_quoted(field.as_bytes(), &mut text);
    }
    text.push(b'\n');
    text
}

/// Adds a field of text, in quotes where it needs them (RFC 4180). The end of a line within it
/// becomes a space: rows are lines.
pub(super) fn push_quoted(field: &[u8], text: &mut Vec<u8>) {
    if !field.iter().any(|byte| b",\"\r\n".contains(byte)) {
        text.extend_from_slice(field);
        return;
    }
    text.push(b'"');
    for &byte in field {
        match byte {
            b'"' => text.extend_from_slice(b"\"\""),
            b'\r' | b'\n' => text.push(b' '),
            _ => text.push(byte),
        }
    }
    text.push(b'"');
}

/// The strings of `('Close', 'AAPL')`, which is how a name of several levels is written.
fn tuple_parts(name: &str) -> Option<Vec<String>> {
    let mut rest = name.strip_prefix('(')?.strip_suffix(')')?;
    let mut parts = Vec::new();
    loop {
        let quote = rest.chars().next().filter(|quote| "'\"".contains(*quote))?;
        let (part, after) = rest[1..].split_once(quote)?;
        parts.push(part.to_owned());
        match after.strip_prefix(", ") {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(parts),
        }
    }
}
