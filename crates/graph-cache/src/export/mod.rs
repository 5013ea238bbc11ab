//! Export of graphs in the formats of [`import`](crate::import): graphs that are imported, exported
//! and imported again are the same.
//!
//! A text format loses what it cannot express; [`edge_index`] keeps everything.

mod edge_index;
mod edge_list;
mod sdf;
mod tu;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub use edge_index::edge_index;
pub use edge_list::edge_list;
use megabatch_atomic_file::NewFile;
pub use sdf::sdf;
pub use tu::tu;

use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::import::Text;

/// Writes texts into a folder, which is made where it is missing. Each is written beside its place,
/// synced and renamed.
///
/// # Errors
/// [`Error::Io`].
pub fn write(folder: &Path, texts: &[Text]) -> Result<()> {
    let failed = |source| Error::Io { path: folder.to_owned(), action: "make the folder", source };
    fs::create_dir_all(folder).map_err(failed)?;
    for text in texts {
        let place = folder.join(text.path());
        let write = || -> io::Result<()> {
            let new = NewFile::create(&place)?;
            new.file().write_all(text.bytes())?;
            new.file().sync_all()?;
            new.rename().map(drop)
        };
        write().map_err(|source| Error::Io { path: place.clone(), action: "write the file", source })?;
    }
    Ok(())
}

/// All graphs in the order of their keys.
fn graphs(builder: &dyn Builder) -> Result<Vec<Graph>> {
    (0..builder.keys().len()).map(|index| builder.build(index)).collect()
}

/// The edges of a graph: the nodes that each comes from and goes to.
fn ends(graph: &Graph) -> impl Iterator<Item = (u32, u32)> {
    let row = |row: usize| {
        let edges = graph.row_ptr[row] as usize..graph.row_ptr[row + 1] as usize;
        graph.col[edges].iter().map(move |&from| (from, row as u32))
    };
    (0..graph.len()).flat_map(row)
}

/// The row of a matrix [rows, width].
fn row(values: &[f32], row: usize, width: usize) -> &[f32] {
    &values[row * width..(row + 1) * width]
}

/// The place of the 1 in a row of zeros else.
fn hot(row: &[f32]) -> Option<usize> {
    let place = row.iter().position(|&value| value == 1.0)?;
    row.iter().enumerate().all(|(other, &value)| other == place || value == 0.0).then_some(place)
}

fn refused(format: &'static str, what: impl Into<String>, remedy: &'static str) -> Error {
    Error::NotExportable { format, what: what.into(), remedy }
}

#[cfg(test)]
mod tests;
