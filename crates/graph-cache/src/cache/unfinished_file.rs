//! An unfinished file of graphs: like the finished one, but its header is zeros, and later entries
//! and blocks are missing.
//!
//! An entry is written after its block, with a checksum over both. If a process is killed or the
//! power fails at any moment, the graphs before the first incomplete entry or block are kept.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use megabatch_atomic_file::open_sibling;

use crate::error::{Error, Result};
use crate::file::{Collection, FileBytes, GraphBlock, IndexEntry, PAGE};

/// Storage of an unfinished file: a file, or a test's stand-in for one.
pub(super) trait Backing {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

impl Backing for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct UnfinishedFile<'c, M = File> {
    /// Final path, for messages.
    path: PathBuf,
    medium: M,
    collection: &'c Collection,
    entries: Vec<IndexEntry>,
}

impl<'c> UnfinishedFile<'c> {
    /// Opens what exists at `unfinished` of the file that will be at `path`.
    pub(super) fn open(unfinished: &Path, path: &Path, collection: &'c Collection) -> Result<Self> {
        let failed = |source| Error::Io { path: path.to_owned(), action: "write the new file beside it", source };
        let file = open_sibling(unfinished).map_err(failed)?;
        let entries = if file.metadata().map_err(failed)?.len() > 0 {
            let bytes = file.try_clone().and_then(FileBytes::open).map_err(failed)?;
            whole(&bytes, collection)
        } else {
            Vec::new()
        };
        UnfinishedFile::over(file, path.to_owned(), collection, entries)
    }
}

impl<'c, M: Backing> UnfinishedFile<'c, M> {
    /// Continues behind the blocks of `entries`, which are stored already.
    fn over(medium: M, path: PathBuf, collection: &'c Collection, entries: Vec<IndexEntry>) -> Result<Self> {
        let mut partial = UnfinishedFile { path, medium, collection, entries };
        let end = partial.end();
        let mut begun = vec![0; PAGE];
        collection.preamble.iter().for_each(|section| begun.extend(section));
        begun.extend(collection.index(&partial.entries));
        let prepared = partial.medium.set_len(end).and_then(|()| partial.medium.write_at(0, &begun));
        prepared.map_err(|source| partial.failed(source))?;
        Ok(partial)
    }

    /// Number of graphs.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds the block of the next graph.
    pub(super) fn append(&mut self, block: &GraphBlock) -> Result<()> {
        let entry = self.collection.entry(&self.entries, block);
        let place = self.collection.entry_range(self.entries.len()).start as u64;
        let written = self.medium.write_at(entry.offset, &block.bytes);
        let written = written.and_then(|()| self.medium.write_at(place, bytemuck::bytes_of(&entry)));
        written.map_err(|source| self.failed(source))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Completes and syncs the file.
    pub(super) fn finish(mut self) -> Result<M> {
        let header = self.collection.header(&self.entries);
        let written = self.medium.write_at(0, &header).and_then(|()| self.medium.sync());
        written.map_err(|source| self.failed(source))?;
        Ok(self.medium)
    }

    /// Its length in bytes.
    pub(super) fn end(&self) -> u64 {
        self.entries.last().map_or(self.collection.blocks_start() as u64, |last| last.offset + last.bytes)
    }

    fn failed(&self, source: io::Error) -> Error {
        let path = self.path.clone();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Error::Full { path, written_bytes: self.end(), source }
            }
            _ => Error::Io { path, action: "write the new file beside it", source },
        }
    }
}

