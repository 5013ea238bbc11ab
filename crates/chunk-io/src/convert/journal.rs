//! Journal of a conversion, in a file beside its output: records that are only appended, each with
//! a checksum. A run that was killed at any point is continued after the last whole record.
//!
//! Little-endian. The file begins with 16 bytes of magic and version and the XXH3-128 of the
//! input's identity and the settings. A record is `kind` u32, `mask` u32, `index` u64, `bytes` u64,
//! the XXH3-64 of these four and of the payload, and the payload.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use megabatch_atomic_file::{is_at, open_sibling};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::error::{Error, Result};

const MAGIC: [u8; 16] = *b"megabatch-spool2";
const HEADER_BYTES: u64 = 32;
const RECORD_HEADER_BYTES: usize = 32;
/// Payloads are read in pieces of this size when a journal is opened.
const PIECE_BYTES: usize = 1 << 20;
/// Most bytes written between two syncs.
const SYNC_BYTES: u64 = 256 << 20;

/// Storage of a journal: a file, or a test's stand-in for one.
pub(super) trait Backing: Read + Write + Seek {
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

impl Backing for File {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// One record; its payload stays in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: u32,
    pub(super) mask: u32,
    pub(super) index: u64,
    /// First byte of the payload in the file.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal<M = File> {
    path: PathBuf,
    backing: M,
    end: u64,
    unsynced: u64,
}

/// Content of a journal when it was opened.
#[derive(Debug, Default)]
pub(super) struct JournalContent {
    pub(super) records: Vec<Record>,
    /// True if a journal of another conversion was there and was discarded.
    pub(super) discarded: bool,
}

impl Journal<File> {
    /// Opens or creates the journal at `path` for the conversion that `identity` describes.
    pub(super) fn open(path: PathBuf, identity: &str) -> Result<(Self, JournalContent)> {
        loop {
            let file = open_sibling(&path).map_err(|source| Error::NotWritable { path: path.clone(), source })?;
            if file.try_lock().is_err() {
                return Err(Error::Locked { path });
            }
            // Whoever had the lock may have removed the file since it was opened here.
            if is_at(&path, &file) {
                return Journal::over(file, path, identity);
            }
        }
    }

    /// Removes the file.
    pub(super) fn remove(self) -> Result<()> {
        let io = |source| Error::Io { path: self.path.clone(), action: "remove the file", source };
        std::fs::remove_file(&self.path).map_err(io)
    }
}

impl<M: Backing> Journal<M> {
    /// Reads the records of `backing` and truncates it after the last whole one.
    fn over(mut backing: M, path: PathBuf, identity: &str) -> Result<(Self, JournalContent)> {
        let mut found = JournalContent::default();
        let mut header = MAGIC.to_vec();
        header.extend(xxh3_128(identity.as_bytes()).to_le_bytes());
        let mut scan = || -> io::Result<u64> {
            let length = backing.seek(SeekFrom::End(0))?;
            backing.rewind()?;
            let mut begun = Vec::new();
            (&mut backing).take(HEADER_BYTES).read_to_end(&mut begun)?;
            if begun != header {
                found.discarded = length >= HEADER_BYTES;
                backing.cut(0)?;
                backing.rewind()?;
                backing.write_all(&header)?;
                return Ok(HEADER_BYTES);
            }
            let mut end = HEADER_BYTES;
            while let Some(record) = read_record(&mut backing, end, length)? {
                end = record.offset + record.bytes;
                found.records.push(record);
            }
            backing.cut(end)?;
            Ok(end)
        };
        let end = scan().map_err(|source| Error::Io { path: path.clone(), action: "read the journal", source })?;
        Ok((Journal { path, backing, end, unsynced: 0 }, found))
    }

    /// Appends a record whose payload is `parts`, one after the other.
    pub(super) fn append(&mut self, kind: u32, mask: u32, index: u64, parts: &[impl AsRef<[u8]>]) -> Result<Record> {
        let bytes = parts.iter().map(|part| part.as_ref().len() as u64).sum();
        let record = Record { kind, mask, index, offset: self.end + RECORD_HEADER_BYTES as u64, bytes };
        let mut header = record.header();
        let mut hash = Xxh3::new();
        hash.update(&header);
        parts.iter().for_each(|part| hash.update(part.as_ref()));
        header.extend(hash.digest().to_le_bytes());
        let mut write = || -> io::Result<()> {
            self.backing.seek(SeekFrom::Start(self.end))?;
            self.backing.write_all(&header)?;
            parts.iter().try_for_each(|part| self.backing.write_all(part.as_ref()))
        };
        write().map_err(|source| self.failed("write the journal", source))?;
        self.end = record.offset + bytes;
        self.unsynced += RECORD_HEADER_BYTES as u64 + bytes;
        if self.unsynced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(record)
    }

    /// Syncs all records to disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.unsynced = 0;
        self.backing.sync().map_err(|source| self.failed("bring the journal to disk", source))
    }

    /// Reads bytes of the journal from `offset` on.
    pub(super) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<()> {
        let read = self.backing.seek(SeekFrom::Start(offset)).and_then(|_| self.backing.read_exact(out));
        read.map_err(|source| self.failed("read the journal", source))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), action, source }
    }
}

