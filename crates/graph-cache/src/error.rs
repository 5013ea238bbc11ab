use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::schema::TargetLevel;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of graphs and of the files that hold them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The arrays of a graph do not describe one.
    #[error("graph {graph:?}: {source}")]
    Csr {
        /// Key of the graph, empty where it has none yet.
        graph: String,
        /// The array, and the place in it.
        source: megabatch_segment::Error,
    },

    /// An option of a builder is out of its range.
    #[error("option {option}: expected {expected}, found {found}")]
    Option {
        /// Which.
        option: &'static str,
        /// Its value.
        found: String,
        /// Allowed values.
        expected: &'static str,
    },

    /// There is no regular file at the path.
    #[error("{}: expected a file, found {kind}", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// Kind of file system object found.
        kind: &'static str,
    },

    /// Inputs of a graph do not fit together.
    #[error("{object}: expected {expected}")]
    Data {
        /// The faulty object, and where it is.
        object: String,
        /// Expected in its place.
        expected: String,
    },

    /// A field of a text breaks the format.
    #[error("{}: line {line}, column {column}: expected {expected}, found `{found}`", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: u64,
        /// Column from 1: of fields in a delimited text, of characters in one of fixed columns.
        column: usize,
        /// Expected in a valid file.
        expected: String,
        /// The field, shortened.
        found: String,
    },

    /// A file contradicts itself, or another of the same graphs.
    #[error("{}: {found}; expected {expected}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Found in the file.
        found: String,
        /// Expected in a valid file, and fix.
        expected: String,
    },

    /// A format cannot express the graphs.
    #[error("graphs with {what} cannot be exported as {format}: {remedy}")]
    NotExportable {
        /// The format.
        format: &'static str,
        /// Property that the graphs have or lack.
        what: String,
        /// Fix.
        remedy: &'static str,
    },

    /// Molecules have no positions, which SDF needs.
    #[error(
        "graphs with no positions of nodes cannot be exported as SDF: build them of molecules with their positions"
    )]
    NoPositions,

    /// An array of a graph is not as long as its collection's schema says.
    #[error(
        "graph {graph:?}: {array} has {found} values, and {expected_rows} rows of {expected_columns} by the schema"
    )]
    Shape {
        /// Key of the graph.
        graph: String,
        /// Name of the array.
        array: &'static str,
        /// Its length.
        found: usize,
        /// Rows that it should have.
        expected_rows: usize,
        /// Columns that it should have.
        expected_columns: usize,
    },

    /// A graph has targets of another owner (nodes or graph) than its collection's schema says.
    #[error("graph {graph:?}: its targets are {found:?}, and the schema says {expected:?}")]
    TargetLevel {
        /// Key of the graph.
        graph: String,
        /// Owner of the targets in the file.
        found: TargetLevel,
        /// Owner of the targets by the schema.
        expected: TargetLevel,
    },

    /// A node of a graph has a name outside the schema's list.
    #[error(
        "graph {graph:?}: node {node} has the name {place}, and the schema has {names}; without names, nodes are 0, 1, …"
    )]
    Unnamed {
        /// Key of the graph.
        graph: String,
        /// The node.
        node: usize,
        /// Its place in the list of names.
        place: u32,
        /// Number of names.
        names: usize,
    },

    /// A weight, attribute or feature is NaN or infinite.
    #[error("graph {graph:?}: {array}[{position}] is {value}: expected a finite number; drop the graph, or fill it")]
    NotFinite {
        /// Key of the graph.
        graph: String,
        /// Name of the array.
        array: &'static str,
        /// Position in the array.
        position: usize,
        /// The float there.
        value: f32,
    },

    /// A finite float would become infinite in 16 bits.
    #[error("graph {graph:?}: {array}[{position}] is {value}, and f16 ends at 65504; store them as f32")]
    TooLargeForF16 {
        /// Key of the graph.
        graph: String,
        /// Name of the array.
        array: &'static str,
        /// Position in the array.
        position: usize,
        /// The float there.
        value: f32,
    },

    /// Two graphs of a collection have one key.
    #[error("graphs {first} and {second} have the same key {key:?}; each needs one of its own")]
    SameKey {
        /// The key.
        key: String,
        /// Index of a graph that has it.
        first: usize,
        /// Index of another.
        second: usize,
    },

    /// The system failed to read or write a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Action that failed.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },

    /// There is no room for a file.
    #[error(
        "{}: there is no room for more than {written_bytes} bytes of it ({source}); make room and start again, which goes on from there",
        path.display()
    )]
    Full {
        /// The file that was to be written.
        path: PathBuf,
        /// Bytes written so far.
        written_bytes: u64,
        /// Error of the system.
        source: io::Error,
    },

    /// A file is no file of graphs.
    #[error("{}: this is not a file of graphs, which begins with `megabatch-graphs`", path.display())]
    NotGraphs {
        /// The file.
        path: PathBuf,
    },

    /// A file is of another version.
    #[error("{}: a file of version {found}, where {known} is known; build it again", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is read and written.
        known: u32,
    },

    /// A file has changed since it was written, or does not keep to the format.
    #[error("{}: {object}: {reason}; build the file again, which keeps all graphs that are whole", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Object in the file: `header`, `index`, `graph "2021-04-21"`.
        object: String,
        /// Fault.
        reason: String,
    },

    /// A file holds other graphs than the requested ones.
    #[error("{}: these graphs were built from other inputs or options{}", path.display(), ChangeList(changes))]
    Stale {
        /// The file.
        path: PathBuf,
        /// Differences, at least one.
        changes: Vec<CollectionChange>,
    },

    /// There is no graph with an index.
    #[error("{}: there is no graph {index} of {graphs}", path.display())]
    NoGraph {
        /// The file.
        path: PathBuf,
        /// The index.
        index: usize,
        /// Number of graphs.
        graphs: usize,
    },

    /// There is no graph with a key.
    #[error("{}: there is no graph {key:?}{}", path.display(), KeysAround { before, after })]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The key before it in the order of their bytes; the last of the file if it is after all.
        before: Option<String>,
        /// The key after it; the first of the file if it is before all.
        after: Option<String>,
    },

    /// The indices of a file are of another width.
    #[error("{}: indices have {found} bits and {asked} are asked for; use the call for that width", path.display())]
    IndexWidth {
        /// The file.
        path: PathBuf,
        /// Bits of an index in the file.
        found: usize,
        /// Bits of the requested index.
        asked: usize,
    },

    /// The caller's `progress` ended the build.
    #[error("interrupted")]
    Interrupted,

    /// A graph was not built because another could not be built or written.
    #[error("building was stopped, because another graph failed")]
    Stopped,
}

