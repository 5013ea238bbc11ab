//! Graphs over rows of a CSV: features of nodes, or places in space.

use std::path::Path;

use megabatch_graph_cache::build::{Metric, PointGraphs, PointRule, Points, Radius, UnitCell};
use megabatch_graph_cache::import::{Text, points};
use serde_json::json;

use super::note_on_k;
use super::options::{BoxEdges, GraphKind, Options};
use super::request::Source;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::text::plural;

/// The one graph's key.
const KEY: &str = "graph";

pub(super) fn with_points(
    kind: GraphKind,
    input: &Path,
    options: &Options,
    then: &mut dyn FnMut(Source<'_>) -> Result<CommandReport>,
) -> Result<CommandReport> {
    let table = points(&Text::read(input)?)?;
    let width = table.columns.len();
    let rows = Points::new(&table.values, width)?;
    let neighbours = |metric| {
        let knn = options.neighbours(metric);
        (note_on_k(knn.k, rows.len(), "row"), PointRule::Neighbours(knn))
    };
    let (note, rule) = match kind {
        GraphKind::Cosine => neighbours(Metric::Cosine),
        GraphKind::Euclidean => neighbours(Metric::Euclidean),
        _ if width != 3 => {
            let (file, columns) = (input.display(), table.columns.join(", "));
            return Err(Error::data(format!("{file}: columns {columns}: expected three, which a place in space has")));
        }
        _ => (String::new(), PointRule::Radius(radius(options)?)),
    };
    let graphs = PointGraphs::new(rule, vec![(KEY.to_owned(), rows)])?;
    let found = format!("{} of {}\n{note}", plural(rows.len(), "row"), plural(width, "number"));
    then(Source { builder: &graphs, found, facts: json!({ "rows": rows.len(), "columns": table.columns }) })
}

fn radius(options: &Options) -> Result<Radius> {
    let Some(radius) = options.radius else {
        return Err(Error::usage("--kind radius needs --radius, the largest distance of an edge"));
    };
    let cell = options.periodic.map(|BoxEdges(edges)| {
        let vector = |axis: usize| std::array::from_fn(|other| if other == axis { edges[axis] } else { 0.0 });
        UnitCell::new([vector(0), vector(1), vector(2)])
    });
    Ok(Radius { cell: cell.transpose()?, self_loops: options.self_loops(), ..Radius::new(radius.into()) })
}
