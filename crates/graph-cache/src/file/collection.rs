//! A file's sections before the index: description and keys.

#![forbid(unsafe_code)]

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::description::CollectionDescription;
use super::encode::GraphBlock;
use super::entry::{HeaderChecksums, IndexEntry};
use super::header::{FileHeader, FileSection};
use super::layout::{ALIGN, BlockShape, PAGE, Widths};
use super::stored::check_floats;
use super::strings::push_strings;
use crate::builder::Builder;
use crate::error::{Error, Result};

/// A collection of graphs to be written, with the bytes of the sections before the index.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) description: CollectionDescription,
    pub(crate) shape: BlockShape,
    pub(crate) keys: Vec<String>,
    /// The sections `description` and `keys`.
    pub(crate) preamble: [Vec<u8>; 2],
    pub(crate) checksums: HeaderChecksums,
}

impl Collection {
    /// The graphs of `builder`.
    pub(crate) fn for_builder(builder: &dyn Builder, widths: Widths) -> Result<Self> {
        let (identity, schema) = (builder.identity(), builder.schema().clone());
        Collection::new(CollectionDescription { identity, schema, widths }, builder.keys())
    }

    pub(crate) fn new(description: CollectionDescription, keys: &[String]) -> Result<Self> {
        let preamble = [description.encode(), encode_keys(keys)?].map(padded);
        let [description_checksum, keys_checksum] = preamble.each_ref().map(|section| xxh3_64(section));
        let shape = BlockShape::new(&description.schema, description.widths);
        Ok(Collection {
            description,
            shape,
            keys: keys.to_owned(),
            preamble,
            checksums: HeaderChecksums { description: description_checksum, keys: keys_checksum },
        })
    }

    /// First byte of the index.
    pub(crate) fn index_start(&self) -> usize {
        PAGE + self.preamble[0].len() + self.preamble[1].len()
    }

    /// First byte of the first block.
    pub(crate) fn blocks_start(&self) -> usize {
        self.index_start() + (self.keys.len() * size_of::<IndexEntry>()).next_multiple_of(PAGE)
    }

    /// Range of the entry of graph `index` in the index.
    pub(crate) fn entry_range(&self, index: usize) -> Range<usize> {
        let start = self.index_start() + index * size_of::<IndexEntry>();
        start..start + size_of::<IndexEntry>()
    }

    /// The entry of graph `index` in a file of the collection, finished or not, if it and its block
    /// are whole, and its floats are such as may be stored.
    pub(crate) fn whole_entry(&self, file: &[u8], index: usize) -> Option<IndexEntry> {
        let entry: IndexEntry = bytemuck::pod_read_unaligned(file.get(self.entry_range(index))?);
        let (range, layout) = entry.place(&self.shape, entry.offset, file.len() as u64).ok()?;
        if !range.start.is_multiple_of(ALIGN) {
            return None;
        }
        let block = &file[range];
        let is_whole = entry.checksum_of(self.checksums, index, block) == entry.checksum;
        (is_whole && check_floats(&self.shape, &layout, block).is_ok()).then_some(entry)
    }

    /// The entry of the block that follows those of `entries`.
    pub(crate) fn entry(&self, entries: &[IndexEntry], block: &GraphBlock) -> IndexEntry {
        let offset = entries.last().map_or(self.blocks_start() as u64, |last| last.offset + last.bytes);
        let mut entry = IndexEntry {
            offset,
            bytes: block.bytes.len() as u64,
            nodes: block.nodes,
            edges: block.edges,
            known_time: block.known_time.unwrap_or(0),
            has_known_time: block.known_time.is_some().into(),
            ..IndexEntry::default()
        };
        entry.checksum = entry.checksum_of(self.checksums, entries.len(), &block.bytes);
        entry
    }

    /// The index with `entries` as it lies in the file, zero where there is none yet.
    pub(crate) fn index(&self, entries: &[IndexEntry]) -> Vec<u8> {
        let mut index = bytemuck::cast_slice(entries).to_vec();
        index.resize(self.blocks_start() - self.index_start(), 0);
        index
    }

    /// The page of a file with the index `entries`.
    pub(crate) fn header(&self, entries: &[IndexEntry]) -> Vec<u8> {
        let index = self.index(entries);
        let HeaderChecksums { description, keys } = self.checksums;
        let blocks_bytes = entries.iter().map(|entry| entry.bytes).sum();
        let mut start = PAGE as u64;
        let mut section = |bytes, checksum| {
            let offset = start;
            start += bytes;
            FileSection { offset, bytes, checksum }
        };
        let sections = [
            section(self.preamble[0].len() as u64, description),
            section(self.preamble[1].len() as u64, keys),
            section(index.len() as u64, xxh3_64(&index)),
            section(blocks_bytes, 0),
        ];
        FileHeader { file_bytes: start, graphs: entries.len() as u64, sections }.encode()
    }
}

/// The keys in their own order and, as places in it, in that of their bytes.
fn encode_keys(keys: &[String]) -> Result<Vec<u8>> {
    let mut order: Vec<u64> = (0..keys.len() as u64).collect();
    order.sort_by_key(|&position| &keys[position as usize]);
    if let Some(pair) = order.windows(2).find(|pair| keys[pair[0] as usize] == keys[pair[1] as usize]) {
        return Err(Error::SameKey {
            key: keys[pair[0] as usize].clone(),
            first: pair[0] as usize,
            second: pair[1] as usize,
        });
    }
    let mut bytes = Vec::new();
    push_strings(&mut bytes, keys.iter().map(String::as_str));
    bytes.extend_from_slice(bytemuck::cast_slice(&order));
    Ok(bytes)
}

/// A section as it lies in the file.
fn padded(mut section: Vec<u8>) -> Vec<u8> {
    section.resize(section.len().next_multiple_of(PAGE), 0);
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let keys = ["b", "a", "b"].map(str::to_owned);
        let error = Collection::new(CollectionDescription::default(), &keys).unwrap_err();
        assert_eq!(error.to_string(), r#"graphs 0 and 2 have the same key "b"; each needs one of its own"#);
    }

    #[test]
    fn an_empty_collection_has_no_index() {
        let collection = Collection::new(CollectionDescription::default(), &[]).unwrap();
        assert_eq!((collection.index_start(), collection.blocks_start()), (3 * PAGE, 3 * PAGE));
        let header = FileHeader::decode(&collection.header(&[])).unwrap();
        assert_eq!((header.file_bytes, header.graphs), (3 * PAGE as u64, 0));
    }
}
