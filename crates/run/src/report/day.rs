//! The graph between instruments on one day.

use megabatch_nn::graph::Graphs as _;

use super::chart::Network;
use super::html::{Section, paragraph};
use crate::adapters::cross_section::CrossSections;
use crate::error::{Error, Result};
use crate::text::number::plural;
use crate::text::utc;

/// Most edges that are drawn. More would be a blot.
const EDGES_MAX: usize = 4_000;

/// The graph of a day, as the model saw it.
pub(crate) struct DayGraph {
    /// Time of its samples, ns since 1970 UTC.
    time_ns: i64,
    /// Names of the instruments that have a sample.
    names: Vec<String>,
    /// From, to and weight.
    edges: Vec<(usize, usize, f32)>,
}

impl DayGraph {
    /// The graph of the cross-section `section`.
    pub(crate) fn new(sections: &CrossSections, section: usize) -> Result<Self> {
        let view = sections.graph(section).map_err(Error::from_cause)?;
        let width = sections.edge_attributes();
        let weight = |edge: usize| if width == 0 { 1.0 } else { view.attributes[edge * width] };
        let row_edges = |row: usize| view.csr.edges_of(row).map(move |edge| (row, edge));
        let edges = (0..view.nodes()).flat_map(row_edges);
        let edges = edges.map(|(row, edge)| (view.csr.col()[edge] as usize, row, weight(edge)));
        Ok(DayGraph { time_ns: sections.times()[section], names: sections.names(section), edges: edges.collect() })
    }

    /// The heaviest edges, as many as are drawn.
    fn heaviest(&self) -> Vec<(usize, usize, f32)> {
        let mut edges = self.edges.clone();
        edges.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
        edges.truncate(EDGES_MAX);
        edges
    }
}

pub(crate) fn section(day: &DayGraph) -> Section {
    let (nodes, edges) = (plural(day.names.len(), "instrument"), plural(day.edges.len(), "edge"));
    let drawn = match day.edges.len() {
        0..=EDGES_MAX => String::new(),
        _ => format!(" The {} are drawn.", plural(EDGES_MAX, "heaviest edge")),
    };
    let mut body = paragraph(&format!(
        "The graph of {}, the last predicted time: {nodes} and {edges}. Its data were known by then. It has the instruments with a sample at \
         that time; the more others gather from one, the larger it is drawn.{drawn}",
        utc(day.time_ns),
    ));
    let title = format!("{}: {nodes}, {edges}", utc(day.time_ns));
    let network = Network { title, names: day.names.clone(), edges: day.heaviest() };
    body.push_str(&network.to_html());
    Section { id: "graph", title: "The graph of the last day", body }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(edges: Vec<(usize, usize, f32)>) -> DayGraph {
        DayGraph { time_ns: 1_619_000_000_000_000_000, names: ["A<", "B", "C"].map(str::to_owned).to_vec(), edges }
    }

    #[test]
    fn instruments_and_edges_are_counted_and_drawn() {
        let html = section(&day(vec![(0, 1, 0.5), (0, 2, -0.5)])).body;
        for part in [
            "The graph of 2021-04-21",
            "3 instruments and 2 edges",
            "A&lt;: 2 gather from it",
            "edges of negative weight",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!((html.matches("<circle").count(), html.contains("are drawn")), (3, false));
        assert!(section(&day(vec![])).body.contains("3 instruments and 0 edges"));
    }

    #[test]
    fn the_heaviest_of_very_many_edges_are_drawn() {
        let mut edges = vec![(0, 1, 0.1); EDGES_MAX];
        edges.push((1, 2, -0.9));
        let day = day(edges);
        assert_eq!((day.heaviest().len(), day.heaviest()[0]), (EDGES_MAX, (1, 2, -0.9)));
        let html = section(&day).body;
        assert!(html.contains("4,001 edges") && html.contains("The 4,000 heaviest edges are drawn."), "{html}");
    }
}
