use std::collections::BTreeMap;

use hdf5::Dataset;
use hdf5::datatype::ByteOrder;
use hdf5::filters::Filter;
use serde::Serialize;

use crate::file::InputFile;
use crate::series::MARK_GROUP;
use crate::text::{AttributeValue, read_attribute};

/// A dataset as it lies on disk.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DatasetEntry {
    /// Path in the file.
    pub path: String,
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Type of the elements, such as `float32`.
    pub dtype: String,
    /// `little`, `big` or `none`.
    pub byte_order: &'static str,
    /// Shape of a chunk, if it is chunked; otherwise it is contiguous or within the header.
    pub chunk: Option<Vec<usize>>,
    /// Filters in the order in which they are applied when writing.
    pub filters: Vec<String>,
    /// Filters among them that this build cannot decode.
    pub filters_unknown: Vec<String>,
    /// Bytes taken in the file.
    pub bytes_on_disk: u64,
    /// Bytes of the elements as they are typed, without chunks' padding; for strings, of the
    /// references to them.
    pub bytes_uncompressed: u64,
}

pub(super) fn list_datasets(file: &InputFile) -> Vec<DatasetEntry> {
    let is_in_mark = |path: &str| path.strip_prefix(MARK_GROUP).is_some_and(|rest| rest.starts_with('/'));
    let datasets = file.all_datasets().into_iter().filter(|(path, _)| !is_in_mark(path));
    datasets.map(|(path, dataset)| entry(path, &dataset)).collect()
}

pub(super) fn list_attributes(root: &hdf5::File) -> BTreeMap<String, AttributeValue> {
    let value = |name: &str| match read_attribute(root, name) {
        Ok(value) => value,
        Err(_) => Some(AttributeValue::Other("unreadable".to_owned())),
    };
    let names = root.attr_names().unwrap_or_default();
    names.into_iter().filter_map(|name| value(&name).map(|value| (name, value))).collect()
}

fn entry(path: String, dataset: &Dataset) -> DatasetEntry {
    let shape = dataset.shape();
    let dtype = dataset.dtype().ok();
    let element_bytes = dtype.as_ref().map_or(0, |dtype| dtype.size() as u64);
    let filters = dataset.filters();
    DatasetEntry {
        path,
        bytes_uncompressed: shape.iter().fold(element_bytes, |bytes, &axis| bytes.saturating_mul(axis as u64)),
        shape,
        dtype: dtype.as_ref().map_or("unknown".to_owned(), ToString::to_string),
        byte_order: match dtype.map(|dtype| dtype.byte_order()) {
            Some(ByteOrder::LittleEndian) => "little",
            Some(ByteOrder::BigEndian) => "big",
            _ => "none",
        },
        chunk: dataset.chunk(),
        filters_unknown: filters.iter().filter(|filter| !filter.is_available()).map(filter_name).collect(),
        filters: filters.iter().map(filter_name).collect(),
        bytes_on_disk: dataset.storage_size(),
    }
}

fn filter_name(filter: &Filter) -> String {
    match filter {
        Filter::Deflate(level) => format!("gzip-{level}"),
        Filter::Shuffle => "shuffle".to_owned(),
        Filter::Fletcher32 => "fletcher32".to_owned(),
        Filter::SZip(..) => "szip".to_owned(),
        Filter::NBit => "nbit".to_owned(),
        Filter::ScaleOffset(_) => "scale-offset".to_owned(),
        Filter::LZF => "lzf".to_owned(),
        Filter::User(id, _) => format!("number {id}"),
    }
}
