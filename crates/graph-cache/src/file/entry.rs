//! Index of a file: place, size and time of each graph's block.

#![forbid(unsafe_code)]

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::Xxh3;

use super::fault::FileFault;
use super::layout::{BlockLayout, BlockShape};

/// Index entry of one graph, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct IndexEntry {
    /// First byte of the block in the file.
    pub(crate) offset: u64,
    /// Size of the block.
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
    pub(crate) nodes: u64,
    pub(crate) edges: u64,
    /// 0 if there is none.
    pub(crate) known_time: i64,
    /// 1 if there is one.
    pub(crate) has_known_time: u64,
    pub(crate) reserved: u64,
}

impl IndexEntry {
    /// Checksum of graph `index` with `block` in the collection with `checksums`: XXH3-64 of
    /// everything that defines the graph.
    pub(crate) fn checksum_of(&self, checksums: HeaderChecksums, index: usize, block: &[u8]) -> u64 {
        let mut hasher = Xxh3::new();
        let hashed = [
            checksums.description,
            checksums.keys,
            index as u64,
            self.nodes,
            self.edges,
            self.known_time as u64,
            self.has_known_time,
        ];
        hasher.update(bytemuck::bytes_of(&hashed));
        hasher.update(block);
        hasher.digest()
    }

    /// The bytes of the block, at `start` as the blocks follow one another and within a file of
    /// `file_bytes`, with its arrays.
    pub(crate) fn place(
        &self,
        shape: &BlockShape,
        start: u64,
        file_bytes: u64,
    ) -> Result<(Range<usize>, BlockLayout), FileFault> {
        let fault = |reason| Err(FileFault::new("index", reason));
        let Some(layout) = BlockLayout::new(shape, self.nodes, self.edges) else {
            return fault(format!("no memory holds {} nodes and {} edges", self.nodes, self.edges));
        };
        if (self.offset, self.bytes) != (start, layout.bytes as u64) {
            let (IndexEntry { offset, bytes, .. }, expected) = (self, layout.bytes);
            return fault(format!("a block has {bytes} bytes at {offset}, not {expected} at {start}"));
        }
        let end = start.checked_add(self.bytes).filter(|&end| end <= file_bytes);
        let Some(end) = end.and_then(|end| usize::try_from(end).ok()) else {
            return fault(format!("a block of {} bytes at {start} passes the file's end at {file_bytes}", self.bytes));
        };
        let has_time = self.has_known_time == 1 || (self.has_known_time, self.known_time) == (0, 0);
        if !has_time || self.reserved != 0 {
            return fault(format!("the time of a block is {} and {}", self.has_known_time, self.known_time));
        }
        Ok((start as usize..end, layout))
    }

    /// The entry's block in a file.
    pub(crate) fn block<'f>(&self, file: &'f [u8]) -> &'f [u8] {
        &file[self.offset as usize..(self.offset + self.bytes) as usize]
    }

    pub(crate) fn known_time(&self) -> Option<i64> {
        (self.has_known_time == 1).then_some(self.known_time)
    }
}

/// Checksums of the sections before the index, which bind a block to its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderChecksums {
    pub(crate) description: u64,
    pub(crate) keys: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::layout::Widths;
    use crate::schema::Schema;

    #[test]
    fn entries_that_do_not_add_up_are_refused() {
        let shape = BlockShape::new(&Schema::default(), Widths::default());
        let right = IndexEntry { offset: 4096, bytes: 6 * 64, nodes: 2, edges: 3, ..IndexEntry::default() };
        assert_eq!(right.place(&shape, 4096, 4480).unwrap().0, 4096..4480);
        let timed = IndexEntry { has_known_time: 1, known_time: -5, ..right };
        assert!(timed.place(&shape, 4096, 4480).is_ok());
        assert_eq!((right.known_time(), timed.known_time()), (None, Some(-5)));
        let wrong = [
            (IndexEntry { offset: 4160, ..right }, "384 bytes at 4160, not 384 at 4096"),
            (IndexEntry { bytes: 320, ..right }, "320 bytes at 4096, not 384 at 4096"),
            (IndexEntry { edges: u64::MAX, ..right }, "no memory holds 2 nodes and 18446744073709551615 edges"),
            (IndexEntry { known_time: 7, ..right }, "the time of a block is 0 and 7"),
            (IndexEntry { has_known_time: 2, ..right }, "the time of a block is 2 and 0"),
            (IndexEntry { reserved: 1, ..right }, "the time of a block is 0 and 0"),
        ];
        for (entry, reason) in wrong {
            let fault = entry.place(&shape, 4096, 4480).unwrap_err();
            assert!(fault.reason.contains(reason), "{}", fault.reason);
        }
        assert!(right.place(&shape, 4096, 4479).unwrap_err().reason.contains("passes the file's end at 4479"));
    }

    #[test]
    fn a_block_is_bound_to_its_place_in_its_collection() {
        let entry = IndexEntry { nodes: 1, ..IndexEntry::default() };
        let checksum = |entry: IndexEntry, checksums, index| entry.checksum_of(checksums, index, b"block");
        let right = checksum(entry, HeaderChecksums { description: 1, keys: 2 }, 3);
        assert_ne!(right, checksum(entry, HeaderChecksums { description: 2, keys: 1 }, 3));
        assert_ne!(right, checksum(entry, HeaderChecksums { description: 1, keys: 2 }, 4));
        assert_ne!(
            right,
            checksum(IndexEntry { has_known_time: 1, ..entry }, HeaderChecksums { description: 1, keys: 2 }, 3)
        );
        assert_ne!(right, entry.checksum_of(HeaderChecksums { description: 1, keys: 2 }, 3, b"blocks"));
    }
}
