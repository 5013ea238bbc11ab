//! Records of a fixed number of words, in memory up to a number and in a temporary file beyond.
//!
//! The last records are always in memory, so that what is added and taken back at the end costs no
//! access to the file; of the others, a few pages are.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::spool::{failed, read_at, write_at};

const PAGE_RECORDS: usize = 1 << 8;
/// Pages that stay in memory at the end, and that are written at once.
const TAIL_PAGES: usize = 16;
/// Pages that are held of those in the file.
const HELD_PAGES: usize = 16;

/// A temporary file without a name, to which any number of lists add bytes.
#[derive(Clone, Debug)]
pub(crate) struct SpillFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    file: File,
    end: AtomicU64,
}

impl SpillFile {
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(failed(folder, "create"))?;
        Ok(SpillFile(Arc::new(Shared { folder: folder.to_owned(), file, end: AtomicU64::new(0) })))
    }

    /// Writes bytes at the end, and returns their place.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64> {
        let offset = self.0.end.fetch_add(bytes.len() as u64, Relaxed);
        self.write(offset, bytes)?;
        Ok(offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_at(&self.0.file, bytes, offset).map_err(failed(&self.0.folder, "write"))
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        read_at(&self.0.file, bytes, offset)
    }

    /// Number of bytes in the file.
    pub(crate) fn end(&self) -> u64 {
        self.0.end.load(Relaxed)
    }

    /// Drops the bytes from `end` on, while nobody else adds some.
    pub(crate) fn truncate(&self, end: u64) -> Result<()> {
        self.0.end.store(end, Relaxed);
        self.0.file.set_len(end).map_err(failed(&self.0.folder, "truncate"))
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> &Path {
        &self.0.folder
    }
}

/// Records in memory, or in a temporary file.
///
/// A record that cannot be read from the file reads as zeros, and [`Spilled::check`] gives the
/// error: who goes through records checks once, at the end.
#[derive(Debug)]
pub(crate) struct Spilled {
    /// Words of a record.
    words: usize,
    file: Option<SpillFile>,
    /// Place of each page in the file.
    offsets: Vec<u64>,
    /// The records after those pages.
    tail: Vec<u64>,
    pages: RefCell<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// The last used first.
    held: Vec<Page>,
    failure: Option<io::Error>,
}

#[derive(Debug)]
struct Page {
    number: usize,
    words: Vec<u64>,
}

impl Spilled {
    /// No records; all of them stay in memory where there is no file.
    pub(crate) fn new(words: usize, file: Option<SpillFile>) -> Self {
        Spilled { words, file, offsets: Vec::new(), tail: Vec::new(), pages: RefCell::default() }
    }

    /// No records, of the same size and for the same file.
    pub(crate) fn empty_like(&self) -> Self {
        self.empty_with_words(self.words)
    }

    /// No records, of another size and for the same file.
    pub(crate) fn empty_with_words(&self, words: usize) -> Self {
        Spilled::new(words, self.file.clone())
    }

    fn written(&self) -> usize {
        self.offsets.len() * PAGE_RECORDS
    }

    pub(crate) fn len(&self) -> usize {
        self.written() + self.tail.len() / self.words
    }

    pub(crate) fn push(&mut self, record: &[u64]) -> Result<()> {
        debug_assert_eq!(record.len(), self.words, "a record has its words");
        self.tail.extend_from_slice(record);
        if self.tail.len() >= 2 * TAIL_PAGES * PAGE_RECORDS * self.words { self.spill(TAIL_PAGES) } else { Ok(()) }
    }

