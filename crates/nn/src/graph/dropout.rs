use megabatch_order::random::{Stream, bits};

use crate::model::Mask;

/// Dropout in one graph at one optimizer step; the rates are those of
/// [`GraphConfig`](crate::model::graph::GraphConfig).
///
/// A number of a layer's input is dropped or not as a pure function of (seed, step, graph, layer,
/// node, unit), an attention coefficient as one of (seed, step, graph, layer, head, place of the
/// edge): see [`Mask::factor`]. How graphs are spread over batches and threads does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphDropout {
    key: u64,
    graph: usize,
}

impl GraphDropout {
    /// The dropout of the graph `graph` at optimizer step `step`, counted from 0. Any number that
    /// the graph keeps tells it from others.
    pub fn for_step(seed: u64, step: u64, graph: usize) -> Self {
        GraphDropout { key: bits(Stream { seed, name: "graph dropout" }, step), graph }
    }

    /// Dropout of the input of layer `layer`, if any: ask it for (node, unit) of the graph.
    pub fn input(self, layer: usize, rate: f32) -> Option<GraphMask> {
        self.mask("input", layer, rate)
    }

    /// Dropout of the coefficients of layer `layer`, if any: ask it for (head, place) of the graph.
    pub fn attention(self, layer: usize, rate: f32) -> Option<GraphMask> {
        self.mask("attention", layer, rate)
    }

    fn mask(self, name: &str, layer: usize, rate: f32) -> Option<GraphMask> {
        let key = bits(Stream { seed: self.key, name }, layer as u64);
        (rate > 0.0).then(|| GraphMask { mask: Mask::new(key, rate), graph: self.graph })
    }
}

/// A mask of numbers of one graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphMask {
    /// Mask of all graphs.
    pub mask: Mask,
    /// The graph's number in its source.
    pub graph: usize,
}
