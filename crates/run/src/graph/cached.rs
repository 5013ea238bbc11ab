//! Files of graphs in a cache folder, found by what they are of, and
//! removed when there are too many.

use std::path::Path;
use std::time::Instant;

use megabatch_graph_cache::{Collected, Fetched, GraphCache, GraphFile};
use serde_json::json;

use super::building::{Wrote, describe_graphs, facts, with_progress};
use super::request::{BuildRequest, Source};
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::host::Host;
use crate::text::{ByteSize, bytes, shown};

/// A cache folder.
#[derive(Clone, Copy)]
pub(super) struct CacheFolder<'a> {
    pub(super) folder: &'a Path,
    /// Bytes that its files may take together.
    pub(super) limit: Option<ByteSize>,
}

pub(super) fn build(
    request: &BuildRequest,
    CacheFolder { folder, limit }: CacheFolder<'_>,
    source: Source<'_>,
    host: &Host<'_>,
) -> Result<CommandReport> {
    let start = Instant::now();
    let limit = limit.map(|ByteSize(bytes)| bytes as u64);
    let cache = GraphCache::open(folder, limit.unwrap_or(u64::MAX))?;
    let (Fetched { file, collected }, wrote) =
        with_progress(request, source.builder, folder, host, &mut |options, progress| {
            cache.get(source.builder, options, progress)
        })?;
    let seconds = start.elapsed().as_secs_f64();
    let text = source.found + &describe(&file, wrote, &collected, limit, seconds);
    let mut json = facts(&file, wrote, request.kind, seconds);
    json["state"] = if wrote == Wrote::Nothing { "hit" } else { "built" }.into();
    json["found"] = source.facts;
    json["cache"] = json!({
        "folder": shown(folder),
        "limit_bytes": limit,
        "left_bytes": collected.left_bytes,
        "removed": collected.removed,
    });
    Ok(CommandReport::new(text, &json))
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
