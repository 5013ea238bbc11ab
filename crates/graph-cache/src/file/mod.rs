//! Files of graphs, `.mbg`: written once, read or mapped into memory, and used where they lie.
//! docs/reference/formats.md has the layout.

#![allow(unsafe_code, reason = "lists were checked before")]

#[cfg(target_endian = "big")]
compile_error!("files of graphs are little-endian and used where they lie");

mod collection;
mod description;
mod encode;
mod entry;
mod fault;
mod header;
mod layout;
mod mapping;
mod private;
mod stored;
mod strings;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use megabatch_segment::Index;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

pub(crate) use collection::Collection;
pub(crate) use description::CollectionDescription;
pub(crate) use encode::{GraphBlock, encode};
pub(crate) use entry::{HeaderChecksums, IndexEntry};
pub(crate) use fault::FileFault;
pub(crate) use layout::{BlockLayout, PAGE};
pub use layout::{FloatWidth, IndexWidth, Widths};
pub(crate) use mapping::FileBytes;
pub use private::{FloatArray, PrivateGraph, PrivateGraphs};
pub use stored::{Floats, StoredGraph};

use crate::builder::Identity;
use crate::error::{Error, Result};
use crate::schema::Schema;
use header::{FileHeader, MAGIC, VERSION};
use layout::BlockShape;
use strings::StringList;

/// An open file of graphs. Clones share it.
///
/// A file of up to 128 MiB is read when it is opened. A larger one is mapped until
/// [`GraphFile::hold`]: opening it reads no graph, and the system may reclaim the memory. Graphs
/// are used where they lie in either. Header and index are checked when the file is opened; a
/// graph's block is checked once, with its checksum, at its first use.
#[derive(Clone, Debug)]
pub struct GraphFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    bytes: FileBytes,
    description: CollectionDescription,
    shape: BlockShape,
    checksums: HeaderChecksums,
    keys: StringList,
    /// Places of the keys in the order of their bytes.
    order: Range<usize>,
    index: Range<usize>,
    blocks: Range<usize>,
    /// True if a graph's block has been checked.
    checked: Vec<AtomicBool>,
}

