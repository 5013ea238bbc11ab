#![forbid(unsafe_code)]

//! What rows of predictions are for.

use std::borrow::Cow;
use std::ops::Range;

use crate::graph::{GraphBatch, Readout, samples_of};
use crate::samples::Samples;
use crate::view::BatchView;

/// What a row of predictions is for.
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
    pub(crate) fn of(readout: Option<Readout>) -> Self {
        match readout {
            None => Level::Sample,
            Some(Readout::Node) => Level::Node,
            Some(_) => Level::Graph,
        }
    }

    /// That of rows for the samples of `batch`.
    pub(crate) fn of_rows(batch: &BatchView<'_>) -> Self {
        if batch.graphs.is_some() { Level::Node } else { Level::Sample }
    }

    /// The index of the sample, or the graph, of each row of a batch's predictions, whose own indices are the first of `unseen`.
    pub(crate) fn indices<'a>(
        self,
        samples: &dyn Samples,
        batch: &BatchView<'_>,
        unseen: &mut &'a [usize],
    ) -> Cow<'a, [usize]> {
        let (seen, rest) = unseen.split_at(batch.graphs.map_or(batch.len(), GraphBatch::len));
        *unseen = rest;
        match samples.graphs() {
            Some(graphs) if self == Level::Node => Cow::Owned(samples_of(graphs, seen)),
            _ => Cow::Borrowed(seen),
        }
    }

    /// The targets [R, K] of a batch's predictions: of a graph, those of its first node, which are those of all.
    pub(crate) fn targets<'a>(self, batch: &BatchView<'a>) -> Cow<'a, [f32]> {
        let (targets, width) = (batch.targets(), batch.shape().outputs);
        match batch.graphs {
            Some(graphs) if self == Level::Graph => {
                graphs.samples().flat_map(|nodes| &targets[nodes.start * width..][..width]).copied().collect()
            }
            _ => Cow::Borrowed(targets),
        }
    }

    /// The rows of each graph's predictions; none for samples that stand alone.
    pub(crate) fn graphs(self, batch: &BatchView<'_>) -> Vec<Range<usize>> {
        let graphs = batch.graphs.into_iter().flat_map(GraphBatch::samples);
        match self {
            Level::Graph => graphs.enumerate().map(|(graph, _)| graph..graph + 1).collect(),
            Level::Node | Level::Sample => graphs.collect(),
        }
    }
}
