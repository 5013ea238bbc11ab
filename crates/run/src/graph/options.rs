//! Options of graph construction, and the kinds that they belong to.

use std::path::PathBuf;
use std::str::FromStr;

use megabatch_bars::{OnError, SymbolPattern};
use megabatch_graph_cache::build::{Correlation, Demeaning, Knn, Metric, SelfLoops, Sign, Symmetry};

use crate::error::{Error, Result};

/// Kinds of graphs, with their inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphKind {
    /// Shares, a file of bars each: one graph a day, by correlation of earlier log returns.
    Correlation,
    /// A CSV of feature rows: nearest by cosine.
    Cosine,
    /// A CSV of feature rows: nearest by distance.
    Euclidean,
    /// A CSV of x, y and z: points within a radius.
    Radius,
    /// A folder with a TU dataset.
    Tu,
    /// A folder with a graph as edges.csv, features.csv or features_sparse.csv, and labels.csv or
    /// targets.csv.
    EdgeList,
    /// Molecules in an SDF file.
    Sdf,
    /// Tensors as in PyTorch Geometric, in a safetensors file.
    EdgeIndex,
}

impl GraphKind {
    /// Its name: `edge-list`.
    pub fn name(self) -> &'static str {
        match self {
            GraphKind::Correlation => "correlation",
            GraphKind::Cosine => "cosine",
            GraphKind::Euclidean => "euclidean",
            GraphKind::Radius => "radius",
            GraphKind::Tu => "tu",
            GraphKind::EdgeList => "edge-list",
            GraphKind::Sdf => "sdf",
            GraphKind::EdgeIndex => "edge-index",
        }
    }
}

/// Options of all kinds; one that has no effect on a kind is refused.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Returns in the look-back of a correlation; 60 if `None`.
    pub lookback: Option<usize>,
    /// Neighbours that send to a node, of correlation, cosine and euclidean; 10 if `None`.
    pub k: Option<usize>,
    /// Age in days at which returns count half, of correlation.
    pub half_life: Option<f64>,
    /// Subtract the mean return of all shares first, of correlation.
    pub demean: bool,
    /// Returns in the look-back that a share needs to be a node, of correlation; 40, or the
    /// look-back if that is less, if `None`.
    pub min_observations: Option<usize>,
    /// Neighbours kept despite --threshold and mutual symmetry, of correlation; 0 if
    /// `None`.
    pub min_degree: Option<usize>,
    /// Rank neighbours by magnitude, including negative correlations, of correlation.
    pub absolute: bool,
    /// Minimum correlation of a neighbour.
    pub threshold: Option<f64>,
    /// Which edges come with the one back, of correlation, cosine and euclidean; none if `None`.
    pub symmetry: Option<Symmetry>,
    /// Nodes send to themselves, of correlation, cosine, euclidean and radius.
    pub self_loops: bool,
    /// A CSV of symbols and what is known of them, of correlation: each further column becomes an
    /// attribute of edges.
    pub similarities: Option<PathBuf>,
    /// Place of the symbol in the files' names, of correlation.
    pub symbol_pattern: Option<SymbolPattern>,
    /// Rule for rows and files that correlation cannot use. They are errors if `None`.
    pub on_error: Option<OnError>,
    /// The largest distance, of radius and sdf, whose edges are bonds without it.
    pub radius: Option<f32>,
    /// A box that repeats in all directions, of radius.
    pub periodic: Option<BoxEdges>,
    /// edge-list: divide the features of a node by their sum.
    pub normalize_features: bool,
    /// sdf: a CSV of targets, one row a molecule.
    pub targets: Option<PathBuf>,
    /// Columns of `targets`, or data items of the SDF file, that are targets.
    pub target: Vec<String>,
    /// sdf: keep the positions of atoms as features.
    pub positions: bool,
}

/// Lengths of the edges of a box, as `10,10,10`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxEdges(
    /// Along x, y and z.
    pub [f64; 3],
);

impl FromStr for BoxEdges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        let edges = numbers.and_then(|numbers| numbers.try_into().ok());
        edges.map(BoxEdges).ok_or_else(|| "expected three numbers with commas, such as 10,10,10".to_owned())
    }
}

impl Options {
    /// Refuses options that have no effect on `kind`.
    pub(super) fn refuse_idle(&self, kind: GraphKind) -> Result<()> {
        use GraphKind::{Correlation, Cosine, EdgeList, Euclidean, Radius, Sdf};
        let table: [(&str, bool, &[GraphKind]); 19] = [
            ("--lookback", self.lookback.is_some(), &[Correlation]),
            ("--k", self.k.is_some(), &[Correlation, Cosine, Euclidean]),
            ("--half-life", self.half_life.is_some(), &[Correlation]),
            ("--demean", self.demean, &[Correlation]),
            ("--min-observations", self.min_observations.is_some(), &[Correlation]),
            ("--min-degree", self.min_degree.is_some(), &[Correlation]),
            ("--absolute", self.absolute, &[Correlation]),
            ("--threshold", self.threshold.is_some(), &[Correlation]),
            ("--symmetry", self.symmetry.is_some(), &[Correlation, Cosine, Euclidean]),
            ("--self-loops", self.self_loops, &[Correlation, Cosine, Euclidean, Radius]),
            ("--similarities", self.similarities.is_some(), &[Correlation]),
            ("--symbol-pattern", self.symbol_pattern.is_some(), &[Correlation]),
            ("--on-error", self.on_error.is_some(), &[Correlation]),
            ("--radius", self.radius.is_some(), &[Radius, Sdf]),
            ("--periodic", self.periodic.is_some(), &[Radius]),
            ("--normalize-features", self.normalize_features, &[EdgeList]),
            ("--targets", self.targets.is_some(), &[Sdf]),
            ("--target", !self.target.is_empty(), &[Sdf]),
            ("--positions", self.positions, &[Sdf]),
        ];
        let idle = table.into_iter().find(|(_, given, kinds)| *given && !kinds.contains(&kind));
        let Some((option, _, kinds)) = idle else { return Ok(()) };
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        Err(Error::usage(format!(
            "{option} is no option of --kind {}; leave it out, or use a kind that has it: {}",
            kind.name(),
            kinds.join(", ")
        )))
    }

    pub(super) fn correlation(&self) -> Correlation {
        let default = Correlation::default();
        let lookback = self.lookback.unwrap_or(default.lookback);
        Correlation {
            lookback,
            k: self.k.unwrap_or(default.k),
            half_life: self.half_life,
            demeaning: if self.demean { Demeaning::CrossSectional } else { Demeaning::None },
            min_observations: self.min_observations.unwrap_or(default.min_observations.min(lookback)),
            min_degree: self.min_degree.unwrap_or(default.min_degree),
            sign: if self.absolute { Sign::Absolute } else { Sign::Signed },
            threshold: self.threshold,
            symmetry: self.symmetry(),
            self_loops: self.self_loops(),
            ..default
        }
    }

    pub(super) fn neighbours(&self, metric: Metric) -> Knn {
        let k = self.k.unwrap_or(Knn::default().k);
        Knn { metric, k, symmetry: self.symmetry(), self_loops: self.self_loops() }
    }

    fn symmetry(&self) -> Symmetry {
        self.symmetry.unwrap_or(Symmetry::None)
    }

    pub(super) fn self_loops(&self) -> SelfLoops {
        if self.self_loops { SelfLoops::Added } else { SelfLoops::None }
    }

    pub(super) fn on_error(&self) -> OnError {
        self.on_error.unwrap_or(OnError::Fail)
    }
}
