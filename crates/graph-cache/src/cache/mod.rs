//! Files of graphs that are built once and never read when they are stale.

mod blocks;
mod directory;
mod lock;
mod unfinished_file;
mod window;

use std::fs::{self, File};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;

pub use directory::{Collected, Fetched, GraphCache};
use megabatch_atomic_file::{beside, check_replaceable, resolve_target, sync_folder};

use crate::builder::Builder;
use crate::error::{CollectionChange, Error, Result};
use crate::file::{Collection, FileBytes, GraphFile, IndexEntry, Widths, is_absent};
use blocks::ReusableBlocks;
use lock::Lock;
use unfinished_file::UnfinishedFile;

/// Options of building a file of graphs; its bytes depend on `widths` alone.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Threads that build graphs; as many as there are CPUs where none are given.
    pub threads: Option<NonZero<usize>>,
    /// Widths of the stored numbers.
    pub widths: Widths,
    /// Treatment of a file that holds other graphs.
    pub stale: Stale,
}

/// Treatment of a file that holds other graphs than the requested ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stale {
    /// It stays, and the call fails with the changes.
    #[default]
    Refuse,
    /// The new one replaces it.
    Replace,
}

/// Progress of building a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildProgress {
    /// Another process builds the file, and this one waits for it.
    Waiting,
    /// The build begins. Intact graphs of earlier files are reused.
    Begun {
        /// Number of graphs in what an earlier process left unfinished.
        resumed: usize,
        /// Number of other graphs that are whole in the file that is replaced, such as a damaged
        /// one.
        intact: usize,
    },
    /// Graphs in the new file so far, those reused from earlier files included.
    Written {
        /// Graphs in the file.
        graphs: usize,
        /// Graphs of the collection.
        total: usize,
        /// Length of the file so far, in bytes.
        bytes: u64,
    },
}

/// Hears how far a build is, and may end it.
pub type Watch<'a> = &'a mut dyn FnMut(BuildProgress) -> ControlFlow<()>;

