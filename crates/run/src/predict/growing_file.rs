//! A file that may only grow while it is read.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Length of the two parts that are compared: the beginning, and the end of what was read.
const COMPARED_LEN: usize = 4 << 10;

/// A file that another program appends to while it is read.
pub(super) struct GrowingFile {
    file: File,
    identity: FileIdentity,
    read_bytes: u64,
    /// Contents that were read; `None` for a pipe, which cannot be read again.
    seen: Option<SeenContents>,
    is_changed: bool,
}

/// Device and inode of a file.
type FileIdentity = (u64, u64);

/// Identity of the file that was found.
pub(super) fn identity(found: &Metadata) -> FileIdentity {
    (found.dev(), found.ino())
}

/// The two parts of what was read that are compared.
#[derive(Default)]
struct SeenContents {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl SeenContents {
    fn add(&mut self, bytes: &[u8]) {
        let missing = (COMPARED_LEN - self.first.len()).min(bytes.len());
        self.first.extend_from_slice(&bytes[..missing]);
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(COMPARED_LEN)..]);
        let surplus = self.last.len().saturating_sub(COMPARED_LEN);
        self.last.drain(..surplus);
    }

    /// True if `file` has them still, of which `read_bytes` were read.
    fn are_in(&self, file: &File, read_bytes: u64) -> io::Result<bool> {
        let mut buffer = [0; COMPARED_LEN];
        for (part, start) in [(&self.first, 0), (&self.last, read_bytes - self.last.len() as u64)] {
            let found = &mut buffer[..part.len()];
            match file.read_exact_at(found, start) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
                read => read?,
            }
            if found[..] != part[..] {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl GrowingFile {
    /// An open file, nothing of which was read yet.
    pub(super) fn new(file: File, found: &Metadata) -> Self {
        let seen = found.is_file().then(SeenContents::default);
        GrowingFile { file, identity: identity(found), read_bytes: 0, seen, is_changed: false }
    }

    /// True if a read found other contents than those that were read before.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// True if `path` is this file still, and not shorter than what was read.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let is_same = |found: Metadata| identity(&found) == self.identity && found.len() >= self.read_bytes;
        std::fs::metadata(path).is_ok_and(is_same)
    }
}

impl Read for GrowingFile {
    /// Reads the next bytes. It fails if those before them were changed since they were read.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if count > 0
            && let Some(seen) = &mut self.seen
        {
            // After the read, so that no change before it is missed.
            if !seen.are_in(&self.file, self.read_bytes)? {
                self.is_changed = true;
                return Err(ErrorKind::InvalidData.into());
            }
            seen.add(&buffer[..count]);
        }
        self.read_bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Reads the end of a file that had the `before` once they are the `after`, in the same file.
    fn read_on(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("live.csv");
        std::fs::write(&path, before).unwrap();
        let file = File::open(&path).unwrap();
        let found = file.metadata().unwrap();
        let (mut growing, mut text) = (GrowingFile::new(file, &found), Vec::new());
        growing.read_to_end(&mut text).unwrap();
        assert_eq!(text, before);
        std::fs::write(&path, after).unwrap();
        text.clear();
        let read = growing.read_to_end(&mut text);
        assert_eq!(read.is_err(), growing.is_changed());
        read.is_ok().then_some(text)
    }

    #[test]
    fn contents_that_were_read_may_not_change() {
        let long: Vec<u8> = (0_u32..9_000).flat_map(u32::to_le_bytes).collect();
        let grown = |change: usize| {
            let mut bytes = [&long[..], b"more"].concat();
            bytes[change] ^= 1;
            bytes
        };
        assert_eq!(read_on(&long, &[&long[..], b"more"].concat()).unwrap(), b"more");
        assert_eq!(read_on(b"on", b"one\n").unwrap(), b"e\n");
        assert_eq!(read_on(b"", b"one\n").unwrap(), b"one\n");
        for change in [0, COMPARED_LEN - 1, long.len() - COMPARED_LEN, long.len() - 1] {
            assert_eq!(read_on(&long, &grown(change)), None, "{change}");
        }
        assert_eq!(read_on(b"one\n", b"two\nthree\n"), None);
    }

    #[test]
    fn a_pipe_is_read_once() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let file = File::from(OwnedFd::from(reader));
        let found = file.metadata().unwrap();
        let (mut growing, mut text) = (GrowingFile::new(file, &found), [0; 3]);
        for written in [b"one", b"two"] {
            writer.write_all(written).unwrap();
            growing.read_exact(&mut text).unwrap();
            assert_eq!(&text, written);
        }
    }
}
