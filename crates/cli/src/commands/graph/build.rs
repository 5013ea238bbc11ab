//! `megabatch graph build`: arguments of graphs of every kind.

use std::path::PathBuf;

use megabatch_run::graph::{
    BoxEdges, BuildRequest, Destination, FloatWidth, GraphKind, IndexWidth, Options, Symmetry, Widths, build,
};
use megabatch_run::ingest::{OnError, SymbolPattern};
use megabatch_run::text::ByteSize;
use megabatch_run::{CommandReport, Result};

use crate::commands::choice;
use crate::host::host;

/// Build graphs into a file, unless the file has them already
///
/// The file holds a hash of its data, its builder and parameters. If nothing has changed, nothing
/// is done; else the difference is named and the file is replaced. An interrupted build continues
/// where it stopped.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph build shares/ --kind correlation --lookback 60 --k 10 --out shares.mbg
  megabatch graph build shares/ --kind correlation --lookback 60 --k 10 --rewire 1 --out random.mbg
  megabatch graph build cora/ --kind edge-list --normalize-features --out cora.mbg
  megabatch graph build MUTAG/ --kind tu --out mutag.mbg
  megabatch graph build gdb1k.sdf.gz --kind sdf --targets gdb1k.sdf.csv.gz --out gdb1k.mbg
  megabatch graph build atoms.csv --kind radius --radius 3.5 --periodic 10,10,10 --out atoms.mbg
  megabatch graph build shares/ --kind correlation --lookback 90 --k 5 --cache graphs/ --limit 2GiB")]
pub(super) struct BuildArgs {
    /// Files or folders; see --kind
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Input and builder of the graphs
    #[arg(long, value_enum)]
    kind: KindArg,
    /// The file of graphs
    #[arg(long, required_unless_present = "cache")]
    out: Option<PathBuf>,
    /// Instead of --out: cache folder; files are named by a hash of their inputs
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    cache: Option<PathBuf>,
    /// Size limit of the cache folder, such as 2GiB; the least recently used files are removed
    /// [default: no limit]
    #[arg(long, value_name = "BYTES", requires = "cache", conflicts_with = "out")]
    limit: Option<ByteSize>,
    #[command(flatten)]
    options: KindOptions,
    /// Replace neighbours by as many random ones, from this seed: a control
    #[arg(long, value_name = "SEED")]
    rewire: Option<u64>,
    /// Storage type of edge weights and attributes
    #[arg(long, value_enum, default_value_t = FloatArg::F32)]
    edge_width: FloatArg,
    /// Storage type of node features
    #[arg(long, value_enum, default_value_t = FloatArg::F32)]
    feature_width: FloatArg,
    /// Storage type of indices
    #[arg(long, value_enum, default_value_t = IndexArg::U32)]
    index_width: IndexArg,
    /// Threads that build [default: all CPUs]
    #[arg(long)]
    threads: Option<std::num::NonZero<usize>>,
}

choice! {
    enum FloatArg => FloatWidth {
        F32 => F32,
        F16 => F16,
    }
}

choice! {
    enum IndexArg => IndexWidth {
        U32 => U32,
        U64 => U64,
    }
}

choice! {
    /// Kinds of graphs, with their inputs.
    enum KindArg => GraphKind {
        /// Shares, a file of bars each: one graph a day, by correlation of earlier log returns
        Correlation => Correlation,
        /// A CSV of feature rows: nearest by cosine
        Cosine => Cosine,
        /// A CSV of feature rows: nearest by distance
        Euclidean => Euclidean,
        /// A CSV of x, y and z: points within a radius
        Radius => Radius,
        /// A folder with a TU dataset
        Tu => Tu,
        /// A folder with a graph as edges.csv, features.csv or features_sparse.csv, and labels.csv
        /// or targets.csv
        EdgeList => EdgeList,
        /// Molecules in an SDF file
        Sdf => Sdf,
        /// Tensors as in PyTorch Geometric, in a safetensors file
        EdgeIndex => EdgeIndex,
    }
}