impl GraphFile {
    /// Opens the file at `path`. Later changes to a file of up to 128 MiB have no effect: it is
    /// read now. A larger one may be replaced or removed, and must not be modified in place while
    /// it is open, which nothing here does. If another program cuts it short, the next use of a
    /// graph is an error; if that happens while a graph is in use, the system ends the process with
    /// SIGBUS. [`GraphFile::hold`] keeps it from that.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NotAFile`]; [`Error::NotGraphs`] and [`Error::Version`] for other
    /// files; [`Error::Damaged`] for one that has changed since it was written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), action: "open the file", source };
        // Opening a pipe would wait for somebody who writes to it.
        Error::require_file(path, &fs::metadata(path).map_err(io)?)?;
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        Error::require_file(path, &metadata)?;
        if metadata.len() == 0 {
            return Err(Error::NotGraphs { path: path.to_owned() });
        }
        // Marks the file as in use for those who remove files for space. Some file systems have no
        // locks.
        let _ = file.try_lock_shared();
        Self::over(path, FileBytes::open(file).map_err(io)?)
    }

    /// Reads a mapped file into memory, where nothing that other programs do to the file reaches
    /// its graphs. A file that is in memory stays there.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for a file that was cut short since it was opened.
    pub fn hold(&mut self) -> Result<()> {
        let inner = &*self.inner;
        inner.require_whole().map_err(|fault| fault.in_file(&inner.path))?;
        let failed = |source| Error::Io { path: inner.path.clone(), action: "read the file", source };
        if let Some(bytes) = inner.bytes.read_mapped().map_err(failed)? {
            *self = Self::over(&inner.path, bytes)?;
        }
        Ok(())
    }

    /// The file with these bytes, which are copied; `path` is for messages.
    ///
    /// # Errors
    /// As [`GraphFile::open`].
    pub fn from_bytes(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Self> {
        Self::over(path.as_ref(), FileBytes::owned(bytes))
    }

    fn over(path: &Path, bytes: FileBytes) -> Result<Self> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::NotGraphs { path: path.to_owned() });
        }
        let damaged = |fault: FileFault| fault.in_file(path);
        let Some(page) = bytes.get(..PAGE) else {
            return Err(damaged(FileFault::new("header", format!("it ends after {} of {PAGE} bytes", bytes.len()))));
        };
        let version = u32::from_le_bytes(page[16..20].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(Error::Version { path: path.to_owned(), found: version, known: VERSION });
        }
        let parts = ParsedSections::read(page, &bytes).map_err(damaged)?;
        let inner = parts.inner(path, bytes).map_err(damaged)?;
        Ok(GraphFile { inner: Arc::new(inner) })
    }

    /// Path of the file when it was opened.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Inputs, builder and parameters of the graphs.
    pub fn identity(&self) -> &Identity {
        &self.inner.description.identity
    }

    /// Schema of the graphs.
    pub fn schema(&self) -> &Schema {
        &self.inner.description.schema
    }

    /// Widths of the numbers.
    pub fn widths(&self) -> Widths {
        self.inner.description.widths
    }

    /// Number of graphs.
    pub fn len(&self) -> usize {
        self.inner.keys.len()
    }

    /// True if there are no graphs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the file in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.bytes.len()
    }

    /// XXH3-128 of the header, whose checksums cover the whole file.
    pub fn fingerprint(&self) -> u128 {
        xxh3_128(&self.inner.bytes[..PAGE])
    }

    /// The key of a graph.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn key(&self, index: usize) -> &str {
        self.inner.keys.get(&self.inner.bytes, index)
    }

    /// The graph with a key: its index.
    pub fn find(&self, key: &str) -> Option<usize> {
        self.search(key).ok()
    }

    /// The graph with a key.
    ///
    /// # Errors
    /// [`Error::NoKey`], which names the keys around it; [`Error::Damaged`] for a mapped file that
    /// was cut short since it was opened.
    pub fn index_of(&self, key: &str) -> Result<usize> {
        self.inner.require_whole().map_err(|fault| fault.in_file(&self.inner.path))?;
        let order: &[u64] = bytemuck::cast_slice(&self.inner.bytes[self.inner.order.clone()]);
        let ordered = |place: usize| Some(self.key(order[place] as usize).to_owned());
        self.search(key).map_err(|place| {
            // At the ends the first and the last of the file: of 1 to 10 the last by bytes is 9.
            let (before, after) = match place {
                _ if order.is_empty() => (None, None),
                0 => (None, Some(self.key(0).to_owned())),
                place if place == order.len() => (Some(self.key(place - 1).to_owned()), None),
                place => (ordered(place - 1), ordered(place)),
            };
            Error::NoKey { path: self.inner.path.clone(), key: key.to_owned(), before, after }
        })
    }

    /// The graph with a key, or the place in the order of keys where it would be.
    fn search(&self, key: &str) -> Result<usize, usize> {
        let order: &[u64] = bytemuck::cast_slice(&self.inner.bytes[self.inner.order.clone()]);
        order.binary_search_by(|&index| self.key(index as usize).cmp(key)).map(|place| order[place] as usize)
    }

    /// N and E of a graph, from the index.
    ///
    /// # Panics
    /// If there are not so many graphs.
    pub fn size(&self, index: usize) -> (usize, usize) {
        let entry = &self.inner.entries()[index];
        (entry.nodes as usize, entry.edges as usize)
    }

    /// Time from which a graph may be used, in ns since 1970 UTC, from the index.
    ///
    /// # Panics
    /// If there are not so many graphs.
    pub fn known_time(&self, index: usize) -> Option<i64> {
        self.inner.entries()[index].known_time()
    }

    /// A graph of a file whose indices are u32.
    ///
    /// # Errors
    /// [`Error::NoGraph`]; [`Error::IndexWidth`]; [`Error::Damaged`] at the first use of its block.
    pub fn graph(&self, index: usize) -> Result<StoredGraph<'_>> {
        self.stored(index)
    }

    /// A graph of a file whose indices are u64.
    ///
    /// # Errors
    /// As [`GraphFile::graph`].
    pub fn wide_graph(&self, index: usize) -> Result<StoredGraph<'_, u64>> {
        self.stored(index)
    }

    /// Checks all blocks, on all threads, including those in use.
    ///
    /// # Errors
    /// [`Error::Damaged`] for the first that is not as it was written.
    pub fn verify(&self) -> Result<()> {
        let first = (0..self.len()).into_par_iter().find_map_first(|index| self.inner.check(index).err());
        first.map_or(Ok(()), |fault| Err(fault.in_file(self.path())))
    }

    /// The graphs with damaged blocks, in order, each with its fault; checks all blocks.
    pub fn damaged(&self) -> Vec<(usize, Error)> {
        let damaged = |index| self.inner.check(index).err().map(|fault: FileFault| (index, fault.in_file(self.path())));
        (0..self.len()).into_par_iter().filter_map(damaged).collect()
    }

    pub(crate) fn stored<I: Index>(&self, index: usize) -> Result<StoredGraph<'_, I>> {
        self.ready::<I>(&[index])?;
        Ok(self.stored_after_check(index))
    }

    /// A graph that [`GraphFile::ready`] has checked.
    ///
    /// # Panics
    /// If it has not.
    pub(crate) fn stored_after_check<I: Index>(&self, index: usize) -> StoredGraph<'_, I> {
        assert!(self.inner.checked[index].load(Relaxed) && self.has_width::<I>(), "the graph was checked");
        let (block, layout) = self.checked_block(index);
        let known_time = self.inner.entries()[index].known_time();
        // SAFETY: `ready` has looked through the bytes under this shape and layout, and indices are
        // of type `I`, as was asserted.
        unsafe { StoredGraph::new_unchecked(self.inner.shape, layout, block, known_time) }
    }

    /// A graph's checked block, and the layout of its arrays.
    fn checked_block(&self, index: usize) -> (&[u8], BlockLayout) {
        let entry = &self.inner.entries()[index];
        let layout =
            BlockLayout::new(&self.inner.shape, entry.nodes, entry.edges).expect("opening had no other answer");
        (self.inner.block(index), layout)
    }

    /// Checks the blocks of graphs that have not been checked, that the file is whole, and that its
    /// indices have the width of `I`.
    pub(crate) fn ready<I: Index>(&self, graphs: &[usize]) -> Result<()> {
        let inner = &*self.inner;
        if !self.has_width::<I>() {
            let (found, asked) = (8 * inner.shape.widths.indices.bytes(), 8 * size_of::<I>());
            return Err(Error::IndexWidth { path: inner.path.clone(), found, asked });
        }
        self.check_once(graphs)
    }

    /// Checks the blocks of graphs that have not been checked, and that the file is whole.
    fn check_once(&self, graphs: &[usize]) -> Result<()> {
        let inner = &*self.inner;
        if let Some(&index) = graphs.iter().find(|&&index| index >= self.len()) {
            return Err(Error::NoGraph { path: inner.path.clone(), index, graphs: self.len() });
        }
        inner.require_whole().map_err(|fault| fault.in_file(&inner.path))?;
        let unchecked = graphs.iter().filter(|&&index| !inner.checked[index].load(Relaxed));
        let mut checked = unchecked.map(|&index| inner.check(index));
        checked.try_for_each(|checked| checked.map_err(|fault| fault.in_file(&inner.path)))
    }

    fn has_width<I: Index>(&self) -> bool {
        self.inner.shape.widths.indices.bytes() == size_of::<I>()
    }

    /// True if this is a file of the collection; blocks are not compared.
    pub(crate) fn is_of(&self, collection: &Collection) -> bool {
        let preamble = &self.inner.bytes[PAGE..self.inner.index.start];
        preamble.len() == collection.index_start() - PAGE
            && preamble.starts_with(&collection.preamble[0])
            && preamble.ends_with(&collection.preamble[1])
    }

    pub(crate) fn description(&self) -> &CollectionDescription {
        &self.inner.description
    }
}