/// Lets a build go to its end.
pub fn unwatched(_progress: BuildProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn go_on(answer: ControlFlow<()>) -> Result<()> {
    if answer.is_break() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The file of the graphs of `builder` at `path`, built if there is none.
///
/// Every block of an existing file is verified. Of several processes that find none, one builds and
/// the others wait for it. A killed process leaves its work beside `path`, as `.NAME.partial`, and
/// the next one continues it. A symbolic link at `path` is written through. Of a damaged file,
/// intact graphs are kept and the others built again. The file is the same bytes in every case,
/// whatever the number of threads, and appears at once, whole and on disk. `progress` is called on
/// this thread, and may end the build, which a later call continues.
///
/// ```
/// use megabatch_graph_cache::{
///     BuildOptions, Builder, Graph, Identity, Result, Schema, build_cached, unwatched,
/// };
///
/// struct Rings(Schema, Vec<String>);
///
/// impl Builder for Rings {
///     fn identity(&self) -> Identity {
///         let data = Identity::hash([]);
///         Identity { data, builder: "rings/1".into(), parameters: "{}".into() }
///     }
///     fn schema(&self) -> &Schema { &self.0 }
///     fn keys(&self) -> &[String] { &self.1 }
///     fn build(&self, index: usize) -> Result<Graph> {
///         let nodes = index as u32 + 1;
///         let edges: Vec<_> = (0..nodes).map(|node| (node, (node + 1) % nodes, 1.0)).collect();
///         Graph::from_edges(&self.0, (0..nodes).collect(), &edges)
///     }
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("rings.mbg");
/// let rings = Rings(Schema::default(), (1..=9).map(|nodes| format!("ring of {nodes}")).collect());
/// let file = build_cached(&path, &rings, &BuildOptions::default(), &mut unwatched)?;
/// let graph = file.graph(file.find("ring of 4").unwrap())?;
/// assert_eq!(graph.csr().columns_of(0), [3]);
/// # Ok::<(), megabatch_graph_cache::Error>(())
/// ```
///
/// # Errors
/// As [`Builder::build`]; [`Error::Interrupted`]; [`Error::Stale`], [`Error::NotGraphs`] and
/// [`Error::Version`] for a file that is left alone; [`Error::Full`] and [`Error::Io`], which leave
/// an earlier file as it was;
/// [`Error::Shape`], [`Error::Unnamed`], [`Error::SameKey`], [`Error::Csr`], [`Error::NotFinite`]
/// and [`Error::TooLargeForF16`] for graphs that cannot be stored.
pub fn build_cached(
    path: impl AsRef<Path>,
    builder: &dyn Builder,
    options: &BuildOptions,
    progress: Watch<'_>,
) -> Result<GraphFile> {
    let path = path.as_ref();
    let failed = |source| Error::Io { path: path.to_owned(), action: "write here", source };
    let path = &resolve_target(path).map_err(failed)?;
    let collection = Collection::for_builder(builder, options.widths)?;
    loop {
        if let Some(file) = usable(path, &collection, options.stale)? {
            return Ok(file);
        }
        let Some(lock) = Lock::take(path, progress)? else { continue };
        if let Some(file) = usable(path, &collection, options.stale)? {
            return Ok(file);
        }
        // Nobody who removes files for space takes it before it is open.
        let _used = write(path, &collection, builder, options, progress)?;
        drop(lock);
        return GraphFile::open(path);
    }
}

impl GraphFile {
    /// Checks that the file holds the graphs that `builder` would build now.
    ///
    /// # Errors
    /// [`Error::Stale`], with the changes of data, builder and parameters.
    pub fn check_fresh(&self, builder: &dyn Builder) -> Result<()> {
        let collection = Collection::for_builder(builder, self.widths())?;
        if self.is_of(&collection) { Ok(()) } else { Err(stale(self, &collection)) }
    }
}

/// The file at `path` if it holds the whole collection; `None` if it must be built.
fn usable(path: &Path, collection: &Collection, when_stale: Stale) -> Result<Option<GraphFile>> {
    let file = match GraphFile::open(path) {
        Ok(file) => file,
        Err(Error::Damaged { .. }) => return Ok(None),
        Err(Error::Version { .. }) if when_stale == Stale::Replace => return Ok(None),
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.is_of(collection) {
        return if when_stale == Stale::Replace { Ok(None) } else { Err(stale(&file, collection)) };
    }
    Ok(file.verify().is_ok().then_some(file))
}

/// Error about a file of another collection.
fn stale(file: &GraphFile, collection: &Collection) -> Error {
    let (old, new) = (file.description(), &collection.description);
    let hash = |data: u128| format!("XXH3-128 {data:032x}");
    let keys = |keys: usize| format!("{keys} keys");
    let (old_schema, new_schema) = old.schema.apart(&new.schema);
    let pairs = [
        ("data", hash(old.identity.data), hash(new.identity.data)),
        ("builder", old.identity.builder.clone(), new.identity.builder.clone()),
        ("parameters", old.identity.parameters.clone(), new.identity.parameters.clone()),
        ("widths", format!("{:?}", old.widths), format!("{:?}", new.widths)),
        ("schema", old_schema, new_schema),
    ];
    let mut changes: Vec<CollectionChange> = pairs
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(what, old, new)| CollectionChange { what, old, new })
        .collect();
    if changes.is_empty() {
        changes.push(CollectionChange {
            what: "keys",
            old: keys(file.len()),
            new: format!("{}, others", keys(collection.keys.len())),
        });
    }
    Error::Stale { path: file.path().to_owned(), changes }
}

/// Builds the file, holding the lock. It counts as used as long as what is returned is open.
fn write(
    path: &Path,
    collection: &Collection,
    builder: &dyn Builder,
    options: &BuildOptions,
    progress: Watch<'_>,
) -> Result<File> {
    let failed = |action| move |source| Error::Io { path: path.to_owned(), action, source };
    let earlier = fs::metadata(path).ok();
    check_replaceable(path).map_err(failed("replace the file"))?;
    let kept =
        earlier.filter(|earlier| earlier.len() > 0).map(|_| File::open(path).and_then(FileBytes::open)).transpose();
    let kept = ReusableBlocks { earlier: kept.map_err(failed("open the file"))?, collection };
    let unfinished = beside(path, "partial");
    let mut partial = UnfinishedFile::open(&unfinished, path, collection)?;
    let total = collection.keys.len();
    let written =
        |partial: &UnfinishedFile<'_>| BuildProgress::Written { graphs: partial.len(), total, bytes: partial.end() };
    go_on(progress(BuildProgress::Begun { resumed: partial.len(), intact: kept.intact(partial.len()..total) }))?;
    go_on(progress(written(&partial)))?;
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    blocks::build(&kept, builder, partial.len(), threads, |block| {
        partial.append(&block)?;
        go_on(progress(written(&partial)))
    })?;
    partial.finish()?;
    let used = File::open(&unfinished).map_err(failed("open the new file"))?;
    // Some file systems have no locks.
    let _ = used.try_lock_shared();
    fs::rename(&unfinished, path).map_err(failed("rename the new file to it"))?;
    sync_folder(path).map_err(failed("bring its folder to disk"))?;
    Ok(used)
}

/// The graph's block as an earlier file has it, with its entry's numbers.
fn block_of(file: &[u8], entry: &IndexEntry) -> crate::file::GraphBlock {
    let bytes = entry.block(file).to_vec();
    crate::file::GraphBlock { nodes: entry.nodes, edges: entry.edges, known_time: entry.known_time(), bytes }
}
