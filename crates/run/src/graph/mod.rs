//! Graphs: built once, kept in a file, looked at, and written for other programs.

mod build;
mod building;
mod cached;
mod export;
mod inspect;
mod options;
mod points;
mod reader;
mod request;
mod shares;
mod sizes;
mod source;
mod stored;
mod verify;

pub use build::build;
pub use export::{ExportFormat, ExportRequest, export};
pub use inspect::{draw, dump, inspect};
pub use megabatch_graph_cache::build::Symmetry;
pub use megabatch_graph_cache::{FloatWidth, IndexWidth, Widths};
pub use options::{BoxEdges, GraphKind, Options};
pub use reader::{FloatTable, FloatValues, GraphArrays, GraphInPlace, GraphReader};
pub use request::{BuildRequest, Destination};
pub use verify::verify;

use crate::text::plural;

/// A note where `k` neighbours are all other nodes.
fn note_on_k(k: usize, nodes: usize, what: &str) -> String {
    match k < nodes {
        true => String::new(),
        false => format!("note: --k {k} makes neighbours of all {}\n", plural(nodes, what)),
    }
}
