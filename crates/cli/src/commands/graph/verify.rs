//! `megabatch graph verify`: whether a file of graphs is what was written.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_graph_cache::GraphFile;
use serde_json::json;

use super::counted;
use crate::answer::{Answer, shown};
use crate::byte_sizes::bytes;
use crate::failure::Failure;

/// Damaged graphs that are told by name.
const NAMED_MAX: usize = 10;

/// Check every byte of a file of graphs against its checksums, and every graph for its form
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch graph verify shares.mbg")]
pub(super) struct Args {
    /// The file of graphs
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let file = GraphFile::open(&args.file)?;
    let damaged = file.damaged();
    if let [(_, first), ..] = damaged.as_slice() {
        let keys: Vec<&str> = damaged.iter().take(NAMED_MAX).map(|(index, _)| file.key(*index)).collect();
        let more = if damaged.len() > keys.len() { ", …" } else { "" };
        return Err(Failure::data(format!(
            "{first}; of {} {} damaged: {}{more}",
            counted(file.len(), "graph"),
            damaged.len(),
            keys.join(", ")
        )));
    }
    let text = format!(
        "{}: {}, {}: all as they were written",
        args.file.display(),
        counted(file.len(), "graph"),
        bytes(file.bytes())
    );
    let json = json!({ "file": shown(&args.file), "graphs": file.len(), "bytes": file.bytes(), "damaged": 0 });
    Ok(Answer::new(text, &json))
}
