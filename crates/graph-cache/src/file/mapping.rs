//! A file's bytes in memory, aligned to 64: read whole where the file is small or the system maps
//! none, mapped elsewhere.

#[cfg(unix)]
#[path = "mapping_unix.rs"]
mod system;
#[cfg(not(unix))]
#[path = "mapping_portable.rs"]
mod system;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Deref;

use bytemuck::{Pod, Zeroable};

/// Largest file that is read whole. Nothing that other programs do to the file reaches a copy. A
/// mapped file that they cut short between a check of its length and a read ends the process.
///
/// The limit bounds what processes with the same file open take beside one another, and the time of
/// opening it: reading so much from the system's cache takes less than a tenth of a second.
const COPIED_BYTES_MAX: u64 = 128 << 20;

/// A file's bytes, which nobody changes.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(system::Mapping),
    Owned {
        lines: Vec<CacheLine>,
        len: usize,
        /// Holds the shared lock that marks the file as in use; `None` for bytes of no file.
        _file: Option<File>,
    },
}

/// Unit of alignment: 64 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct CacheLine([u8; 64]);

impl FileBytes {
    /// The bytes of an open file, which is not empty.
    pub(crate) fn open(file: File) -> io::Result<Self> {
        Self::open_with_limit(file, COPIED_BYTES_MAX)
    }

    /// The bytes of an open file, which is not empty: read whole if they are `copied_bytes_max` or
    /// fewer.
    pub(super) fn open_with_limit(file: File, copied_bytes_max: u64) -> io::Result<Self> {
        if file.metadata()?.len() <= copied_bytes_max { Self::read(file) } else { system::map(file) }
    }

    fn read(mut file: File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut lines = vec![CacheLine::zeroed(); len.div_ceil(size_of::<CacheLine>())];
        file.rewind()?;
        file.read_exact(&mut bytemuck::cast_slice_mut::<_, u8>(&mut lines)[..len])?;
        Ok(FileBytes::Owned { lines, len, _file: Some(file) })
    }

    /// Reason for which not all bytes can be read any more, in words: another program cut the file
    /// short, and reading beyond its end would end this one.
    pub(crate) fn cut_short(&self) -> Option<String> {
        let FileBytes::Mapped(mapping) = self else { return None };
        match mapping.file_len() {
            Ok(len) if len >= mapping.len() as u64 => None,
            Ok(len) => Some(format!(
                "another program cut the file short while it was open: {len} of {} bytes are left",
                mapping.len()
            )),
            Err(error) => Some(format!("the system no longer tells its length: {error}")),
        }
    }

    /// The bytes of a mapped file, read whole; `None` for those that are in memory already.
    pub(crate) fn read_mapped(&self) -> io::Result<Option<Self>> {
        match self {
            FileBytes::Mapped(mapping) => mapping.file().and_then(FileBytes::read).map(Some),
            FileBytes::Owned { .. } => Ok(None),
        }
    }

    /// A copy that this process alone writes; `None` for a mapped file.
    pub(crate) fn private(&self) -> Option<PrivateBytes> {
        let FileBytes::Owned { lines, .. } = self else { return None };
        let mut lines = lines.clone();
        Some(PrivateBytes { address: lines.as_mut_ptr().expose_provenance(), _lines: lines })
    }

    /// A copy of bytes that are in memory already.
    pub(crate) fn owned(bytes: &[u8]) -> Self {
        let mut lines = vec![CacheLine::zeroed(); bytes.len().div_ceil(size_of::<CacheLine>())];
        bytemuck::cast_slice_mut(&mut lines)[..bytes.len()].copy_from_slice(bytes);
        FileBytes::Owned { lines, len: bytes.len(), _file: None }
    }
}

/// A file's bytes that may be written, by their addresses alone.
#[derive(Debug)]
pub(crate) struct PrivateBytes {
    address: usize,
    _lines: Vec<CacheLine>,
}

impl PrivateBytes {
    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(mapping) => mapping,
            FileBytes::Owned { lines, len, .. } => &bytemuck::cast_slice(lines)[..*len],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bytes_are_aligned_wherever_they_come_from() {
        for len in [1, 63, 64, 65, 4096, 10_000] {
            let content: Vec<u8> = (0..len).map(|k: u32| (k % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            let mapped = FileBytes::open_with_limit(file.try_clone().unwrap(), 0).unwrap();
            for bytes in [mapped, FileBytes::open(file).unwrap(), FileBytes::owned(&content)] {
                assert_eq!(*bytes, *content);
                assert!(bytes.as_ptr().addr().is_multiple_of(64));
            }
        }
        assert!(FileBytes::owned(&[]).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn files_above_the_limit_are_mapped() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        let is_mapped = |copied_bytes_max| {
            let bytes = FileBytes::open_with_limit(file.try_clone().unwrap(), copied_bytes_max).unwrap();
            matches!(bytes, FileBytes::Mapped(_))
        };
        assert_eq!([0, 99, 100].map(is_mapped), [true, true, false]);
    }
}
