//! Traces of the corpus.

use std::path::Path;

use megabatch_alloc_lab::corpus::{PATTERNS, pattern};
use megabatch_atomic_file as atomic_file;
use serde_json::json;

use super::replay::gib;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::output;
use crate::text::shown;

/// Name and description of a pattern that fragments memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternName {
    /// The name.
    pub name: &'static str,
    /// The kind of program that allocates so.
    pub about: &'static str,
}

/// The patterns of the corpus.
pub fn patterns() -> impl Iterator<Item = PatternName> {
    PATTERNS.iter().map(|pattern| PatternName { name: pattern.name, about: pattern.about })
}

/// Writes a trace of the pattern called `name` to `out`, one JSON object a line; the same seed
/// gives the same trace.
///
/// # Errors
/// A usage error for an unknown name, or an output that cannot be written.
pub fn trace(name: &str, out: &Path, seed: u64) -> Result<CommandReport> {
    output::check(out, &[])?;
    let pattern = pattern(name).ok_or_else(|| Error::usage(format!("`{name}` is no pattern of the corpus")))?;
    let events = pattern.events(seed);
    let mut text = Vec::new();
    for event in &events {
        event.write_line(&mut text)?;
    }
    atomic_file::write(out, &text)?;
    let said = format!(
        "{}: {} events; {} (made for a device of {})",
        out.display(),
        events.len(),
        pattern.about,
        gib(pattern.capacity_bytes)
    );
    let json = json!({
        "out": shown(out),
        "events": events.len(),
        "capacity_bytes": pattern.capacity_bytes,
        "max_split_bytes": pattern.max_split_bytes,
    });
    Ok(CommandReport::new(said, &json))
}
