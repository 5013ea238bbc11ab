//! Graphs of points that are near in space.

use rayon::prelude::*;
use serde_json::json;

use super::assemble::{SelfLoops, counted};
use super::cell::UnitCell;
use super::cell_list::CellList;
use super::points::Points;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::schema::Schema;

/// Graphs of the points of three-dimensional space that are at most a radius apart, such as the
/// atoms of a molecule.
///
/// An edge goes each way between two points i and j with ‖xⱼ − xᵢ‖ ≤ radius, and has that distance
/// as its attribute `distance`. In a periodic [`UnitCell`] each point stands for all of its images:
/// there is an edge from j to i for every image of j near i, also where j is i itself. Edges of one
/// row are in the order of their columns, and those of one column by distance.
///
/// Points are found by a cell list with cells no smaller than the radius: a point searches its own
/// cell and those around it (Allen & Tildesley, *Computer Simulation of Liquids*, 2017, section
/// 5.3.2; for periodic images, section 1.6.4).
#[derive(Clone, Debug, PartialEq)]
pub struct Radius {
    /// In the unit of the coordinates.
    pub radius: f64,
    /// Periodic cell, if any.
    pub cell: Option<UnitCell>,
    /// Rule for self-loops, at distance 0.
    pub self_loops: SelfLoops,
}

/// Points of one task.
const TASK_POINTS: usize = 256;

/// Other ends of a point's edges, and squared distances.
type NearPoints = Vec<(u32, f64)>;

impl Radius {
    /// Points at most `radius` apart, without periodic boundaries.
    pub fn new(radius: f64) -> Self {
        Radius { radius, cell: None, self_loops: SelfLoops::None }
    }

    /// Schema of such graphs.
    pub fn schema(&self) -> Schema {
        Schema { edge_attributes: vec!["distance".to_owned()], ..Schema::default() }
    }

    /// The options as JSON in one canonical form.
    pub fn parameters(&self) -> String {
        let cell = self.cell.as_ref().map(UnitCell::vectors);
        json!({ "radius": self.radius, "cell": cell, "self_loops": self.self_loops.name() }).to_string()
    }

    /// The graph of points in space, on all threads of rayon's current pool.
    ///
    /// # Errors
    /// [`Error::Option`] for a radius that is not a positive number; [`Error::Data`] for points of
    /// another dimension than three, for one more than ten thousand cells away, and for more edges
    /// than a `u32` counts.
    pub fn build(&self, points: &Points<'_>) -> Result<Graph> {
        if !(self.radius > 0.0 && self.radius <= 1e100) {
            let found = self.radius.to_string();
            return Err(Error::Option { option: "radius", found, expected: "a positive number" });
        }
        if points.width() != 3 {
            let object = format!("points of {} numbers", points.width());
            return Err(Error::Data { object, expected: "three, which a place in space has".into() });
        }
        let list = CellList::new(points, self.radius, self.cell.as_ref())?;
        let nodes: Vec<u32> = (0..points.len() as u32).collect();
        let found: Vec<(Vec<usize>, NearPoints)> =
            nodes.par_chunks(TASK_POINTS).map(|nodes| self.near(&list, nodes)).collect();
        let mut graph = Graph { nodes, row_ptr: vec![0], ..Graph::default() };
        for (counts, found) in found {
            for count in counts {
                let end = graph.row_ptr[graph.row_ptr.len() - 1] as usize + count;
                graph.row_ptr.push(counted(end)?);
            }
            graph.col.extend(found.iter().map(|&(column, _)| column));
            graph.edge_attributes.extend(found.iter().map(|&(_, square)| square.sqrt() as f32));
        }
        Ok(graph)
    }

    /// Neighbours of some points: counts and indices.
    fn near(&self, list: &CellList<'_>, nodes: &[u32]) -> (Vec<usize>, NearPoints) {
        let (mut counts, mut all, mut found) = (Vec::with_capacity(nodes.len()), NearPoints::new(), NearPoints::new());
        for &node in nodes {
            found.clear();
            if self.self_loops == SelfLoops::Added {
                found.push((node, 0.0));
            }
            list.near(node as usize, |column, square| found.push((column, square)));
            found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            counts.push(found.len());
            all.extend_from_slice(&found);
        }
        (counts, all)
    }
}
