//! Graphs of a file in the formats of others.

use std::fs;
use std::path::{Path, PathBuf};

use megabatch_atomic_file as atomic_file;
use megabatch_graph_cache::import::Text;
use megabatch_graph_cache::{self as graph_cache, Builder as _, GraphFile, export as files};
use serde_json::json;

use super::stored::Stored;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::output;
use crate::text::{bytes, plural, shown};

/// Graphs to export.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// The file of graphs.
    pub file: PathBuf,
    /// Format of the files.
    pub format: ExportFormat,
    /// The file, `.safetensors` or `.sdf`; of TU and edge lists the folder, which is made where it
    /// is missing.
    pub out: PathBuf,
    /// Graphs to write; all if empty.
    pub keys: Vec<String>,
}

/// Formats that graphs are exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// A folder with a TU dataset of its name; without keys, node names and known times.
    Tu,
    /// A folder with one graph, or the parts of a split, as edges.csv, features.csv and labels.csv
    /// or targets.csv.
    EdgeList,
    /// Molecules in an SDF file, version V2000; nodes need their positions.
    Sdf,
    /// Tensors as in PyTorch Geometric, in a safetensors file; keeps everything.
    EdgeIndex,
}

impl ExportFormat {
    /// Its name: `edge-list`.
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::Tu => "tu",
            ExportFormat::EdgeList => "edge-list",
            ExportFormat::Sdf => "sdf",
            ExportFormat::EdgeIndex => "edge-index",
        }
    }
}

/// Writes graphs for other programs, in formats that [`build`](super::build) reads.
///
/// Graphs with content that a format cannot hold are refused, with a format that can. Graphs
/// imported from a format survive export to it.
///
/// # Errors
/// A usage error for a format that cannot hold the graphs, or an output that cannot be written.
pub fn export(request: &ExportRequest) -> Result<CommandReport> {
    let ExportRequest { file, format, out, keys } = request;
    match format {
        ExportFormat::Tu | ExportFormat::EdgeList => output::check_folder(out)?,
        ExportFormat::Sdf => output::require_ending(out, &["sdf"])?,
        ExportFormat::EdgeIndex => output::require_ending(out, &["safetensors"])?,
    }
    if matches!(format, ExportFormat::Sdf | ExportFormat::EdgeIndex) {
        output::check(out, &[file])?;
    }
    if let Some(key) = keys.iter().enumerate().find_map(|(at, key)| keys[..at].contains(key).then_some(key)) {
        return Err(Error::usage(format!("--key {key} is given twice; a graph is written once")));
    }
    let file = GraphFile::open(file)?;
    let stored = if keys.is_empty() { Stored::all(&file) } else { Stored::with_keys(&file, keys)? };
    let written = write(request, &stored)?;
    Ok(describe(request, &stored, &written))
}

/// A file that was written.
struct Written {
    path: PathBuf,
    bytes: usize,
}

fn write(request: &ExportRequest, stored: &Stored<'_>) -> Result<Vec<Written>> {
    let one = |bytes: &[u8]| -> Result<Vec<Written>> {
        atomic_file::write(&request.out, bytes)?;
        Ok(vec![Written { path: request.out.clone(), bytes: bytes.len() }])
    };
    match request.format {
        ExportFormat::Sdf => one(files::sdf(stored)?.bytes()),
        ExportFormat::EdgeIndex => one(&files::edge_index(stored, &(0..stored.len()).collect::<Vec<_>>())?),
        ExportFormat::Tu => write_folder(&request.out, &files::tu(stored, &dataset(&request.out))?),
        ExportFormat::EdgeList => write_folder(&request.out, &files::edge_list(stored)?),
    }
}

/// The name of a TU dataset in a folder.
fn dataset(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "graphs".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn write_folder(folder: &Path, texts: &[Text]) -> Result<Vec<Written>> {
    refuse_others(folder, texts)?;
    files::write(folder, texts)?;
    let written = |text: &Text| Written { path: folder.join(text.path()), bytes: text.bytes().len() };
    Ok(texts.iter().map(written).collect())
}

/// Refuses a folder that holds anything but earlier forms of `texts`: who reads the folder would
/// take it for a part of them.
fn refuse_others(folder: &Path, texts: &[Text]) -> Result<()> {
    let unreadable = |source| graph_cache::Error::Io { path: folder.to_owned(), action: "list the folder", source };
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if !texts.iter().any(|text| text.path() == Path::new(&name)) {
            return Err(Error::usage(format!(
                "{}: cannot write here: {} is in it, which would be read with what is written; name another folder",
                folder.display(),
                name.to_string_lossy()
            )));
        }
    }
    Ok(())
}

fn describe(request: &ExportRequest, stored: &Stored<'_>, written: &[Written]) -> CommandReport {
    let (nodes, edges) = stored.sizes();
    let total: usize = written.iter().map(|file| file.bytes).sum();
    let mut text = format!(
        "{}: {}, {}, {}, {}",
        request.out.display(),
        plural(stored.len(), "graph"),
        plural(nodes, "node"),
        plural(edges, "edge"),
        bytes(total)
    );
    if written.len() > 1 {
        written.iter().for_each(|file| text.push_str(&format!("\n  {}", file.path.display())));
    }
    let json = json!({
        "out": shown(&request.out),
        "format": request.format.name(),
        "graphs": stored.len(),
        "keys": stored.keys(),
        "nodes": nodes,
        "edges": edges,
        "bytes": total,
        "files": written.iter().map(|file| &file.path).collect::<Vec<_>>(),
    });
    CommandReport::new(text, &json)
}
