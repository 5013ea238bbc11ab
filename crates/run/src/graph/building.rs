//! Building under way, and what is said of its end: the same for a file of graphs and for a folder
//! of many.

use std::ops::ControlFlow;

use megabatch_graph_cache::{BuildOptions, BuildProgress as Built, Builder, Error, GraphFile, Watch};
use serde_json::{Value, json};

use super::options::GraphKind;
use super::request::BuildRequest;
use super::sizes::sizes;
use crate::host::{Host, Work};
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

/// Result of `build`, and whether it wrote; shows progress on the screen.
pub(super) fn with_progress<T>(
    request: &BuildRequest,
    builder: &dyn Builder,
    host: &Host<'_>,
    build: &mut Build<'_, T>,
) -> Result<(T, Wrote), Error> {
    let mut progress = host.observer.begin(Work { label: "build", total: builder.keys().len() as u64, unit: "graphs" });
    let mut wrote = Wrote::Nothing;
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
            }
            _ => {}
        }
        if host.cancel.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((built, wrote))
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