/// Options of all kinds; what an option is without being given is said with it.
#[derive(clap::Args)]
struct KindOptions {
    /// Returns in the look-back of a correlation [default: 60]
    #[arg(long, help_heading = "Correlation")]
    lookback: Option<usize>,
    /// Neighbours of a node (sources); also for cosine and euclidean [default: 10]
    #[arg(long, help_heading = "Correlation")]
    k: Option<usize>,
    /// Half-life in days of the weights of returns
    #[arg(long, help_heading = "Correlation", value_name = "DAYS")]
    half_life: Option<f64>,
    /// Subtract the mean return of all shares first
    #[arg(long, help_heading = "Correlation")]
    demean: bool,
    /// Returns in the look-back that a share needs to be a node [default: 40, or the look-back if
    /// that is less]
    #[arg(long, help_heading = "Correlation")]
    min_observations: Option<usize>,
    /// Neighbours kept despite --threshold and mutual symmetry [default: 0]
    #[arg(long, help_heading = "Correlation")]
    min_degree: Option<usize>,
    /// Rank neighbours by magnitude, including negative correlations
    #[arg(long, help_heading = "Correlation")]
    absolute: bool,
    /// Minimum correlation of a neighbour
    #[arg(long, help_heading = "Correlation", allow_hyphen_values = true)]
    threshold: Option<f64>,
    /// Treatment of reverse edges; also for cosine and euclidean [default: none]
    #[arg(long, help_heading = "Correlation", value_enum)]
    symmetry: Option<SymmetryArg>,
    /// Add self-loops; also for cosine, euclidean and radius
    #[arg(long, help_heading = "Correlation")]
    self_loops: bool,
    /// A CSV with a row a symbol; each further column becomes an edge attribute: smaller / larger
    /// for numbers, 1 if equal for texts
    #[arg(long, help_heading = "Correlation", value_name = "CSV")]
    similarities: Option<PathBuf>,
    /// Pattern of file names without extension: {} is the symbol, * anything else (DA-{}-T-*)
    #[arg(long, help_heading = "Correlation")]
    symbol_pattern: Option<SymbolPattern>,
    /// Treatment of defective rows and files, as in `ingest` [default: fail]
    #[arg(long, help_heading = "Correlation", value_enum)]
    on_error: Option<OnErrorArg>,
    /// The largest distance; of radius and sdf, whose edges are bonds without it
    #[arg(long, help_heading = "Other kinds", value_name = "DISTANCE")]
    radius: Option<f32>,
    /// Edges of a box that repeats in all directions, of radius: 10,10,10
    #[arg(long, help_heading = "Other kinds", value_name = "X,Y,Z")]
    periodic: Option<BoxEdges>,
    /// edge-list: divide the features of a node by their sum
    #[arg(long, help_heading = "Other kinds")]
    normalize_features: bool,
    /// sdf: a CSV of targets, one row a molecule
    #[arg(long, help_heading = "Other kinds", value_name = "CSV")]
    targets: Option<PathBuf>,
    /// A column of --targets, or a data item of the SDF file, that is a target; several with commas
    #[arg(long, help_heading = "Other kinds", value_name = "NAME", value_delimiter = ',')]
    target: Vec<String>,
    /// sdf: keep the positions of atoms as features
    #[arg(long, help_heading = "Other kinds")]
    positions: bool,
}

choice! {
    enum SymmetryArg => Symmetry {
        /// Edges stay directed
        None => None,
        /// Every edge gets its reverse
        Union => Union,
        /// Only edges present in both directions stay
        Mutual => Mutual,
    }
}

choice! {
    enum OnErrorArg => OnError {
        /// Stop at the first
        Fail => Fail,
        /// Exclude and name them
        Skip => Skip,
        /// Fix what can be fixed, exclude the rest
        Repair => Repair,
    }
}

impl BuildArgs {
    pub(super) fn build(&self) -> Result<CommandReport> {
        let request = BuildRequest {
            inputs: self.inputs.clone(),
            kind: self.kind.into(),
            destination: match (&self.out, &self.cache) {
                (Some(out), _) => Destination::File(out.clone()),
                (None, Some(folder)) => Destination::Cache { folder: folder.clone(), limit: self.limit },
                (None, None) => unreachable!("one of the two is required"),
            },
            options: self.options.options(),
            rewire: self.rewire,
            widths: self.widths(),
            threads: self.threads,
        };
        build(&request, &host())
    }

    fn widths(&self) -> Widths {
        Widths { indices: self.index_width.into(), edges: self.edge_width.into(), features: self.feature_width.into() }
    }
}

impl KindOptions {
    fn options(&self) -> Options {
        Options {
            lookback: self.lookback,
            k: self.k,
            half_life: self.half_life,
            demean: self.demean,
            min_observations: self.min_observations,
            min_degree: self.min_degree,
            absolute: self.absolute,
            threshold: self.threshold,
            symmetry: self.symmetry.map(Into::into),
            self_loops: self.self_loops,
            similarities: self.similarities.clone(),
            symbol_pattern: self.symbol_pattern.clone(),
            on_error: self.on_error.map(Into::into),
            radius: self.radius,
            periodic: self.periodic,
            normalize_features: self.normalize_features,
            targets: self.targets.clone(),
            target: self.target.clone(),
            positions: self.positions,
        }
    }
}
