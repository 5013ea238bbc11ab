//! Building under way, and what is said of its end: the same for a file of graphs and for a folder
//! of many.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_graph_cache::{BuildOptions, BuildProgress as Built, Builder, Error, GraphFile, Watch};
use serde_json::{Value, json};

use super::options::GraphKind;
use super::request::BuildRequest;
use super::sizes::sizes;
use crate::error::Result;
use crate::host::{Host, Work};
use crate::ingest::disk::require_free;
use crate::text::{bytes, plural, shown};

/// True if graphs had to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// They were there, or another process built them.
    Nothing,
    /// All but those that were whole in what was there.
    Graphs(KeptGraphs),
}

/// Graphs that did not have to be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptGraphs {
    /// In a build that had been interrupted.
    pub(super) resumed: usize,
    /// In the file that is replaced.
    pub(super) intact: usize,
}

impl Wrote {
    /// Origin of the graphs, in words: `built in 1.25 s`.
    pub(super) fn describe(self, seconds: f64) -> String {
        let kept = match self {
            Wrote::Nothing => KeptGraphs::default(),
            Wrote::Graphs(kept) => kept,
        };
        let kept_text = |count: usize, what: &str| match count {
            0 => String::new(),
            _ => format!("; {} kept of {what}", plural(count, "graph")),
        };
        let resumed = kept_text(kept.resumed, "a build that was interrupted");
        format!("built in {seconds:.2} s{resumed}{}", kept_text(kept.intact, "the file that was there"))
    }
}

/// Builds with options, and says how far it is.
type Build<'b, T> = dyn FnMut(&BuildOptions, Watch<'_>) -> Result<T, Error> + 'b;

/// Result of `build`, which writes to `folder`, and whether it wrote; shows progress on the screen.
///
/// # Errors
/// Errors of `build`; [`Kind::Capacity`](crate::Kind::Capacity) once graphs show that the disk has
/// no room for all.
pub(super) fn with_progress<T>(
    request: &BuildRequest,
    builder: &dyn Builder,
    folder: &Path,
    host: &Host<'_>,
    build: &mut Build<'_, T>,
) -> Result<(T, Wrote)> {
    let mut progress = host.observer.begin(Work { label: "build", total: builder.keys().len() as u64, unit: "graphs" });
    let mut wrote = Wrote::Nothing;
    let (mut begun, mut shortage) = (None, None);
    let built = build(&request.build_options(), &mut |built| {
        match built {
            Built::Waiting => progress.note("another process builds these graphs; waiting for it"),
            Built::Begun { resumed, intact } => {
                wrote = Wrote::Graphs(KeptGraphs { resumed, intact });
                progress.begin_at(resumed as u64);
            }
            Built::Written { graphs, total, bytes: written } => {
                let in_all = (written as f64 * total as f64 / graphs.max(1) as f64) as usize;
                progress.at(graphs as u64, &format!("{} of about {}", bytes(written as usize), bytes(in_all)));
                let now = PartialFile { graphs, bytes: written };
                let needed = begun.get_or_insert(now).least_to_come(now, total);
                shortage = require_free(folder, needed, "the rest of the graphs").err();
            }
            _ => {}
        }
        let ends = shortage.is_some() || host.cancel.is_requested();
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match shortage {
        Some(shortage) => Err(shortage),
        None => Ok((built?, wrote)),
    }
}

/// A file that is being built.
#[derive(Clone, Copy)]
struct PartialFile {
    graphs: usize,
    bytes: u64,
}

impl PartialFile {
    /// Bytes of the graphs after those of `now`, `total` in all: half as large each as those since
    /// `self`, as graphs differ in size.
    fn least_to_come(self, now: PartialFile, total: usize) -> u64 {
        let (graphs, bytes) = (now.graphs.saturating_sub(self.graphs), now.bytes.saturating_sub(self.bytes));
        let graph_bytes = bytes as f64 / graphs.max(1) as f64;
        (0.5 * graph_bytes * total.saturating_sub(now.graphs) as f64) as u64
    }
}

/// The graphs of a file, how they came there, and how large they are.
pub(super) fn describe_graphs(file: &GraphFile, how: &str) -> String {
    let graphs = plural(file.len(), "graph");
    let mut text = format!("{}: {graphs}, {}; {how}", file.path().display(), bytes(file.bytes()));
    if !file.is_empty() {
        let (nodes, edges) = sizes(file);
        text.push_str(&format!("\n{}; {}", nodes.words("node"), edges.words("edge")));
        let without = (0..file.len()).filter(|&index| file.size(index).1 == 0).count();
        if without == file.len() {
            text.push_str("\nwarning: no graph has an edge");
        } else if without > 0 {
            text.push_str(&format!("\nwarning: {without} of {graphs} have no edge{}", way_out(file)));
        }
    }
    text
}

/// Advice that gives graphs of shares more edges.
fn way_out(file: &GraphFile) -> String {
    let parameters: Value = serde_json::from_str(&file.identity().parameters).unwrap_or_default();
    match &parameters["min_observations"] {
        Value::Null => String::new(),
        least => format!(
            ": a share is a node on days before which it has {least} returns; ask for fewer with --min-observations"
        ),
    }
}

/// The same for programs.
pub(super) fn facts(file: &GraphFile, wrote: Wrote, kind: GraphKind, seconds: f64) -> Value {
    let identity = file.identity();
    let (nodes, edges) = sizes(file);
    json!({
        "out": shown(file.path()),
        "kind": kind.name(),
        "graphs": file.len(),
        "kept": match wrote {
            Wrote::Nothing => file.len(),
            Wrote::Graphs(KeptGraphs { resumed, intact }) => resumed + intact,
        },
        "nodes": nodes.json(),
        "edges": edges.json(),
        "first_key": (!file.is_empty()).then(|| file.key(0)),
        "last_key": file.len().checked_sub(1).map(|last| file.key(last)),
        "bytes": file.bytes(),
        "seconds": seconds,
        "builder": identity.builder,
        "parameters": serde_json::from_str(&identity.parameters).unwrap_or(Value::Null),
        "data": format!("{:032x}", identity.data),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_to_come_are_reckoned_by_those_that_are_there() {
        let begun = PartialFile { graphs: 10, bytes: 9_000 };
        let after = |graphs, bytes| begun.least_to_come(PartialFile { graphs, bytes }, 1_000);
        assert_eq!(after(10, 9_000), 0, "the header tells nothing");
        assert_eq!(after(12, 9_400), 988 * 100);
        assert_eq!(after(1_000, 1 << 40), 0);
    }
}
