//! Graphs of the nodes with the most similar features.

use megabatch_gpu_core::isa::Isa;
use serde_json::json;

use super::assemble::{EdgeOptions, NeighbourEdges, SelfLoops, Symmetry, assemble};
use super::kernel::RowMeasure;
use super::nearest::{Choice, Parallelism, Sign, Similarity, search};
use super::points::Points;
use super::rows::RowMatrix;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::schema::Schema;

/// Graphs of the k nearest neighbours among rows of features.
///
/// The k most similar others send to each node, of equal ones the first; edges go neighbour → node,
/// and are then made [symmetric](Symmetry) if requested. Distances and cosines are in double
/// precision, so that graphs are the same bits on every CPU; edges are those of PyTorch Geometric's
/// `knn_graph`, but for ties.
///
/// Source: Cover & Hart, *Nearest neighbor pattern classification* (IEEE Trans. Inf. Theory 13,
/// 1967), for neighbours; Salton & McGill, *Introduction to Modern Information Retrieval* (1983),
/// for the cosine.
#[derive(Clone, Debug, PartialEq)]
pub struct Knn {
    /// Metric of nearness.
    pub metric: Metric,
    /// k: 10.
    pub k: usize,
    /// Rule for the reverse of an edge.
    pub symmetry: Symmetry,
    /// Rule for self-loops.
    pub self_loops: SelfLoops,
}

/// Metrics between rows of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Σ x·y / (‖x‖·‖y‖), the larger the nearer; the weight of edges. A row of zeros has no cosine,
    /// and no neighbours.
    #[default]
    Cosine,
    /// √Σ (x − y)², the smaller the nearer; the attribute `distance` of edges.
    Euclidean,
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Cosine => "cosine",
            Metric::Euclidean => "euclidean",
        }
    }
}

impl Default for Knn {
    fn default() -> Self {
        Knn { metric: Metric::Cosine, k: 10, symmetry: Symmetry::None, self_loops: SelfLoops::None }
    }
}

impl Knn {
    /// Schema of such graphs.
    pub fn schema(&self) -> Schema {
        match self.metric {
            Metric::Cosine => Schema { weighted: true, ..Schema::default() },
            Metric::Euclidean => Schema { edge_attributes: vec!["distance".to_owned()], ..Schema::default() },
        }
    }

    /// The options as JSON in one canonical form.
    pub fn parameters(&self) -> String {
        json!({
            "metric": self.metric.name(),
            "k": self.k,
            "symmetry": self.symmetry.name(),
            "self_loops": self.self_loops.name(),
        })
        .to_string()
    }

    /// The graph of some rows of features, on all threads of rayon's current pool.
    ///
    /// # Errors
    /// [`Error::Option`] where k is 0; [`Error::Data`] for more edges than a `u32` counts.
    pub fn build(&self, points: &Points<'_>) -> Result<Graph> {
        if self.k == 0 {
            return Err(Error::Option { option: "k", found: "0".into(), expected: "1 or more" });
        }
        let choice = Choice { k: self.k, sign: Sign::Signed, threshold: None, kept: 0 };
        let similarity = match self.metric {
            Metric::Cosine => RowSimilarity::cosines(points),
            Metric::Euclidean => RowSimilarity::distances(points),
        };
        let neighbours = search(&similarity, choice, Parallelism::Rows);
        let own = if self.metric == Metric::Cosine { 1.0 } else { 0.0 };
        let parts = EdgeOptions { symmetry: self.symmetry, self_loops: self.self_loops, own };
        Ok(self.graph(points.len(), assemble(&neighbours, parts)?))
    }

    fn graph(&self, nodes: usize, edges: NeighbourEdges) -> Graph {
        let numbers = |map: fn(f64) -> f64| edges.values.iter().map(|&value| map(value) as f32).collect();
        let (weights, edge_attributes) = match self.metric {
            Metric::Cosine => (numbers(|cosine| cosine), Vec::new()),
            Metric::Euclidean => (Vec::new(), numbers(|negative_square| negative_square.abs().sqrt())),
        };
        Graph {
            nodes: (0..nodes as u32).collect(),
            row_ptr: edges.row_ptr,
            col: edges.col,
            weights,
            edge_attributes,
            ..Graph::default()
        }
    }
}

/// Similarity of rows, which their products propose.
struct RowSimilarity {
    rows: RowMatrix,
    /// The product of rows of norm 1, or −‖x − y‖². In ‖x − y‖² = ‖x‖² − 2 (x·y − ‖y‖²/2),
    /// only the bracket depends on the column y: it is the proposal, for rows centred on their
    /// mean and scaled to norms up to 1.
    measure: RowMeasure,
    /// Rows without a cosine, and all rows.
    zeros: Vec<u32>,
    all: Vec<u32>,
}

impl RowSimilarity {
    fn cosines(points: &Points<'_>) -> Self {
        let mut rows = RowMatrix::default();
        rows.reset(points.len(), points.width());
        let mut zeros = Vec::new();
        for (place, from) in points.rows().enumerate() {
            // Scaled first, so that no square leaves the range of numbers.
            let largest = from.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
            if largest == 0.0 {
                zeros.push(place as u32);
                continue;
            }
            let norm = from.iter().map(|x| (x / largest) * (x / largest)).sum::<f64>().sqrt();
            rows.row_mut(place).iter_mut().zip(from).for_each(|(z, x)| *z = x / largest / norm);
            rows.propose_by(place, 0.0, |_, z| z as f32);
        }
        RowSimilarity { all: (0..points.len() as u32).collect(), rows, measure: RowMeasure::Product, zeros }
    }

    fn distances(points: &Points<'_>) -> Self {
        let mut rows = RowMatrix::default();
        rows.reset(points.len(), points.width());
        let mut mean = vec![0.0; points.width()];
        points.rows().for_each(|row| mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x / points.len() as f64));
        let norm = |row: &[f64]| row.iter().zip(&mean).map(|(x, m)| (x - m) * (x - m)).sum::<f64>().sqrt();
        let largest = points.rows().map(norm).fold(f64::MIN_POSITIVE, f64::max);
        for (place, from) in points.rows().enumerate() {
            rows.row_mut(place)[..from.len()].copy_from_slice(from);
            let norm = norm(from) / largest;
            rows.propose_by(place, (-0.5 * norm * norm) as f32, |t, x| ((x - mean[t]) / largest) as f32);
        }
        RowSimilarity { rows, measure: RowMeasure::SquaredDistance, zeros: Vec::new(), all: Vec::new() }
    }

    fn is_zero(&self, row: u32) -> bool {
        self.zeros.binary_search(&row).is_ok()
    }
}

impl Similarity for RowSimilarity {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn columns(&self) -> usize {
        self.rows.columns()
    }

    fn propose(&self, panel: usize, to: &mut [f32]) {
        self.rows.propose(Isa::best(), panel, to);
    }

    fn error(&self) -> f32 {
        self.rows.error()
    }

    fn unproposed(&self, row: usize) -> &[u32] {
        if self.is_zero(row as u32) { &self.all } else { &self.zeros }
    }

    fn values(&self, row: usize, columns: &[u32], to: &mut [f64]) {
        if self.is_zero(row as u32) {
            return to.fill(f64::NAN);
        }
        self.rows.between(Isa::best(), self.measure, row as u32, columns, to);
        for (&column, value) in columns.iter().zip(to) {
            *value = match self.measure {
                RowMeasure::SquaredDistance => -*value,
                RowMeasure::Product if self.is_zero(column) => f64::NAN,
                RowMeasure::Product => value.clamp(-1.0, 1.0),
            };
        }
    }
}
