//! Options of graph construction, and the kinds that they belong to.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::ValueEnum;
use megabatch_bars::OnError;
use megabatch_graph_cache::build::{Correlation, Demeaning, Knn, Metric, SelfLoops, Sign, Symmetry};

use crate::failure::Failure;

/// Kinds of graphs, with their inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Shares, a file of bars each: a graph a day of the nearest by correlation of log returns
    /// before it
    Correlation,
    /// A CSV of rows of features: the nearest by cosine
    Cosine,
    /// A CSV of rows of features: the nearest by distance
    Euclidean,
    /// A CSV of x, y and z: those that are at most a radius apart
    Radius,
    /// A folder with a TU dataset
    Tu,
    /// A folder with a graph as edges.csv, features.csv or features_sparse.csv, and labels.csv or
    /// targets.csv
    EdgeList,
    /// Molecules in an SDF file
    Sdf,
    /// Tensors as in PyTorch Geometric, in a safetensors file
    EdgeIndex,
}

impl Kind {
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("no kind is hidden").get_name().to_owned()
    }
}

/// Options of all kinds; what an option is without being given is said with it.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Returns that a correlation is taken of [default: 60]
    #[arg(long, help_heading = "Correlation")]
    lookback: Option<usize>,
    /// Neighbours that send to a node; also of cosine and euclidean [default: 10]
    #[arg(long, help_heading = "Correlation")]
    k: Option<usize>,
    /// Weight returns by age: those so many days old count half
    #[arg(long, help_heading = "Correlation", value_name = "DAYS")]
    half_life: Option<f64>,
    /// Take the mean return of all shares from each first
    #[arg(long, help_heading = "Correlation")]
    demean: bool,
    /// Returns in the window that a share needs to be a node [default: 40, or the look-back if that
    /// is less]
    #[arg(long, help_heading = "Correlation")]
    min_observations: Option<usize>,
    /// Neighbours that are kept below the threshold and in mutual edges [default: 0]
    #[arg(long, help_heading = "Correlation")]
    min_degree: Option<usize>,
    /// Neighbours are those of the largest magnitude, opposite ones too
    #[arg(long, help_heading = "Correlation")]
    absolute: bool,
    /// The least correlation of a neighbour
    #[arg(long, help_heading = "Correlation", allow_hyphen_values = true)]
    threshold: Option<f64>,
    /// Which edges come with the one back; also of cosine and euclidean [default: none]
    #[arg(long, help_heading = "Correlation", value_enum)]
    symmetry: Option<SymmetryArg>,
    /// Nodes send to themselves; also of cosine, euclidean and radius
    #[arg(long, help_heading = "Correlation")]
    self_loops: bool,
    /// A CSV of symbols and what is known of them: each further column becomes an attribute of
    /// edges, smaller / larger of two numbers, and of texts 1 where they are equal
    #[arg(long, help_heading = "Correlation", value_name = "CSV")]
    pub(super) similarities: Option<PathBuf>,
    /// What happens to rows and files that cannot be used, as in `ingest` [default: fail]
    #[arg(long, help_heading = "Correlation", value_enum)]
    on_error: Option<OnErrorArg>,
    /// The largest distance; of radius and sdf, whose edges are bonds without it
    #[arg(long, help_heading = "Other kinds", value_name = "DISTANCE")]
    pub(super) radius: Option<f32>,
    /// Edges of a box that repeats in all directions, of radius: 10,10,10
    #[arg(long, help_heading = "Other kinds", value_name = "X,Y,Z")]
    pub(super) periodic: Option<BoxEdges>,
    /// Divide the features of a node by their sum, of edge-list
    #[arg(long, help_heading = "Other kinds")]
    pub(super) normalize_features: bool,
    /// A CSV of targets, a row a molecule, of sdf
    #[arg(long, help_heading = "Other kinds", value_name = "CSV")]
    pub(super) targets: Option<PathBuf>,
    /// A column of --targets, or a data item of the SDF file, that is a target; several with commas
    #[arg(long, help_heading = "Other kinds", value_name = "NAME", value_delimiter = ',')]
    pub(super) target: Vec<String>,
    /// Keep the positions of atoms as features, of sdf
    #[arg(long, help_heading = "Other kinds")]
    pub(super) positions: bool,
}

/// Lengths of the edges of a box.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxEdges(pub(super) [f64; 3]);

impl FromStr for BoxEdges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        let edges = numbers.and_then(|numbers| numbers.try_into().ok());
        edges.map(BoxEdges).ok_or_else(|| "expected three numbers with commas, such as 10,10,10".to_owned())
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum SymmetryArg {
    /// None: a node may be a neighbour of one that is none of its
    None,
    /// All: where one is a neighbour, both are
    Union,
    /// Only edges that there are both ways stay
    Mutual,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnErrorArg {
    /// Stop at the first
    Fail,
    /// Leave them out, and say which
    Skip,
    /// Mend what can be, and leave out the rest
    Repair,
}

impl Options {
    /// Refuses options that do nothing for `kind`.
    pub(super) fn refuse_idle(&self, kind: Kind) -> Result<()> {
        use Kind::{Correlation, Cosine, EdgeList, Euclidean, Radius, Sdf};
        let table: [(&str, bool, &[Kind]); 18] = [
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
        let kinds: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
        Err(Failure::usage(format!(
            "{option} does nothing with --kind {}; it belongs to {}",
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
        match self.symmetry {
            None | Some(SymmetryArg::None) => Symmetry::None,
            Some(SymmetryArg::Union) => Symmetry::Union,
            Some(SymmetryArg::Mutual) => Symmetry::Mutual,
        }
    }

    pub(super) fn self_loops(&self) -> SelfLoops {
        if self.self_loops { SelfLoops::Added } else { SelfLoops::None }
    }

    pub(super) fn on_error(&self) -> OnError {
        match self.on_error {
            None | Some(OnErrorArg::Fail) => OnError::Fail,
            Some(OnErrorArg::Skip) => OnError::Skip,
            Some(OnErrorArg::Repair) => OnError::Repair,
        }
    }
}