impl Inner {
    fn entries(&self) -> &[IndexEntry] {
        &bytemuck::cast_slice(&self.bytes[self.index.clone()])[..self.checked.len()]
    }

    fn block(&self, index: usize) -> &[u8] {
        self.entries()[index].block(&self.bytes)
    }

    /// Refuses a file that another program cut short since it was opened.
    fn require_whole(&self) -> Result<(), FileFault> {
        self.bytes.cut_short().map_or(Ok(()), |reason| Err(FileFault::new("file", reason)))
    }

    /// Checks a graph's block.
    fn check(&self, index: usize) -> Result<(), FileFault> {
        self.require_whole()?;
        let (entry, block) = (&self.entries()[index], self.block(index));
        let object = || format!("graph {:?}", self.keys.get(&self.bytes, index));
        let found = entry.checksum_of(self.checksums, index, block);
        if found != entry.checksum {
            return Err(FileFault::checksum(object(), found, entry.checksum));
        }
        let layout = BlockLayout::new(&self.shape, entry.nodes, entry.edges).expect("opening had no other answer");
        stored::check_block(&self.shape, &layout, block).map_err(|reason| FileFault::new(object(), reason))?;
        self.checked[index].store(true, Relaxed);
        Ok(())
    }
}

/// Parsed sections of a file.
struct ParsedSections {
    description: CollectionDescription,
    checksums: HeaderChecksums,
    graphs: usize,
    keys: StringList,
    order: Range<usize>,
    index: Range<usize>,
    blocks: Range<usize>,
}