impl Record {
    /// The record's header without its checksum.
    fn header(&self) -> Vec<u8> {
        let Record { kind, mask, index, bytes, .. } = self;
        [&kind.to_le_bytes()[..], &mask.to_le_bytes(), &index.to_le_bytes(), &bytes.to_le_bytes()].concat()
    }
}

/// The record at `at`; `None` where there is no whole one.
fn read_record(backing: &mut impl Read, at: u64, length: u64) -> io::Result<Option<Record>> {
    let offset = at + RECORD_HEADER_BYTES as u64;
    if offset > length {
        return Ok(None);
    }
    let mut header = [0; RECORD_HEADER_BYTES];
    backing.read_exact(&mut header)?;
    let (head, checksum) = header.split_at(24);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
    let bytes = number(&head[16..]);
    if bytes > length - offset {
        return Ok(None);
    }
    let mut hash = Xxh3::new();
    hash.update(head);
    let mut left = bytes;
    let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
    while left > 0 {
        let part = &mut piece[..PIECE_BYTES.min(left as usize)];
        backing.read_exact(part)?;
        hash.update(part);
        left -= part.len() as u64;
    }
    let record = Record {
        kind: number(&head[..4]) as u32,
        mask: number(&head[4..8]) as u32,
        index: number(&head[8..16]),
        offset,
        bytes,
    };
    Ok((hash.digest() == number(checksum)).then_some(record))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Memory that takes so many more bytes and then is full, in the middle of a write if it comes
    /// to that.
    #[derive(Debug)]
    struct Limited {
        bytes: Cursor<Vec<u8>>,
        left: usize,
    }

    impl Limited {
        fn over(bytes: &[u8], left: usize) -> Self {
            Limited { bytes: Cursor::new(bytes.to_vec()), left }
        }
    }

    impl Read for Limited {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.bytes.read(out)
        }
    }

    impl Seek for Limited {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.bytes.seek(to)
        }
    }

    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fitting = bytes.len().min(self.left);
            if fitting == 0 && !bytes.is_empty() {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.left -= fitting;
            self.bytes.write(&bytes[..fitting])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Backing for Limited {
        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            self.bytes.get_mut().resize(bytes as usize, 0);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const PAYLOADS: [&[&[u8]]; 4] = [&[b"first"], &[], &[b"second ", b"in parts"], &[b"third"]];

    fn open(backing: Limited, identity: &str) -> Result<(Journal<Limited>, JournalContent)> {
        Journal::over(backing, PathBuf::from("journal"), identity)
    }

    /// Appends what is missing of the payloads; how many records there were.
    fn fill(backing: Limited) -> (usize, Result<()>, Vec<u8>) {
        let (mut journal, found) = match open(backing, "same") {
            Ok(opened) => opened,
            Err(error) => return (0, Err(error), Vec::new()),
        };
        let there = found.records.len();
        for (k, record) in found.records.iter().enumerate() {
            let mut payload = vec![0; record.bytes as usize];
            journal.read(record.offset, &mut payload).unwrap();
            assert_eq!((record.kind, record.mask, record.index), (7, 2, k as u64));
            assert_eq!(payload, PAYLOADS[k].concat());
        }
        let mut missing = PAYLOADS.iter().enumerate().skip(there);
        let result = missing.try_for_each(|(k, parts)| journal.append(7, 2, k as u64, parts).map(drop));
        (there, result, journal.backing.bytes.into_inner())
    }

    #[test]
    fn a_spool_goes_on_after_its_last_whole_record_wherever_it_was_cut() {
        let (there, result, whole) = fill(Limited::over(&[], usize::MAX));
        assert_eq!((there, result.is_ok()), (0, true));
        let mut seen = 0;
        for length in 0..=whole.len() {
            let (there, result, again) = fill(Limited::over(&whole[..length], usize::MAX));
            assert!(result.is_ok() && again == whole, "cut to {length}");
            assert!(there == seen || there == seen + 1, "{length}: {there} after {seen}");
            seen = there;
        }
        assert_eq!(seen, PAYLOADS.len());
    }

    #[test]
    fn a_full_disk_leaves_what_a_later_run_continues() {
        let (.., whole) = fill(Limited::over(&[], usize::MAX));
        for capacity in 0..whole.len() {
            let (_, result, partial) = fill(Limited::over(&[], capacity));
            assert!(matches!(result, Err(Error::Io { .. })), "{capacity}");
            assert!(fill(Limited::over(&partial, usize::MAX)).2 == whole, "{capacity}");
        }
    }

    #[test]
    fn a_record_that_is_damaged_ends_the_spool() {
        let (.., whole) = fill(Limited::over(&[], usize::MAX));
        for byte in 32..whole.len() {
            let mut damaged = whole.clone();
            damaged[byte] ^= 0x10;
            let (there, _, again) = fill(Limited::over(&damaged, usize::MAX));
            assert!(there < PAYLOADS.len() && again == whole, "byte {byte}");
        }
    }

    #[test]
    fn a_spool_of_another_conversion_is_discarded() {
        let (.., whole) = fill(Limited::over(&[], usize::MAX));
        let (journal, found) = open(Limited::over(&whole, usize::MAX), "other").unwrap();
        assert!(found.discarded && found.records.is_empty() && journal.end == HEADER_BYTES);
        let (_, found) = open(Limited::over(&whole[..9], usize::MAX), "same").unwrap();
        assert!(!found.discarded && found.records.is_empty());
    }
}
