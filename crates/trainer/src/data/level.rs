//! Level of rows of predictions.

use std::borrow::Cow;
use std::ops::Range;

use megabatch_nn::batch::BatchView;
use megabatch_nn::graph::{GraphBatch, GraphTargets, Graphs, samples_of};
use megabatch_nn::model::Readout;

use crate::data::sample_ranges::Remaining;
use crate::data::samples::Samples;
use crate::error::{Error, Result};

/// Level of a row of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A sample that stands alone.
    Sample,
    /// A sample that is a node of a graph.
    Node,
    /// A graph.
    Graph,
}

impl Level {
    pub(crate) fn from_readout(readout: Option<Readout>) -> Self {
        match readout {
            None => Level::Sample,
            Some(Readout::Node) => Level::Node,
            Some(_) => Level::Graph,
        }
    }

    /// Level of rows for the samples of `batch`.
    pub(crate) fn from_batch(batch: &BatchView<'_>) -> Self {
        if batch.graphs().is_some() { Level::Node } else { Level::Sample }
    }

    /// The index of the sample, or graph, of each row of a batch's predictions. The samples, or
    /// graphs, of the batch are the next of `unseen`.
    pub(crate) fn indices(
        self,
        samples: &dyn Samples,
        batch: &BatchView<'_>,
        unseen: &mut Remaining<'_>,
    ) -> Vec<usize> {
        let seen: Vec<usize> = unseen.take(batch.graphs().map_or(batch.len(), GraphBatch::len)).iter().collect();
        match samples.graphs() {
            Some(graphs) if self == Level::Node => samples_of(graphs, &seen),
            _ => seen,
        }
    }

    /// The targets [R, K] of a batch's predictions. All nodes of a graph have the same, so that a
    /// graph takes those of its first node.
    pub(crate) fn targets<'a>(self, batch: &BatchView<'a>) -> Cow<'a, [f32]> {
        let (targets, width) = (batch.targets(), batch.shape().outputs);
        match batch.graphs() {
            Some(graphs) if self == Level::Graph => {
                graphs.samples().flat_map(|nodes| &targets[nodes.start * width..][..width]).copied().collect()
            }
            _ => Cow::Borrowed(targets),
        }
    }

    /// The rows of each graph's predictions; none for samples that stand alone.
    pub(crate) fn graphs(self, batch: &BatchView<'_>) -> Vec<Range<usize>> {
        let graphs = batch.graphs().into_iter().flat_map(GraphBatch::samples);
        match self {
            Level::Graph => graphs.enumerate().map(|(graph, _)| graph..graph + 1).collect(),
            Level::Node | Level::Sample => graphs.collect(),
        }
    }
}

/// Refuses a readout of nodes if graphs have the targets, and of graphs if nodes have them.
pub(crate) fn check_readout_of(samples: &dyn Samples, readout: Option<Readout>) -> Result<()> {
    let targets = samples.graphs().and_then(Graphs::targets_of);
    let (readout, expected) = match (readout, targets) {
        (Some(Readout::Node), Some(GraphTargets::Graphs)) => {
            ("node", "mean, sum or max: each graph has one row of targets, and its nodes have none of their own")
        }
        (Some(Readout::Mean), Some(GraphTargets::Nodes)) => ("mean", OF_NODES),
        (Some(Readout::Sum), Some(GraphTargets::Nodes)) => ("sum", OF_NODES),
        (Some(Readout::Max), Some(GraphTargets::Nodes)) => ("max", OF_NODES),
        _ => return Ok(()),
    };
    Err(Error::ReadoutLevel { readout, expected })
}

const OF_NODES: &str = "node: each node has targets of its own, and graphs have none";
