//! `megabatch graph build --cache`: files of graphs in a folder, found by what they are of, and
//! removed when there are too many.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use megabatch_graph_cache::{Collected, Fetched, GraphCache, GraphFile};
use serde_json::json;

use super::build::Args;
use super::building::{Wrote, describe_graphs, facts, with_progress};
use super::source::Source;
use crate::answer::{Answer, shown};
use crate::byte_sizes::bytes;
use crate::commands::memory::size::ByteSize;

pub(super) fn build(args: &Args, folder: &Path, source: Source<'_>) -> Result<Answer> {
    let start = Instant::now();
    let limit = args.limit.map(|ByteSize(bytes)| bytes as u64);
    let cache = GraphCache::open(folder, limit.unwrap_or(u64::MAX))?;
    let (Fetched { file, collected }, wrote) =
        with_progress(args, source.builder, &mut |options, progress| cache.get(source.builder, options, progress))?;
    let seconds = start.elapsed().as_secs_f64();
    let text = source.found + &describe(&file, wrote, &collected, limit, seconds);
    let mut json = facts(&file, wrote, args.kind, seconds);
    json["state"] = if wrote == Wrote::Nothing { "hit" } else { "built" }.into();
    json["found"] = source.facts;
    json["cache"] = json!({
        "folder": shown(folder),
        "limit_bytes": limit,
        "left_bytes": collected.left_bytes,
        "removed": collected.removed,
    });
    Ok(Answer::new(text, &json))
}

fn describe(file: &GraphFile, wrote: Wrote, collected: &Collected, limit: Option<u64>, seconds: f64) -> String {
    let how = match wrote {
        Wrote::Nothing => "hit: they were there".to_owned(),
        Wrote::Graphs { .. } => wrote.describe(seconds),
    };
    let mut lines = vec![describe_graphs(file, &how)];
    lines.extend(collected.removed.iter().map(|path| format!("removed, unused for longest: {}", path.display())));
    let left = collected.left_bytes;
    lines.extend(limit.map(|limit| match left > limit {
        true => format!(
            "the folder has {}, more than its {}: what is in use stays",
            bytes(left as usize),
            bytes(limit as usize)
        ),
        false => format!("the folder has {} of its {}", bytes(left as usize), bytes(limit as usize)),
    }));
    lines.join("\n")
}
