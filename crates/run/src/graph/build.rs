//! Graphs of files, built where they are not there yet.

use std::path::Path;
use std::time::Instant;

use megabatch_graph_cache::build::Rewired;
use megabatch_graph_cache::{Builder, CollectionChange, Error, GraphFile, build_cached};
use serde_json::{Value, json};

use super::building::{Wrote, describe_graphs, facts, with_progress};
use super::cached::{self, CacheFolder};
use super::request::{BuildRequest, Destination, Source};
use super::source::with_source;
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::host::Host;
use crate::ingest::disk::target_folder;

/// Builds graphs into a file, unless it holds them already.
///
/// The file holds a hash of its data, its builder and parameters. If nothing has changed, nothing
/// is done; else the difference is named and the file is replaced. An interrupted build continues
/// where it stopped.
///
/// # Errors
/// A usage error for options that have no effect on the kind; a data error for inputs that cannot
/// be used.
pub fn build(request: &BuildRequest, host: &Host<'_>) -> Result<CommandReport> {
    request.destination.check(&request.inputs)?;
    with_source(request.kind, &request.inputs, &request.options, &mut |source| match request.rewire {
        None => build_source(request, source, host),
        Some(seed) => {
            let Source { builder, found, facts } = source;
            build_source(request, Source { builder: &Rewired::new(builder, seed), found, facts }, host)
        }
    })
}

fn build_source(request: &BuildRequest, source: Source<'_>, host: &Host<'_>) -> Result<CommandReport> {
    match &request.destination {
        Destination::File(out) => build_file(request, out, source, host),
        Destination::Cache { folder, limit } => {
            cached::build(request, CacheFolder { folder, limit: *limit }, source, host)
        }
    }
}

fn build_file(request: &BuildRequest, out: &Path, source: Source<'_>, host: &Host<'_>) -> Result<CommandReport> {
    let start = Instant::now();
    let changes = changes(out, source.builder)?;
    let (file, wrote) = with_progress(request, source.builder, &target_folder(out), host, &mut |options, progress| {
        build_cached(out, source.builder, options, progress)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let state = match (wrote, &changes) {
        (Wrote::Nothing, _) => State::Unchanged,
        (Wrote::Graphs { .. }, Some(changes)) if !changes.is_empty() => State::Replaced,
        (Wrote::Graphs { .. }, _) => State::Built,
    };
    let changes = changes.unwrap_or_default();
    let text = source.found + &describe(&file, state, &changes, wrote, seconds);
    let mut json = facts(&file, wrote, request.kind, seconds);
    json["state"] = state.name().into();
    json["changes"] = changes
        .iter()
        .map(|CollectionChange { what, old, new, .. }| json!({ "what": what, "old": old, "new": new }))
        .collect();
    json["found"] = source.facts;
    Ok(CommandReport::new(text, &json))
}

/// Outcome for the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It holds the graphs already.
    Unchanged,
    Built,
    /// It held others.
    Replaced,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Unchanged => "unchanged",
            State::Built => "built",
            State::Replaced => "replaced",
        }
    }
}

/// In what the file at `path` is not of what `builder` builds from; `None` where there is no file
/// that could tell.
fn changes(path: &Path, builder: &dyn Builder) -> Result<Option<Vec<CollectionChange>>> {
    let Ok(file) = GraphFile::open(path) else { return Ok(None) };
    match file.check_fresh(builder) {
        Ok(()) => Ok(Some(Vec::new())),
        Err(Error::Stale { changes, .. }) => Ok(Some(changes)),
        Err(error) => Err(error.into()),
    }
}

fn describe(file: &GraphFile, state: State, changes: &[CollectionChange], wrote: Wrote, seconds: f64) -> String {
    let how = match state {
        State::Unchanged => "it was built from the same, in the same way: nothing to do".to_owned(),
        State::Built => wrote.describe(seconds),
        State::Replaced => {
            let said: Vec<String> =
                changes.iter().flat_map(|change| said(change.what, &change.old, &change.new)).collect();
            format!("{}; it held others: {}", wrote.describe(seconds), said.join(", "))
        }
    };
    describe_graphs(file, &how)
}

/// Changes in words: of parameters, each that has changed.
fn said(what: &str, old: &str, new: &str) -> Vec<String> {
    let object = |text: &str| serde_json::from_str(text).ok().filter(Value::is_object);
    let (Some(old_values), Some(new_values)) = (object(old), object(new)) else {
        return vec![match what {
            "data" => "data have changed".to_owned(),
            what => format!("{what} was {old:.80}, is {new:.80}"),
        }];
    };
    let empty = serde_json::Map::new();
    let names = new_values.as_object().unwrap_or(&empty).keys();
    let differ = names.filter(|name| old_values[name.as_str()] != new_values[name.as_str()]);
    let was = |name: &str| match &old_values[name] {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    };
    differ.map(|name| format!("{name} was {}, is {}", was(name), new_values[name.as_str()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_have_changed_are_named() {
        let cases = [
            ("parameters", r#"{"k":10,"lookback":60}"#, r#"{"k":5,"lookback":60}"#, vec!["k was 10, is 5"]),
            ("parameters", r#"{"k":10}"#, r#"{"k":10,"demean":true}"#, vec!["demean was not set, is true"]),
            ("builder", "tu/1", "tu/2", vec!["builder was tu/1, is tu/2"]),
            ("data", "a", "b", vec!["data have changed"]),
        ];
        for (what, old, new, expected) in cases {
            assert_eq!(said(what, old, new), expected);
        }
    }
}
