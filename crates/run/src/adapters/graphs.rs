//! Graphs that have features and targets of their own: molecules, citations.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use megabatch_chunk_io::{Shape, TimeframeShape};
use megabatch_gpu_core::{Buffer, Device};
use megabatch_graph_cache::{GraphFile, Schema, StoredGraph, TargetLevel};
use megabatch_nn::graph::{GraphTargets, GraphView, Graphs};
use megabatch_nn::model::SampleShape;
use megabatch_trainer::{Batch, SampleRanges, Samples, Split};

use super::data_schema::DataSchema;
use super::fold::{Folds, split_by_chance};
use super::samples::trainer_shape;
use super::stored::{EdgeFeatureSelection, StoredEdges};
use crate::config::{self, Config};
use crate::error::{Error, Result};

/// Keys of graphs that name their part.
const PARTS: [&str; 3] = ["train", "validation", "test"];

/// A file of graphs as the trainer reads it. A sample is a node, with a window of one row: its
/// features.
pub(crate) struct GraphSamples {
    path: PathBuf,
    file: GraphFile,
    file_shape: Shape,
    shape: SampleShape,
    /// The samples `0..`, of which each graph has a range.
    samples: Vec<usize>,
    /// [G + 1] offsets of the nodes of each graph among the samples.
    offsets: Vec<usize>,
    features: Buffer<f32>, // [samples, F]
    targets: Buffer<f32>,  // [samples, K]
    edges: StoredEdges,
    edge_attributes: usize,
    /// Most nodes and most edges of a graph.
    largest: (usize, usize),
    total_edges: usize,
    labelled: Vec<usize>, // [G]
}