    /// Moves all whole pages into the file: a list that is complete gives its memory back.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.spill(self.tail.len() / (PAGE_RECORDS * self.words))?;
        if self.file.is_some() {
            self.tail.shrink_to_fit();
        }
        Ok(())
    }

    fn spill(&mut self, pages: usize) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let page = PAGE_RECORDS * self.words;
        let first = file.append(bytemuck::cast_slice(&self.tail[..pages * page]))?;
        self.offsets.extend((0..pages).map(|k| first + (8 * k * page) as u64));
        self.tail.drain(..pages * page);
        Ok(())
    }

    /// Hands record `place` to `take`.
    ///
    /// # Panics
    /// When there is no such record.
    #[inline]
    pub(crate) fn with<T>(&self, place: usize, take: impl FnOnce(&[u64]) -> T) -> T {
        if let Some(place) = place.checked_sub(self.written()) {
            return take(&self.tail[place * self.words..(place + 1) * self.words]);
        }
        let mut pages = self.pages.borrow_mut();
        let (number, within) = (place / PAGE_RECORDS, place % PAGE_RECORDS);
        if pages.held.first().is_none_or(|page| page.number != number) {
            self.bring(&mut pages, number);
        }
        take(&pages.held[0].words[within * self.words..(within + 1) * self.words])
    }

    /// Puts a page in front of the others, from the file if it is not held.
    #[cold]
    fn bring(&self, pages: &mut Pages, number: usize) {
        if let Some(found) = pages.held.iter().position(|page| page.number == number) {
            return pages.held[..=found].rotate_right(1);
        }
        let freed = if pages.held.len() == HELD_PAGES { pages.held.pop() } else { None };
        let mut words = freed.map_or_else(|| vec![0; PAGE_RECORDS * self.words], |page| page.words);
        let file = self.file.as_ref().expect("pages lie in a file");
        if let Err(error) = file.read(self.offsets[number], bytemuck::cast_slice_mut(&mut words)) {
            words.fill(0);
            pages.failure.get_or_insert(error);
        }
        pages.held.insert(0, Page { number, words });
    }

    /// Replaces record `place`.
    ///
    /// # Panics
    /// When there is no such record.
    pub(crate) fn set(&mut self, place: usize, record: &[u64]) -> Result<()> {
        if let Some(place) = place.checked_sub(self.written()) {
            self.tail[place * self.words..(place + 1) * self.words].copy_from_slice(record);
            return Ok(());
        }
        let (number, within) = (place / PAGE_RECORDS, place % PAGE_RECORDS);
        let file = self.file.as_ref().expect("pages lie in a file");
        let offset = self.offsets[number] + (8 * within * self.words) as u64;
        file.write(offset, bytemuck::cast_slice(record))?;
        if let Some(page) = self.pages.get_mut().held.iter_mut().find(|page| page.number == number) {
            page.words[within * self.words..(within + 1) * self.words].copy_from_slice(record);
        }
        Ok(())
    }

    /// Drops the records from `len` on, at most as many as stay in memory.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.tail.truncate((len - self.written()) * self.words);
    }

    /// The first record that could not be read, if there was one.
    pub(crate) fn check(&self) -> Result<()> {
        match (self.pages.borrow_mut().failure.take(), &self.file) {
            (Some(error), Some(file)) => Err(failed(file.folder(), "read")(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_in_a_file_are_those_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (mut memory, mut file) =
            (Spilled::new(3, None), Spilled::new(3, Some(SpillFile::create(folder.path()).unwrap())));
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for k in 0..160 * PAGE_RECORDS as u64 {
            let record = [k, k * k, !k];
            for spilled in [&mut memory, &mut file] {
                spilled.push(&record).unwrap();
            }
            let place = random(memory.len());
            match random(64) {
                0 => [&mut memory, &mut file].map(|spilled| spilled.set(place, &[7, 8, k]).unwrap()).len(),
                1 => [&mut memory, &mut file].map(|spilled| spilled.truncate(spilled.len() - 1)).len(),
                _ => 0,
            };
            if random(8) == 0 && memory.len() > 0 {
                let place = random(memory.len());
                let both = [&memory, &file].map(|spilled| spilled.with(place, <[u64]>::to_vec));
                assert_eq!(both[0], both[1], "{place} of {}", memory.len());
            }
        }
        assert!(file.written() > 2 * TAIL_PAGES * PAGE_RECORDS && memory.written() == 0 && memory.len() == file.len());
        for place in 0..memory.len() {
            assert_eq!(memory.with(place, <[u64]>::to_vec), file.with(place, <[u64]>::to_vec));
        }
        file.seal().unwrap();
        assert_eq!(file.with(file.len() - 1, <[u64]>::to_vec), memory.with(file.len() - 1, <[u64]>::to_vec));
        file.check().unwrap();
        file.file.as_ref().unwrap().0.file.set_len(8).unwrap();
        file.pages.get_mut().held.clear();
        assert_eq!(file.with(5, |record| record[0]), 0);
        assert!(file.check().is_err() && file.check().is_ok());
    }
}
