#![forbid(unsafe_code)]

//! The edges that kernels walk: a graph's, checked once and with its self-loops in place.

use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::GraphView;

/// Edges of some nodes that follow one another, by one of their ends: those of the `i`-th are
/// `starts[i]..starts[i + 1]`, counted from the first edge of all, and their other ends are in
/// `ends`.
///
/// Only this file makes one, and it makes sure that starts do not decrease and lie within `ends`,
/// and ends below the number of the graph's nodes: kernels rely on that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'a> {
    starts: &'a [u32],
    ends: &'a [u32],
    nodes_of_graph: usize,
}

impl<'a> Walk<'a> {
    /// Nodes whose edges are walked.
    pub(crate) fn nodes(self) -> usize {
        self.starts.len() - 1
    }

    /// N: edges end below it.
    pub(crate) fn nodes_of_graph(self) -> usize {
        self.nodes_of_graph
    }

    /// Edges of these nodes.
    pub(crate) fn edges(self) -> usize {
        self.ends.len()
    }

    /// Edges of each node, counted from the first of all.
    #[inline(always)]
    pub(crate) fn edges_of_each(self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let first = self.starts[0];
        self.starts.windows(2).map(move |bounds| (bounds[0] - first) as usize..(bounds[1] - first) as usize)
    }

    /// The other ends of all edges.
    pub(crate) fn ends(self) -> &'a [u32] {
        self.ends
    }

    /// The edges of `nodes`, counted from the first of the walk.
    pub(crate) fn edges_of(self, nodes: &Range<usize>) -> Range<usize> {
        (self.starts[nodes.start] - self.starts[0]) as usize..(self.starts[nodes.end] - self.starts[0]) as usize
    }

    /// The walk over `nodes` of these.
    pub(crate) fn part(self, nodes: &Range<usize>) -> Self {
        Walk { starts: &self.starts[nodes.start..=nodes.end], ends: &self.ends[self.edges_of(nodes)], ..self }
    }

    /// The nodes in `count` parts of about as many edges; fewer parts if there are fewer nodes.
    pub(crate) fn even_parts(self, count: usize) -> Vec<Range<usize>> {
        let bound = |part: usize| {
            let edge = self.starts[0] as usize + self.edges() * part / count;
            self.starts[..self.nodes()].partition_point(|&start| (start as usize) < edge)
        };
        let bounds = (0..count).map(bound).chain([self.nodes()]).collect::<Vec<_>>();
        bounds.windows(2).map(|bounds| bounds[0]..bounds[1]).filter(|nodes| !nodes.is_empty()).collect()
    }
}

/// A graph's edges by the node that receives and by the node that gives, with a loop for each node
/// if it is asked for.
#[derive(Debug)]
pub(crate) struct EdgeLists {
    nodes: usize,
    rows: Side,
    columns: Side,
    /// The place among `rows` of each edge of `columns`.
    places: Buffer<u32>,
    /// Places of edges from a node to itself that a loop replaces: their coefficients are zero.
    gaps: Buffer<u32>,
    gap_count: usize,
}

#[derive(Debug)]
struct Side {
    starts: Buffer<u32>, // [N + 1]
    ends: Buffer<u32>,   // [P]
    len: usize,
}

impl Side {
    fn new(scope: &Scope, nodes: usize, edges: usize) -> Result<Self> {
        Ok(Side { starts: Buffer::zeros(scope, nodes + 1)?, ends: Buffer::zeros(scope, nodes + edges)?, len: 0 })
    }

    fn walk(&self, nodes: usize) -> Walk<'_> {
        let (starts, ends) = (&self.starts.as_slice()[..=nodes], &self.ends.as_slice()[..self.len]);
        Walk { starts, ends, nodes_of_graph: nodes }
    }
}

