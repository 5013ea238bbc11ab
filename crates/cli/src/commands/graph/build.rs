//! `megabatch graph build`: arguments of graphs of every kind.

use std::path::PathBuf;

use clap::ValueEnum;
use megabatch_run::graph::{
    BoxEdges, BuildRequest, FloatWidth, GraphKind, IndexWidth, Options, Place, Symmetry, Widths, build,
};
use megabatch_run::ingest::OnError;
use megabatch_run::text::ByteSize;
use megabatch_run::{Findings, Result};

use crate::host::host;

/// Build graphs into a file, unless it holds them already
///
/// The file knows what it was built from, by what and how. Where none of it has changed, nothing is
/// done; where something has, the answer says what, and the file is replaced. Building that was
/// interrupted goes on where it stopped.
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
    /// Files or folders, as the kind says
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// What the graphs are built from, and how
    #[arg(long, value_enum)]
    kind: KindArg,
    /// The file of graphs
    #[arg(long, required_unless_present = "cache")]
    out: Option<PathBuf>,
    /// Instead of --out: a folder that has files of any number of builds, each named by a hash of
    /// what it is of; the answer says which
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    cache: Option<PathBuf>,
    /// What the files of the folder may take together, such as 2GiB: those go whose use is longest
    /// ago [default: no limit]
    #[arg(long, value_name = "BYTES", requires = "cache", conflicts_with = "out")]
    limit: Option<ByteSize>,
    #[command(flatten)]
    options: KindOptions,
    /// Keep how many neighbours a node has and draw them by chance, from this seed: what the graphs
    /// have to be better than
    #[arg(long, value_name = "SEED")]
    rewire: Option<u64>,
    /// What weights and attributes of edges are stored in
    #[arg(long, value_enum, default_value_t = FloatArg::F32)]
    edge_width: FloatArg,
    /// What features of nodes are stored in
    #[arg(long, value_enum, default_value_t = FloatArg::F32)]
    feature_width: FloatArg,
    /// What indices are stored in
    #[arg(long, value_enum, default_value_t = IndexArg::U32)]
    index_width: IndexArg,
    /// Threads that build [default: as many as there are CPUs]
    #[arg(long)]
    threads: Option<std::num::NonZero<usize>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FloatArg {
    F32,
    F16,
}

#[derive(Clone, Copy, ValueEnum)]
enum IndexArg {
    U32,
    U64,
}

/// Kinds of graphs, with their inputs.
#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
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

/// Options of all kinds; what an option is without being given is said with it.
#[derive(clap::Args)]
struct KindOptions {
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
    similarities: Option<PathBuf>,
    /// What happens to rows and files that cannot be used, as in `ingest` [default: fail]
    #[arg(long, help_heading = "Correlation", value_enum)]
    on_error: Option<OnErrorArg>,
    /// The largest distance; of radius and sdf, whose edges are bonds without it
    #[arg(long, help_heading = "Other kinds", value_name = "DISTANCE")]
    radius: Option<f32>,
    /// Edges of a box that repeats in all directions, of radius: 10,10,10
    #[arg(long, help_heading = "Other kinds", value_name = "X,Y,Z")]
    periodic: Option<BoxEdges>,
    /// Divide the features of a node by their sum, of edge-list
    #[arg(long, help_heading = "Other kinds")]
    normalize_features: bool,
    /// A CSV of targets, a row a molecule, of sdf
    #[arg(long, help_heading = "Other kinds", value_name = "CSV")]
    targets: Option<PathBuf>,
    /// A column of --targets, or a data item of the SDF file, that is a target; several with commas
    #[arg(long, help_heading = "Other kinds", value_name = "NAME", value_delimiter = ',')]
    target: Vec<String>,
    /// Keep the positions of atoms as features, of sdf
    #[arg(long, help_heading = "Other kinds")]
    positions: bool,
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

impl BuildArgs {
    pub(super) fn build(&self) -> Result<Findings> {
        let request = BuildRequest {
            inputs: self.inputs.clone(),
            kind: self.kind.into(),
            place: match (&self.out, &self.cache) {
                (Some(out), _) => Place::File(out.clone()),
                (None, Some(folder)) => Place::Cache { folder: folder.clone(), limit: self.limit },
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
        let float = |arg| match arg {
            FloatArg::F32 => FloatWidth::F32,
            FloatArg::F16 => FloatWidth::F16,
        };
        let indices = match self.index_width {
            IndexArg::U32 => IndexWidth::U32,
            IndexArg::U64 => IndexWidth::U64,
        };
        Widths { indices, edges: float(self.edge_width), features: float(self.feature_width) }
    }
}

impl From<KindArg> for GraphKind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Correlation => GraphKind::Correlation,
            KindArg::Cosine => GraphKind::Cosine,
            KindArg::Euclidean => GraphKind::Euclidean,
            KindArg::Radius => GraphKind::Radius,
            KindArg::Tu => GraphKind::Tu,
            KindArg::EdgeList => GraphKind::EdgeList,
            KindArg::Sdf => GraphKind::Sdf,
            KindArg::EdgeIndex => GraphKind::EdgeIndex,
        }
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
            symmetry: self.symmetry.map(|symmetry| match symmetry {
                SymmetryArg::None => Symmetry::None,
                SymmetryArg::Union => Symmetry::Union,
                SymmetryArg::Mutual => Symmetry::Mutual,
            }),
            self_loops: self.self_loops,
            similarities: self.similarities.clone(),
            on_error: self.on_error.map(|on_error| match on_error {
                OnErrorArg::Fail => OnError::Fail,
                OnErrorArg::Skip => OnError::Skip,
                OnErrorArg::Repair => OnError::Repair,
            }),
            radius: self.radius,
            periodic: self.periodic,
            normalize_features: self.normalize_features,
            targets: self.targets.clone(),
            target: self.target.clone(),
            positions: self.positions,
        }
    }
}
