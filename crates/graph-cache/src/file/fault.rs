//! Faults of a file's bytes, and checked numbers taken from them.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::path::Path;

use crate::error::Error;

/// Fault of one object of a file.
#[derive(Debug)]
pub(crate) struct FileFault {
    pub(crate) object: String,
    pub(crate) reason: String,
}

impl FileFault {
    pub(crate) fn new(object: impl Into<String>, reason: impl Into<String>) -> Self {
        FileFault { object: object.into(), reason: reason.into() }
    }

    /// Fault of bytes that do not have their checksum.
    pub(crate) fn checksum(object: impl Into<String>, found: u64, written: u64) -> Self {
        FileFault::new(
            object,
            format!("its bytes have the XXH3-64 {found:016x}, and those that were written {written:016x}"),
        )
    }

    pub(crate) fn in_file(self, path: &Path) -> Error {
        Error::Damaged { path: path.to_owned(), object: self.object, reason: self.reason }
    }
}

/// Cursor in a section of a file.
pub(crate) struct SectionReader<'f> {
    pub(crate) file: &'f [u8],
    object: &'static str,
    pub(crate) at: usize,
    end: usize,
}

impl<'f> SectionReader<'f> {
    /// A cursor at the beginning of the section `object` of `file`.
    pub(crate) fn new(file: &'f [u8], object: &'static str, section: Range<usize>) -> Self {
        SectionReader { file, object, at: section.start, end: section.end }
    }

    pub(crate) fn fault(&self, reason: impl Into<String>) -> FileFault {
        FileFault::new(self.object, reason)
    }

    /// The bytes of an array of `count` elements; padding to a multiple of 8 is skipped.
    pub(crate) fn array(&mut self, count: u64, element_bytes: usize) -> Result<Range<usize>, FileFault> {
        let left = self.end - self.at;
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(element_bytes));
        let padded = bytes.and_then(|bytes| bytes.checked_next_multiple_of(8)).filter(|&padded| padded <= left);
        let (Some(bytes), Some(padded)) = (bytes, padded) else {
            let asked = if count == 1 { format!("{element_bytes}") } else { format!("{count} times {element_bytes}") };
            return Err(self.fault(format!("{asked} bytes are asked for where {left} are left")));
        };
        let start = self.at;
        self.at += padded;
        Ok(start..start + bytes)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], FileFault> {
        let range = self.array(1, N)?;
        Ok(self.file[range].try_into().expect("the range is as long"))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FileFault> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }
}