impl EdgeLists {
    /// Buffers for graphs of up to `nodes` and `edges`, booked on `scope`.
    pub(crate) fn new(scope: &Scope, nodes: usize, edges: usize) -> Result<Self> {
        let limit = u32::MAX as usize;
        assert!(nodes.checked_add(edges).is_some_and(|places| places <= limit), "edges are counted by u32");
        Ok(EdgeLists {
            nodes: 0,
            rows: Side::new(scope, nodes, edges)?,
            columns: Side::new(scope, nodes, edges)?,
            places: Buffer::zeros(scope, nodes + edges)?,
            gaps: Buffer::zeros(scope, edges)?,
            gap_count: 0,
        })
    }

    /// Numbers of four bytes in each buffer, in the order of the fields.
    pub(crate) fn lens(nodes: usize, edges: usize) -> [usize; 6] {
        let (starts, ends) = (nodes + 1, nodes + edges);
        [starts, ends, starts, ends, ends, edges]
    }

    /// Takes the edges of `graph`.
    ///
    /// # Panics
    /// If there is no room for them, or the graph's arrays contradict each other.
    pub(crate) fn fill(&mut self, graph: &GraphView<'_>, self_loops: bool) {
        self.nodes = graph.nodes();
        self.fill_rows(graph, self_loops);
        self.fill_columns(graph, self_loops);
    }

    fn fill_rows(&mut self, graph: &GraphView<'_>, self_loops: bool) {
        let (starts, ends) = (self.rows.starts.as_mut_slice(), self.rows.ends.as_mut_slice());
        let mut at = 0;
        self.gap_count = 0;
        for (node, start) in starts[..self.nodes].iter_mut().enumerate() {
            *start = at as u32;
            let columns = graph.csr.columns_of(node);
            ends[at..at + columns.len()].copy_from_slice(columns);
            for (place, &column) in (at..).zip(columns) {
                assert!((column as usize) < self.nodes, "an edge from node {column} of {}", self.nodes);
                if self_loops && column as usize == node {
                    self.gaps.as_mut_slice()[self.gap_count] = place as u32;
                    self.gap_count += 1;
                }
            }
            at += columns.len();
            if self_loops {
                ends[at] = node as u32;
                at += 1;
            }
        }
        starts[self.nodes] = at as u32;
        self.rows.len = at;
    }

    fn fill_columns(&mut self, graph: &GraphView<'_>, self_loops: bool) {
        let (csc, row_starts) = (graph.csc, self.rows.starts.as_slice());
        let (starts, ends) = (self.columns.starts.as_mut_slice(), self.columns.ends.as_mut_slice());
        let places = self.places.as_mut_slice();
        let mut at = 0;
        assert_eq!(csc.columns(), self.nodes, "columns of the same graph");
        for node in 0..self.nodes {
            starts[node] = at as u32;
            let node_entries = csc.offsets()[node] as usize..csc.offsets()[node + 1] as usize;
            for (&row, &edge) in csc.rows()[node_entries.clone()].iter().zip(&csc.edges()[node_entries]) {
                if self_loops && row as usize == node {
                    continue;
                }
                let place = edge as usize + if self_loops { row as usize } else { 0 };
                assert!((row as usize) < self.nodes && place < self.rows.len, "edge {edge} to node {row}");
                (ends[at], places[at]) = (row, place as u32);
                at += 1;
            }
            if self_loops {
                (ends[at], places[at]) = (node as u32, row_starts[node + 1] - 1);
                at += 1;
            }
        }
        starts[self.nodes] = at as u32;
        self.columns.len = at;
    }

    /// The edges by the node that receives. Where each stands is its place.
    pub(crate) fn rows(&self) -> Walk<'_> {
        self.rows.walk(self.nodes)
    }

    /// The edges by the node that gives.
    pub(crate) fn columns(&self) -> Walk<'_> {
        self.columns.walk(self.nodes)
    }

    /// The place of each edge of [`EdgeLists::columns`].
    pub(crate) fn places(&self) -> &[u32] {
        &self.places.as_slice()[..self.columns.len]
    }

    /// The places that no edge has.
    pub(crate) fn gaps(&self) -> &[u32] {
        &self.gaps.as_slice()[..self.gap_count]
    }
}
