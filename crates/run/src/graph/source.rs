//! Graphs of every kind, from files to a builder.

use std::path::{Path, PathBuf};

use megabatch_graph_cache::Builder as _;
use megabatch_graph_cache::import::{
    self, EdgeListOptions, FeatureRows, Imported, MoleculeEdges, Positions, SdfOptions, Text,
};
use serde_json::json;

use super::options::{GraphKind, Options};
use super::request::Source;
use super::{points, shares};
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::text::plural;

/// Reads `inputs`, and gives what graphs are built from to `then`.
pub(super) fn with_source(
    kind: GraphKind,
    inputs: &[PathBuf],
    options: &Options,
    then: &mut dyn FnMut(Source<'_>) -> Result<CommandReport>,
) -> Result<CommandReport> {
    options.refuse_idle(kind)?;
    if kind == GraphKind::Correlation {
        return shares::with_shares(inputs, options, then);
    }
    let [input] = inputs else {
        let what = kind.name();
        return Err(Error::usage(format!("--kind {what} reads one input, and {} were named", inputs.len())));
    };
    match kind {
        GraphKind::Correlation | GraphKind::Cosine | GraphKind::Euclidean | GraphKind::Radius => {
            points::with_points(kind, input, options, then)
        }
        GraphKind::Tu => then(imported(&import::tu(input)?)),
        GraphKind::EdgeList => then(imported(&edge_list(input, options)?)),
        GraphKind::Sdf => then(imported(&sdf(input, options)?)),
        GraphKind::EdgeIndex => then(imported(&import::edge_index(input)?)),
    }
}

fn edge_list(input: &Path, options: &Options) -> Result<Imported> {
    let features = if options.normalize_features { FeatureRows::Normalized } else { FeatureRows::AsGiven };
    Ok(import::edge_list(input, EdgeListOptions { features })?)
}

fn sdf(input: &Path, options: &Options) -> Result<Imported> {
    let options = SdfOptions {
        edges: options.radius.map_or(MoleculeEdges::Bonds, MoleculeEdges::Radius),
        positions: if options.positions { Positions::Kept } else { Positions::Left },
        table: options.targets.as_deref().map(Text::read).transpose()?,
        targets: options.target.clone(),
    };
    Ok(import::sdf(input, &options)?)
}

fn imported(imported: &Imported) -> Source<'_> {
    let schema = imported.schema();
    let notes: String = imported.notes().iter().map(|note| format!("note: {note}\n")).collect();
    let found = format!(
        "{} a node, {} an edge, {}\n",
        plural(schema.node_features.len(), "feature"),
        plural(schema.edge_attributes.len(), "attribute"),
        plural(schema.targets.len(), "target")
    ) + &notes;
    let facts = json!({
        "node_features": schema.node_features.len(),
        "edge_attributes": schema.edge_attributes.len(),
        "targets": schema.targets,
        "notes": imported.notes(),
    });
    Source { builder: imported, found, facts }
}