impl GraphSamples {
    /// Opens the file of graphs at `path`.
    ///
    /// # Errors
    /// A data error for a damaged file; a usage failure where nodes have no features, or nothing
    /// has targets.
    pub(crate) fn open(path: &Path, config: &Config, device: &Device) -> Result<Self> {
        let file = GraphFile::open(path)?;
        let schema = file.schema();
        let (features, outputs) = (schema.node_features.len(), schema.targets.len());
        if features == 0 || outputs == 0 || schema.target_level == TargetLevel::None {
            return Err(Error::usage(format!(
                "{}: its graphs have {features} features a node and {outputs} targets, and training needs both; to train on bars with these \
                 graphs between instruments, give the bars as data and this file as model.graph",
                path.display()
            )));
        }
        require_nodes(&file)?;
        let seen = EdgeFeatureSelection::from_config(config);
        let (edges, edge_attributes) = (StoredEdges::new(&file, seen)?, seen.width(schema));
        let mut rows = Rows { offsets: vec![0], ..Rows::default() };
        for graph in 0..file.len() {
            rows.push(schema, &file.graph(graph)?);
        }
        let Rows { offsets, features: all_features, targets: all_targets, labelled } = rows;
        let scope = device.scope("data/graphs");
        let nodes = offsets[file.len()];
        let file_shape = Shape {
            samples: nodes,
            timeframes: vec![TimeframeShape { name: None, steps: 1, features }],
            horizons: outputs,
        };
        let sizes = || (0..file.len()).map(|graph| file.size(graph));
        Ok(GraphSamples {
            path: path.to_owned(),
            shape: trainer_shape(&file_shape),
            file_shape,
            samples: (0..nodes).collect(),
            offsets,
            features: Buffer::from_slice(&scope, &all_features)?,
            targets: Buffer::from_slice(&scope, &all_targets)?,
            edges,
            edge_attributes,
            largest: sizes().fold((0, 0), |most, size| (most.0.max(size.0), most.1.max(size.1))),
            total_edges: sizes().map(|(_, edges)| edges).sum(),
            labelled,
            file,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Dimensions of the nodes as samples.
    pub(crate) fn file_shape(&self) -> &Shape {
        &self.file_shape
    }

    /// True if whole graphs have the targets.
    pub(crate) fn targets_graphs(&self) -> bool {
        self.file.schema().target_level == TargetLevel::Graph
    }

    /// Reads a mapped file into memory, see [`GraphFile::hold`].
    pub(crate) fn hold(&mut self) -> megabatch_graph_cache::Result<()> {
        self.file.hold()
    }

    /// Bytes of the file, of the lists of its nodes, and of copied edge features.
    pub(crate) fn beside_bytes(&self) -> usize {
        let lists = self.samples.len() + self.offsets.len() + self.labelled.len();
        self.file.bytes() + lists * size_of::<usize>() + self.edges.copied_bytes()
    }

    /// True if the targets are class labels, one-hot: every row that is known has one 1, in one of
    /// two columns or more.
    pub(crate) fn targets_are_labels(&self) -> bool {
        let is_label =
            |row: &[f32]| row.iter().all(|&target| target == 0.0 || target == 1.0) && row.iter().sum::<f32>() == 1.0;
        let rows = self.targets.as_slice().chunks_exact(self.shape.outputs);
        let mut known = rows.filter(|row| !row.iter().any(|target| target.is_nan())).peekable();
        self.shape.outputs > 1 && known.peek().is_some() && known.all(is_label)
    }

    /// Names of the targets, in order.
    pub(crate) fn target_names(&self) -> &[String] {
        &self.file.schema().targets
    }

    /// Fingerprint of all that the file holds.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{:032x}", self.file.fingerprint())
    }

    /// The names of the features.
    pub(crate) fn meaning(&self) -> DataSchema {
        DataSchema::from_node_features(&self.file.schema().node_features)
    }

    /// Splits the graphs: by their keys, where these are `train`, `validation` and `test`; or else
    /// by chance, into folds or by the fractions that `config` has.
    ///
    /// # Errors
    /// A usage failure for a fold that there is not, or a part without graphs.
    pub(crate) fn split(&self, config: &Config) -> Result<Split> {
        if let Some(folds) = config.get(&config::data::WALK_FORWARD) {
            return Err(Error::usage(format!(
                "data.walk_forward={folds}: {} has no times to walk through; data.folds={folds} cuts graphs into folds by chance",
                self.path().display()
            )));
        }
        if let Some([train, validation, test]) = self.parts() {
            let [train, validation, test] = [train, validation, test].map(|graph| SampleRanges::from(graph..graph + 1));
            return Ok(Split { train, validation, test, ..Split::default() });
        }
        match config.get(&config::data::FOLDS) {
            // Of all folds together, the last.
            Some(folds) => {
                let fold = config.cross_validation_fold().unwrap_or(folds - 1);
                Folds { folds, fold }.split(&self.classes())
            }
            None => split_by_chance(self.file.len(), config.split()),
        }
    }

    /// The graphs whose keys say that their targets are for training, validation and test; `None`
    /// for other keys.
    fn parts(&self) -> Option<[usize; 3]> {
        let parts: Vec<usize> = PARTS.iter().filter_map(|part| self.file.find(part)).collect();
        parts.try_into().ok().filter(|_| self.file.len() == PARTS.len())
    }

    /// The rule of [`GraphSamples::split`] in a sentence.
    pub(super) fn split_rule(&self, config: &Config) -> String {
        match (self.parts(), config.get(&config::data::FOLDS)) {
            (Some(_), _) => "Split by the keys of the graphs: train, validation and test.".to_owned(),
            (None, Some(folds)) => {
                let test = match config.cross_validation_fold() {
                    Some(fold) => format!("fold {} is for the test", fold + 1),
                    None => "each is the test once".to_owned(),
                };
                format!("Split by chance into {folds} folds, each class dealt evenly; {test}.")
            }
            (None, None) => "Split by chance, by the fractions of data.split.".to_owned(),
        }
    }

    /// The class of each graph, by which folds are stratified: the largest of its targets. All have
    /// one class if nodes have the targets, or if there is one target.
    fn classes(&self) -> Vec<usize> {
        let outputs = self.shape.outputs;
        let class = |graph: usize| {
            let targets = &self.targets.as_slice()[self.offsets[graph] * outputs..][..outputs];
            (0..outputs).max_by(|&a, &b| targets[a].total_cmp(&targets[b])).unwrap_or(0)
        };
        (0..self.file.len()).map(|graph| if self.targets_graphs() { class(graph) } else { 0 }).collect()
    }
}

/// Refuses graphs without nodes.
pub(crate) fn require_nodes(file: &GraphFile) -> Result<()> {
    let mut empty = (0..file.len()).filter(|&graph| file.size(graph).0 == 0);
    let Some(first) = empty.next() else { return Ok(()) };
    let (path, key, count) = (file.path().display(), file.key(first), 1 + empty.count());
    let message = format!(
        "{path}: graph {key} has no nodes, as {count} of the {} graphs; leave those out, and build the file anew",
        file.len()
    );
    Err(Error::data(message).with_field("object", key).with_field("expected", "a node at least"))
}

/// Nodes as samples, graph after graph.
#[derive(Default)]
struct Rows {
    offsets: Vec<usize>,
    features: Vec<f32>,
    targets: Vec<f32>,
    labelled: Vec<usize>,
}

impl Rows {
    fn push(&mut self, schema: &Schema, graph: &StoredGraph<'_>) {
        let outputs = schema.targets.len();
        let known = |targets: &&[f32]| targets.iter().all(|target| !target.is_nan());
        self.features.extend_from_slice(&graph.node_features().to_vec());
        match schema.target_level {
            // The targets of a graph are those of each of its nodes.
            TargetLevel::Graph => {
                self.labelled.push(usize::from(known(&graph.targets())));
                (0..graph.len()).for_each(|_| self.targets.extend_from_slice(graph.targets()));
            }
            _ => {
                self.labelled.push(graph.targets().chunks_exact(outputs).filter(known).count());
                self.targets.extend_from_slice(graph.targets());
            }
        }
        self.offsets.push(self.offsets[self.offsets.len() - 1] + graph.len());
    }
}

impl Samples for GraphSamples {
    fn shape(&self) -> &SampleShape {
        &self.shape
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let (mut features, targets) = batch.slices_mut();
        gather_rows(self.features.as_slice(), samples, features[0]);
        gather_rows(self.targets.as_slice(), samples, targets);
        Ok(())
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }

    fn targets(&self) -> Option<&[f32]> {
        Some(self.targets.as_slice())
    }
}

fn gather_rows(rows: &[f32], samples: &[usize], out: &mut [f32]) {
    let Some(width) = out.len().checked_div(samples.len()) else { return };
    for (&sample, out) in samples.iter().zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&rows[sample * width..][..width]);
    }
}

impl Graphs for GraphSamples {
    fn len(&self) -> usize {
        self.file.len()
    }

    fn targets_of(&self) -> Option<GraphTargets> {
        Some(if self.targets_graphs() { GraphTargets::Graphs } else { GraphTargets::Nodes })
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.samples[self.offsets[graph]..self.offsets[graph + 1]]
    }

    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        Ok(self.edges.view(&self.file, graph)?)
    }

    fn edge_attributes(&self) -> usize {
        self.edge_attributes
    }

    fn largest(&self) -> (usize, usize) {
        self.largest
    }

    fn edges_max(&self, graph: usize) -> usize {
        self.file.size(graph).1
    }

    fn total_edges(&self) -> usize {
        self.total_edges
    }

    fn labelled(&self, graph: usize) -> usize {
        self.labelled[graph]
    }
}
