//! Graphs of a file, with the edge features that attention reads.

use std::borrow::Cow;

use megabatch_graph_cache::{GraphFile, Result, Schema, StoredGraph};
use megabatch_nn::graph::GraphView;

use crate::config::{self, Config};

/// Edge features that attention reads: the weight, then the attributes.
#[derive(Clone, Copy, Debug)]
pub(super) enum EdgeFeatureSelection {
    Nothing,
    Everything,
}

impl EdgeFeatureSelection {
    /// As `config` says.
    pub(super) fn from_config(config: &Config) -> Self {
        if config.get(&config::model::GRAPH_EDGE_ATTRIBUTES) {
            EdgeFeatureSelection::Everything
        } else {
            EdgeFeatureSelection::Nothing
        }
    }

    /// A: how many numbers that is.
    pub(super) fn width(self, schema: &Schema) -> usize {
        match self {
            EdgeFeatureSelection::Nothing => 0,
            EdgeFeatureSelection::Everything => usize::from(schema.weighted) + schema.edge_attributes.len(),
        }
    }

    /// [E, A] of a graph; copied only where the file keeps it in two arrays, or in another width.
    pub(super) fn attributes<'a>(self, schema: &Schema, graph: &StoredGraph<'a>) -> Cow<'a, [f32]> {
        let (weights, attributes) = (graph.weights(), graph.edge_attributes());
        match (self.width(schema), schema.weighted) {
            (0, _) => Cow::Borrowed(&[]),
            (1, true) => weights.as_f32().map_or_else(|| Cow::Owned(weights.to_vec()), Cow::Borrowed),
            (_, false) => attributes.as_f32().map_or_else(|| Cow::Owned(attributes.to_vec()), Cow::Borrowed),
            (width, true) => {
                let (weights, attributes) = (weights.to_vec(), attributes.to_vec());
                let edges = weights.iter().zip(attributes.chunks_exact(width - 1));
                Cow::Owned(edges.flat_map(|(weight, attributes)| [&[*weight], attributes].concat()).collect())
            }
        }
    }
}

/// The graphs of a file, read where they lie.
pub(super) struct StoredEdges {
    seen: EdgeFeatureSelection,
    /// Edge features copied because they could not be used in place, by graph.
    copied: Vec<Option<Vec<f32>>>,
}

impl StoredEdges {
    /// Looks through all graphs of `file`.
    pub(super) fn new(file: &GraphFile, seen: EdgeFeatureSelection) -> Result<Self> {
        let copied = (0..file.len()).map(|graph| match seen.attributes(file.schema(), &file.graph(graph)?) {
            Cow::Borrowed(_) => Ok(None),
            Cow::Owned(attributes) => Ok(Some(attributes)),
        });
        Ok(StoredEdges { seen, copied: copied.collect::<Result<_>>()? })
    }

    /// Bytes of what is copied.
    pub(super) fn copied_bytes(&self) -> usize {
        self.copied.iter().flatten().map(|attributes| size_of_val(attributes.as_slice())).sum()
    }

    /// The edges of a graph of the file.
    pub(super) fn view<'a>(&'a self, file: &'a GraphFile, graph: usize) -> Result<GraphView<'a>> {
        let stored = file.graph(graph)?;
        let attributes = match &self.copied[graph] {
            Some(copied) => copied,
            None => match self.seen.attributes(file.schema(), &stored) {
                Cow::Borrowed(attributes) => attributes,
                Cow::Owned(_) => unreachable!("what is copied was when the file was looked through"),
            },
        };
        Ok(GraphView { csr: stored.csr(), csc: stored.csc(), attributes })
    }
}