impl ParsedSections {
    /// Reads and checks the file without its blocks.
    fn read(page: &[u8], bytes: &FileBytes) -> Result<Self, FileFault> {
        let header = FileHeader::decode(page)?;
        let ranges = header.ranges(bytes.len())?;
        header.check_sections(bytes, &ranges)?;
        let [description, keys, index, blocks] = ranges;
        let description = CollectionDescription::decode(bytes, description)?;
        let mut reading = fault::SectionReader::new(bytes, "keys", keys);
        let keys = StringList::read(&mut reading)?;
        if keys.len() as u64 != header.graphs {
            return Err(reading.fault(format!("there are {} of them for {} graphs", keys.len(), header.graphs)));
        }
        let order = reading.array(header.graphs, size_of::<u64>())?;
        check_order(bytes, &keys, order.clone())?;
        let checksums = HeaderChecksums { description: header.sections[0].checksum, keys: header.sections[1].checksum };
        Ok(ParsedSections { description, checksums, graphs: keys.len(), keys, order, index, blocks })
    }

    /// The open file, after its index has been checked.
    fn inner(self, path: &Path, bytes: FileBytes) -> Result<Inner, FileFault> {
        let ParsedSections { description, checksums, graphs, keys, order, index, blocks } = self;
        let shape = BlockShape::new(&description.schema, description.widths);
        let checked = std::iter::repeat_with(AtomicBool::default).take(graphs).collect();
        let path = path.to_owned();
        let inner = Inner { path, bytes, description, shape, checksums, keys, order, index, blocks, checked };
        let mut start = inner.blocks.start;
        for entry in inner.entries() {
            start = entry.place(&shape, start as u64, inner.bytes.len() as u64)?.0.end;
        }
        if start != inner.bytes.len() {
            return Err(FileFault::new("index", format!("the blocks end at {start} of {} bytes", inner.bytes.len())));
        }
        Ok(inner)
    }
}

/// Checks that each key occurs once, by the order of their bytes.
fn check_order(bytes: &[u8], keys: &StringList, order: Range<usize>) -> Result<(), FileFault> {
    let order: &[u64] = bytemuck::cast_slice(&bytes[order]);
    if let Some(place) = order.iter().position(|&index| index >= keys.len() as u64) {
        return Err(FileFault::new(
            "keys",
            format!("place {place} of their order is {} of {}", order[place], keys.len()),
        ));
    }
    let key = |index: &u64| keys.get(bytes, *index as usize);
    // Strictly increasing places, as many as keys, are all keys.
    if !order.is_sorted_by(|one, next| key(one) < key(next)) {
        return Err(FileFault::new("keys", "their order is not that of their bytes"));
    }
    Ok(())
}

/// True if `error` says that there is no file.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}
