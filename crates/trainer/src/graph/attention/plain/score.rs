#![forbid(unsafe_code)]

//! The score that a node gives an edge, and its gradients.

use std::ops::Range;

use super::memory::LayerMemory;
use crate::graph::GraphView;
use crate::graph::attention::edges::{Edge, Origin};
use crate::graph::attention::layer::{LayerSizes, Scoring};
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;

/// Inputs of the scores of a layer.
#[derive(Clone, Copy)]
pub(super) struct Scores<'a, S> {
    pub(super) sizes: LayerSizes,
    pub(super) slope: S,
    /// GAT's att_src, att_dst and att_edge, or GATv2's att alone; [H · C] or nothing each.
    pub(super) attention: [&'a [S]; 3],
    /// lin_edge.weight [H · C, A].
    pub(super) edge_weight: &'a [S],
    pub(super) from: &'a [S], // [N, H · C]
    /// Empty for GAT.
    pub(super) to: &'a [S], // [N, H · C]
    pub(super) loops: &'a [S], // [N, A]
}

/// Gradients of the scores' inputs, each shaped as its input.
pub(super) struct ScoreGradients<'a, S> {
    pub(super) attention: [&'a mut [S]; 3],
    pub(super) edge_weight: &'a mut [S],
    pub(super) from: &'a mut [S],
    pub(super) to: &'a mut [S],
}

impl<'a, S: Scalar> Scores<'a, S> {
    pub(super) fn new(
        scoring: &Scoring,
        edge_weight: Option<crate::model::tensor::Slot>,
        sizes: LayerSizes,
        slope: f64,
        parameters: &'a TensorSet<S>,
        memory: (&'a [S], &'a [S], &'a [S]),
    ) -> Self {
        let attention = match *scoring {
            Scoring::Gat { source, target, edge_attention, .. } => {
                let edge = edge_attention.map_or(&[][..], |slot| parameters.slot(slot));
                [parameters.slot(source), parameters.slot(target), edge]
            }
            Scoring::GatV2 { attention, .. } => [parameters.slot(attention), &[], &[]],
        };
        let edge_weight = edge_weight.map_or(&[][..], |slot| parameters.slot(slot));
        let (from, to, loops) = memory;
        Scores { sizes, slope: S::from_f64(slope), attention, edge_weight, from, to, loops }
    }

    /// The attributes of an edge to `node`.
    fn attributes(&self, graph: &'a GraphView<'_>, node: usize, edge: Edge) -> impl Iterator<Item = S> {
        let width = self.sizes.attributes;
        let (given, own): (&[f32], &[S]) = match edge.origin {
            Origin::Given(row) => (&graph.attributes[row * width..(row + 1) * width], &[]),
            Origin::Loop => (&[], &self.loops[node * width..(node + 1) * width]),
        };
        given.iter().map(|&x| S::from_f64(f64::from(x))).chain(own.iter().copied())
    }

    /// W_e a_e.
    pub(super) fn project(&self, graph: &GraphView<'_>, at: (usize, Edge), to: &mut [S]) {
        let width = self.sizes.attributes;
        for (unit, to) in to.iter_mut().enumerate() {
            let row = self.edge_weight.get(unit * width..(unit + 1) * width).unwrap_or(&[]);
            *to = row.iter().zip(self.attributes(graph, at.0, at.1)).fold(S::ZERO, |sum, (&w, a)| sum + w * a);
        }
    }

    fn columns(&self, head: usize) -> Range<usize> {
        head * self.sizes.units..(head + 1) * self.sizes.units
    }

    fn leaky(&self, x: S) -> S {
        if x > S::ZERO { x } else { self.slope * x }
    }

    fn leaky_slope(&self, x: S) -> S {
        if x > S::ZERO { S::ONE } else { self.slope }
    }

    /// Argument of GAT's LeakyReLU.
    fn linear(&self, i: usize, j: usize, projected: &[S], head: usize) -> S {
        let [source, target, edge] = self.attention;
        let row = |node: usize, c: usize| self.from[node * self.sizes.projected() + c];
        self.columns(head).fold(S::ZERO, |sum, c| {
            let of_edge = edge.get(c).map_or(S::ZERO, |&weight| weight * projected[c]);
            sum + source[c] * row(j, c) + target[c] * row(i, c) + of_edge
        })
    }

    /// Argument of GATv2's LeakyReLU.
    fn joined(&self, i: usize, j: usize, projected: &[S], c: usize) -> S {
        let width = self.sizes.projected();
        self.from[j * width + c] + self.to[i * width + c] + projected[c]
    }

    /// The score that node `i` gives the edge from `j`, which `projected` is of.
    pub(super) fn score(&self, i: usize, j: usize, projected: &[S], head: usize) -> S {
        if self.to.is_empty() {
            return self.leaky(self.linear(i, j, projected, head));
        }
        let weight = self.attention[0];
        self.columns(head).fold(S::ZERO, |sum, c| sum + weight[c] * self.leaky(self.joined(i, j, projected, c)))
    }

    /// Adds what the gradient `d_score` of a score gives to everything that it depends on.
    pub(super) fn backward(
        &self,
        graph: &GraphView<'_>,
        edge: Edge,
        i: usize,
        head: usize,
        projected: &[S],
        d_score: S,
        to: &mut ScoreGradients<'_, S>,
    ) {
        let (j, width, attributes) = (edge.from, self.sizes.projected(), self.sizes.attributes);
        let mut add_edge = |c: usize, d: S| {
            let row = to.edge_weight[c * attributes..(c + 1) * attributes].iter_mut();
            row.zip(self.attributes(graph, i, edge)).for_each(|(sum, a)| *sum += d * a);
        };
        if self.to.is_empty() {
            let d = d_score * self.leaky_slope(self.linear(i, j, projected, head));
            for c in self.columns(head) {
                to.attention[0][c] += d * self.from[j * width + c];
                to.attention[1][c] += d * self.from[i * width + c];
                to.from[j * width + c] += d * self.attention[0][c];
                to.from[i * width + c] += d * self.attention[1][c];
                if attributes > 0 {
                    to.attention[2][c] += d * projected[c];
                    add_edge(c, d * self.attention[2][c]);
                }
            }
            return;
        }
        for c in self.columns(head) {
            let z = self.joined(i, j, projected, c);
            let d = d_score * self.attention[0][c] * self.leaky_slope(z);
            to.attention[0][c] += d_score * self.leaky(z);
            to.from[j * width + c] += d;
            to.to[i * width + c] += d;
            add_edge(c, d);
        }
    }
}

/// The memory that scores read.
pub(super) fn scored<S: Scalar>(memory: &LayerMemory<S>) -> (&[S], &[S], &[S]) {
    (memory.from.as_slice(), memory.to.as_slice(), memory.loops.as_slice())
}
