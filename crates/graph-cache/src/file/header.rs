//! The first page of a file.

#![forbid(unsafe_code)]

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use super::entry::IndexEntry;
use super::fault::FileFault;
use super::layout::PAGE;

pub(crate) const MAGIC: [u8; 16] = *b"megabatch-graphs";
pub(crate) const VERSION: u32 = 1;
/// Offset of the checksum of all bytes before it.
const CHECKSUM_AT: usize = PAGE - size_of::<u64>();
/// Names of the sections, in file order.
const SECTIONS: [&str; 4] = ["description", "keys", "index", "blocks"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) file_bytes: u64,
    pub(crate) graphs: u64,
    pub(crate) sections: [FileSection; 4],
}

/// A stretch of the file; the checksum of the blocks is 0, because each has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FileSection {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = MAGIC.to_vec();
        page.extend(VERSION.to_le_bytes());
        page.extend([0; 4]);
        page.extend(self.file_bytes.to_le_bytes());
        page.extend(self.graphs.to_le_bytes());
        page.extend_from_slice(bytemuck::cast_slice(&self.sections));
        page.resize(CHECKSUM_AT, 0);
        page.extend(xxh3_64(&page).to_le_bytes());
        page
    }

    /// The header of a page that begins with the magic and this version.
    pub(crate) fn decode(page: &[u8]) -> Result<Self, FileFault> {
        let number = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        let (found, written) = (xxh3_64(&page[..CHECKSUM_AT]), number(CHECKSUM_AT));
        if found != written {
            return Err(FileFault::checksum("header", found, written));
        }
        let section = |k: usize| FileSection {
            offset: number(40 + 24 * k),
            bytes: number(48 + 24 * k),
            checksum: number(56 + 24 * k),
        };
        let header = FileHeader { file_bytes: number(24), graphs: number(32), sections: [0, 1, 2, 3].map(section) };
        if header.encode() == page {
            return Ok(header);
        }
        Err(FileFault::new("header", "bytes that are 0 in this version are not"))
    }

    /// Ranges of the sections of a file of `file_bytes`, once it is clear that they fill it.
    pub(crate) fn ranges(&self, file_bytes: usize) -> Result<[Range<usize>; 4], FileFault> {
        let fault = |reason| FileFault::new("header", reason);
        if self.file_bytes != file_bytes as u64 {
            return Err(fault(format!("it was written with {} bytes and has {file_bytes}", self.file_bytes)));
        }
        let mut ranges = [const { 0..0 }; 4];
        let mut start = PAGE;
        for ((section, name), range) in self.sections.iter().zip(SECTIONS).zip(&mut ranges) {
            let end = usize::try_from(section.bytes).ok().and_then(|bytes| start.checked_add(bytes));
            let end = end.filter(|&end| end <= file_bytes && section.offset == start as u64);
            let whole = |end: &usize| name == "blocks" || end.is_multiple_of(PAGE);
            let end = end.filter(whole).ok_or_else(|| {
                fault(format!("{name} has {} bytes at {} where {start} is next", section.bytes, section.offset))
            })?;
            *range = start..end;
            start = end;
        }
        let index_bytes =
            usize::try_from(self.graphs).ok().and_then(|graphs| graphs.checked_mul(size_of::<IndexEntry>()));
        let index_bytes = index_bytes.and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        if index_bytes != Some(ranges[2].len()) || start != file_bytes {
            return Err(fault(format!("the sections of {} graphs do not fill {file_bytes} bytes", self.graphs)));
        }
        Ok(ranges)
    }

    /// Checks the checksums of the sections before the blocks.
    pub(crate) fn check_sections(&self, file: &[u8], ranges: &[Range<usize>; 4]) -> Result<(), FileFault> {
        for ((section, name), range) in self.sections.iter().zip(SECTIONS).zip(ranges) {
            let found = if name == "blocks" { 0 } else { xxh3_64(&file[range.clone()]) };
            if found != section.checksum {
                return Err(FileFault::checksum(name, found, section.checksum));
            }
        }
        Ok(())
    }
}