/// The entries up to the first that is not whole.
fn whole(file: &[u8], collection: &Collection) -> Vec<IndexEntry> {
    let mut end = collection.blocks_start() as u64;
    let next = |index| {
        let entry = collection.whole_entry(file, index).filter(|entry| entry.offset == end)?;
        end += entry.bytes;
        Some(entry)
    };
    (0..collection.keys.len()).map_while(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{CollectionDescription, GraphFile};

    /// A medium whose `left`-th call and all after it fail, the first of them with half of its
    /// bytes written.
    #[derive(Debug, Default)]
    struct Filling {
        bytes: Vec<u8>,
        left: usize,
    }

    impl Filling {
        fn call(&mut self) -> io::Result<()> {
            self.left = self.left.checked_sub(1).ok_or(ErrorKind::StorageFull)?;
            Ok(())
        }
    }

    impl Backing for Filling {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let called = self.call();
            let bytes = if called.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[start..end].copy_from_slice(bytes);
            called
        }

        fn set_len(&mut self, bytes: u64) -> io::Result<()> {
            self.call()?;
            self.bytes.resize(bytes as usize, 0);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            self.call()
        }
    }

    fn collection() -> Collection {
        let keys = ["a", "b", "c", "d"].map(str::to_owned);
        Collection::new(CollectionDescription::default(), &keys).unwrap()
    }

    fn block(index: usize) -> GraphBlock {
        let graph = crate::Graph::from_edges(
            &crate::Schema::default(),
            (0..4).collect(),
            &[(index as u32, 0, 0.0), (0, 3, 0.0)][..index % 2 + 1],
        );
        let known_time = Some(index as i64);
        GraphBlock { known_time, ..crate::file::encode(&collection().shape, "", &graph.unwrap()).unwrap() }
    }

    fn write(medium: Filling, entries: Vec<IndexEntry>) -> (Result<()>, Vec<u8>) {
        let collection = collection();
        // The bytes outlive the failure as they do on a disk.
        let mut kept = medium;
        let written = (|| {
            let mut partial = UnfinishedFile::over(&mut kept, "graphs.mbg".into(), &collection, entries)?;
            (partial.len()..4).try_for_each(|index| partial.append(&block(index)))?;
            partial.finish().map(drop)
        })();
        (written, kept.bytes)
    }

    impl Backing for &mut Filling {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            (**self).write_at(offset, bytes)
        }

        fn set_len(&mut self, bytes: u64) -> io::Result<()> {
            (**self).set_len(bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            (**self).sync()
        }
    }

    #[test]
    fn a_disk_that_is_full_at_any_moment_is_said_and_writing_goes_on_from_there() {
        let (written, whole_file) = write(Filling { left: usize::MAX, ..Filling::default() }, Vec::new());
        written.unwrap();
        GraphFile::from_bytes("x", &whole_file).unwrap().verify().unwrap();
        let mut kept = Vec::new();
        for left in 0..12 {
            let (failed, bytes) = write(Filling { left, ..Filling::default() }, Vec::new());
            let error = failed.unwrap_err();
            assert!(matches!(&error, Error::Full { path, .. } if path == Path::new("graphs.mbg")), "{error}");
            assert!(error.to_string().contains("make room and start again"), "{error}");
            assert!(GraphFile::from_bytes("x", &bytes).and_then(|file| file.verify()).is_err() || left == 11);
            let entries = whole(&bytes, &collection());
            kept.push(entries.len());
            let (resumed, bytes) = write(Filling { bytes, left: usize::MAX }, entries);
            resumed.unwrap();
            assert!(bytes == whole_file, "{left}");
        }
        assert_eq!(kept, [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn what_is_kept_ends_with_the_first_that_is_not_whole() {
        let (_, bytes) = write(Filling { left: usize::MAX, ..Filling::default() }, Vec::new());
        let collection = collection();
        let entries = whole(&bytes, &collection);
        for (damaged, entry) in entries.iter().enumerate() {
            for at in [entry.offset as usize, collection.entry_range(damaged).start + 8] {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1;
                assert_eq!(whole(&bytes, &collection), entries[..damaged]);
            }
        }
        let other =
            Collection::new(CollectionDescription::default(), &["a", "b", "c", "e"].map(str::to_owned)).unwrap();
        assert_eq!(whole(&bytes, &other), [], "blocks of another collection are not kept");
    }
}