/// Changed input of a collection of graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionChange {
    /// Name of the input: `data`, `builder`, `parameters`, `schema`, `keys` or `widths`.
    pub what: &'static str,
    /// Value in the file.
    pub old: String,
    /// Requested value.
    pub new: String,
}

struct ChangeList<'c>(&'c [CollectionChange]);

impl fmt::Display for ChangeList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|CollectionChange { what, old, new }| write!(f, "; {what}: was {old}, is {new}"))
    }
}

/// Keys on either side of one that is missing.
struct KeysAround<'k> {
    before: &'k Option<String>,
    after: &'k Option<String>,
}

impl fmt::Display for KeysAround<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.before, self.after) {
            (None, None) => write!(f, "; there are none"),
            (None, Some(first)) => write!(f, "; the first is {first:?}"),
            (Some(last), None) => write!(f, "; the last is {last:?}"),
            (Some(before), Some(after)) => write!(f, "; there are {before:?} and {after:?}"),
        }
    }
}

impl Error {
    /// The error, for the graph with key `key`.
    pub(crate) fn about_graph(self, key: &str) -> Self {
        match self {
            Error::Csr { source, .. } => Error::Csr { graph: key.to_owned(), source },
            other => other,
        }
    }
}

impl Error {
    /// Refuses a folder, a device or a pipe in the place of a file.
    pub(crate) fn require_file(path: &Path, found: &Metadata) -> Result<()> {
        let kind = match found {
            found if found.is_file() => return Ok(()),
            found if found.is_dir() => "a folder",
            _ => "a pipe or a device",
        };
        Err(Error::NotAFile { path: path.to_owned(), kind })
    }

    /// The bytes of the file at `path`.
    pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
        let io = |source| Error::Io { path: path.to_owned(), action: "read the file", source };
        if fs::metadata(path).map_err(io)?.is_dir() {
            return Err(Error::NotAFile { path: path.to_owned(), kind: "a folder" });
        }
        fs::read(path).map_err(io)
    }
}
