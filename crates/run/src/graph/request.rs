//! Graphs to build: a request, and the builder that its files lead to.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_graph_cache::{BuildOptions, Builder, Stale, Widths};
use serde_json::Value;

use super::options::{GraphKind, Options};
use crate::error::Result;
use crate::output;
use crate::text::ByteSize;

/// Graphs to build.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// Files or folders; see --kind.
    pub inputs: Vec<PathBuf>,
    /// Input and builder of the graphs.
    pub kind: GraphKind,
    /// File or cache folder of the graphs.
    pub destination: Destination,
    /// Options of the kind.
    pub options: Options,
    /// Replace neighbours by as many random ones, from this seed: a control.
    pub rewire: Option<u64>,
    /// Width of stored numbers.
    pub widths: Widths,
    /// Threads that build; as many as there are CPUs if `None`.
    pub threads: Option<NonZeroUsize>,
}

/// Place of graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file.
    File(PathBuf),
    /// A cache folder with files of any number of builds, named by content hash.
    Cache {
        /// The folder.
        folder: PathBuf,
        /// Bytes that its files may take together: those go whose use is longest ago.
        limit: Option<ByteSize>,
    },
}

impl BuildRequest {
    pub(super) fn build_options(&self) -> BuildOptions {
        BuildOptions { threads: self.threads, widths: self.widths, stale: Stale::Replace }
    }
}

impl Destination {
    pub(super) fn check(&self, inputs: &[PathBuf]) -> Result<()> {
        match self {
            Destination::File(out) => {
                output::require_ending(out, &["mbg"])?;
                output::check(out, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())
            }
            Destination::Cache { folder, .. } => output::check_folder(folder),
        }
    }
}

/// Source of graphs.
pub(super) struct Source<'a> {
    pub(super) builder: &'a dyn Builder,
    /// Contents found and excluded, in lines.
    pub(super) found: String,
    /// The same for programs.
    pub(super) facts: Value,
}
