//! Check of a file of graphs against what was written.

use std::path::Path;

use megabatch_graph_cache::GraphFile;
use serde_json::json;

use crate::adapters::graphs::require_nodes;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::text::{bytes, plural, shown};

/// Damaged graphs that are told by name.
const NAMED_MAX: usize = 10;

/// Checks every byte of the file of graphs `path` against its checksums, and every graph for its
/// form; those that have features of their own have nodes.
///
/// # Errors
/// A data error that names the damaged graphs, or one without nodes.
pub fn verify(path: &Path) -> Result<CommandReport> {
    let file = GraphFile::open(path)?;
    let damaged = file.damaged();
    if let [(_, first), ..] = damaged.as_slice() {
        let keys: Vec<&str> = damaged.iter().take(NAMED_MAX).map(|(index, _)| file.key(*index)).collect();
        let more = if damaged.len() > keys.len() { ", …" } else { "" };
        return Err(Error::data(format!(
            "{first}; of {} {} damaged: {}{more}",
            plural(file.len(), "graph"),
            damaged.len(),
            keys.join(", ")
        )));
    }
    // Graphs between instruments may be of days on which none was traded.
    if !file.schema().node_features.is_empty() {
        require_nodes(&file)?;
    }
    let text = format!(
        "{}: {}, {}: all as they were written",
        path.display(),
        plural(file.len(), "graph"),
        bytes(file.bytes())
    );
    let json = json!({ "file": shown(path), "graphs": file.len(), "bytes": file.bytes(), "damaged": 0 });
    Ok(CommandReport::new(text, &json))
}
