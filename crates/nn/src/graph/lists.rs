//! The edges of all graphs of a batch in lists, for what computes them together.

use bytemuck::{Pod, Zeroable};

use super::edges::{edges_to, place_attributes};
use crate::graph::GraphView;
use crate::model::ModelConfig;

/// In the place of a node: the place of an edge from a node to itself that a loop replaces.
pub const NO_EDGE: u32 = u32::MAX;

/// Edges and nodes of graphs one behind the other: N nodes, P places, as `edges_to` has them, of
/// the edges that nodes receive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchEdges {
    /// `[N + 1]`: the first place of each node that receives.
    pub starts: Vec<u32>,
    /// `[P]`: the node that gives, or [`NO_EDGE`].
    pub from: Vec<u32>,
    /// `[N + 1]`: the first edge of each node that gives, in the two lists that follow.
    pub src_starts: Vec<u32>,
    /// The place of each edge.
    pub places: Vec<u32>,
    /// The node that receives it.
    pub to: Vec<u32>,
    /// `[P, A]`.
    pub attributes: Vec<f32>,
    /// `[N]`: the graph of each node.
    pub graph_of: Vec<u32>,
    /// Starts of the graphs, and behind the last one the ends.
    pub graphs: Vec<GraphStart>,
}

/// Start of a graph in lists: `Graph` of graphs.cuh in nn-cuda.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct GraphStart {
    /// Its number in the source.
    pub index: u64,
    /// Its first node.
    pub node: u32,
    /// The first place of its edges.
    pub place: u32,
}

/// Start of a graph in lists of the edges of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListStart {
    /// Its first node.
    pub node: u32,
    /// The first place of its edges.
    pub place: u32,
    /// The first of its edges in [`BatchEdges::places`].
    pub edge: u32,
}

impl ListStart {
    /// The same graph's start in lists that follow others, which end at `ends`.
    #[must_use]
    pub fn behind(self, ends: ListStart) -> Self {
        ListStart { node: ends.node + self.node, place: ends.place + self.place, edge: ends.edge + self.edge }
    }
}

/// Edges that attention sees of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenEdges {
    /// True if every node attends to itself, see
    /// [`GraphConfig::self_loops`](crate::model::graph::GraphConfig::self_loops).
    pub self_loops: bool,
    /// A: all attributes that edges have, or none.
    pub attributes: usize,
}

impl SeenEdges {
    /// Edges that the attention of a model of `config` sees.
    pub fn for_config(config: &ModelConfig) -> Self {
        let self_loops = config.graph.unwrap_or_default().self_loops;
        SeenEdges { self_loops, attributes: config.graph_edge_attributes }
    }

    /// P of graphs of so many nodes and edges.
    pub fn places(self, nodes: usize, edges: usize) -> usize {
        if self.self_loops { nodes + edges } else { edges }
    }
}

impl BatchEdges {
    /// The lists of graphs with their numbers in the source.
    ///
    /// # Panics
    /// If a graph's arrays contradict each other, and if there are 2³² places.
    pub fn new<'a>(graphs: impl Iterator<Item = (usize, GraphView<'a>)>, seen: SeenEdges) -> Self {
        let mut lists = BatchEdges::default();
        for (index, graph) in graphs {
            lists.push(index, &graph, seen);
        }
        let places = u32::try_from(lists.from.len()).expect("places are counted by u32");
        lists.starts.push(places);
        lists.src_starts.push(lists.places.len() as u32);
        lists.graphs.push(GraphStart { index: 0, node: lists.graph_of.len() as u32, place: places });
        lists
    }

    /// The start of each graph, and behind the last one the ends.
    pub fn list_starts(&self) -> impl Iterator<Item = ListStart> {
        let edge = |node: u32| self.src_starts[node as usize];
        self.graphs.iter().map(move |&GraphStart { node, place, .. }| ListStart { node, place, edge: edge(node) })
    }

    /// Numbers nodes, places and edges of the lists from `start` on: those of other graphs are
    /// before them. The starts of the graphs stay.
    pub fn number_from(&mut self, start: ListStart) {
        let BatchEdges { starts, from, src_starts, places, to, .. } = self;
        let add = |list: &mut [u32], more: u32| list.iter_mut().for_each(|number| *number += more);
        add(starts, start.place);
        add(src_starts, start.edge);
        add(places, start.place);
        add(to, start.node);
        from.iter_mut().filter(|node| **node != NO_EDGE).for_each(|node| *node += start.node);
    }

    /// Adds a graph of nodes without edges, so that there are `nodes` nodes in all; none where
    /// there are as many already.
    pub fn pad(&mut self, nodes: usize) {
        let &end = self.graphs.last().expect("behind the last graph are the ends");
        if nodes <= end.node as usize {
            return;
        }
        self.starts.resize(nodes + 1, end.place);
        self.src_starts.resize(nodes + 1, self.places.len() as u32);
        self.graph_of.resize(nodes, self.graphs.len() as u32 - 1);
        self.graphs.push(GraphStart { node: nodes as u32, ..end });
    }

    fn push(&mut self, index: usize, graph: &GraphView<'_>, SeenEdges { self_loops, attributes }: SeenEdges) {
        let (nodes, node, place) = (graph.nodes(), self.graph_of.len(), self.from.len());
        let own_places = graph.edges() + if self_loops { nodes } else { 0 };
        self.graph_of.resize(node + nodes, self.graphs.len() as u32);
        self.graphs.push(GraphStart { index: index as u64, node: node as u32, place: place as u32 });
        self.from.resize(place + own_places, NO_EDGE);
        for i in 0..nodes {
            self.starts.push((place + graph.csr.edges_of(i).start + if self_loops { i } else { 0 }) as u32);
            for edge in edges_to(graph, self_loops, i) {
                assert!(edge.from < nodes, "an edge from node {} of {nodes}", edge.from);
                self.from[place + edge.place] = (node + edge.from) as u32;
            }
        }
        self.push_givers(graph, self_loops, node, place);
        let start = self.attributes.len();
        self.attributes.resize(start + own_places * attributes, 0.0);
        if attributes > 0 {
            place_attributes(graph, self_loops, attributes, &mut self.attributes[start..]);
        }
    }

    fn push_givers(&mut self, graph: &GraphView<'_>, self_loops: bool, node: usize, place: usize) {
        let (csc, nodes) = (graph.csc, graph.nodes());
        assert_eq!(csc.columns(), nodes, "columns of the same graph");
        for j in 0..nodes {
            self.src_starts.push(self.places.len() as u32);
            let node_entries = csc.offsets()[j] as usize..csc.offsets()[j + 1] as usize;
            for (&i, &edge) in csc.rows()[node_entries.clone()].iter().zip(&csc.edges()[node_entries]) {
                let (i, edge) = (i as usize, edge as usize);
                assert!(i < nodes && edge < graph.edges(), "edge {edge} to node {i} of {nodes}");
                if !(self_loops && i == j) {
                    self.places.push((place + edge + if self_loops { i } else { 0 }) as u32);
                    self.to.push((node + i) as u32);
                }
            }
            if self_loops {
                self.places.push((place + graph.csr.edges_of(j).end + j) as u32);
                self.to.push((node + j) as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use megabatch_segment::{Csc, Csr};

    use super::*;

    #[test]
    fn graphs_follow_one_another() {
        let (row_ptr, col) = ([0u32, 2, 2, 3], [0u32, 1, 1]);
        let csr = Csr::new(&row_ptr, &col, 3).unwrap();
        let transposed = csr.transposed().unwrap();
        let csc = Csc::new(&transposed.offsets, &transposed.indices, &transposed.edges, 3).unwrap();
        let graph = GraphView { csr, csc, attributes: &[9.0, 1.0, 2.0] };
        for (self_loops, starts, from, givers, places) in [
            (
                false,
                [0u32, 2, 2, 3, 5, 5, 6],
                vec![0u32, 1, 1, 3, 4, 4],
                [0u32, 1, 3, 3, 4, 6, 6],
                vec![0u32, 1, 2, 3, 4, 5],
            ),
            (
                true,
                [0, 3, 4, 6, 9, 10, 12],
                vec![NO_EDGE, 1, 0, 1, 1, 2, NO_EDGE, 4, 3, 4, 4, 5],
                [0, 1, 4, 5, 6, 9, 10],
                vec![2, 1, 4, 3, 5, 8, 7, 10, 9, 11],
            ),
        ] {
            let seen = SeenEdges { self_loops, attributes: 1 };
            let lists = BatchEdges::new([(7, graph), (2, graph)].into_iter(), seen);
            assert_eq!((&lists.starts[..], &lists.from), (&starts[..], &from));
            assert_eq!((&lists.src_starts[..], &lists.places), (&givers[..], &places));
            // Both lists have the same edges.
            for (j, pair) in givers.windows(2).enumerate() {
                for edge in pair[0] as usize..pair[1] as usize {
                    let (place, to) = (lists.places[edge], lists.to[edge] as usize);
                    assert!((starts[to]..starts[to + 1]).contains(&place) && from[place as usize] as usize == j);
                }
            }
            let places = from.len() as u32;
            let expected = [(7, 0, 0), (2, 3, places / 2), (0, 6, places)];
            let found: Vec<_> = lists.graphs.iter().map(|place| (place.index, place.node, place.place)).collect();
            assert_eq!((found, &lists.graph_of[..]), (expected.to_vec(), &[0, 0, 0, 1, 1, 1][..]));
        }
        // Lists of the second graph alone, numbered to follow the first.
        let seen = SeenEdges { self_loops: true, attributes: 1 };
        let both = BatchEdges::new([(7, graph), (2, graph)].into_iter(), seen);
        let starts: Vec<_> = both.list_starts().collect();
        let mut second = BatchEdges::new(std::iter::once((2, graph)), seen);
        assert_eq!(second.list_starts().map(|own| own.behind(starts[1])).collect::<Vec<_>>(), starts[1..]);
        second.number_from(starts[1]);
        let ListStart { node, place, edge } = starts[1];
        assert_eq!((node, place, edge), (3, 6, 5));
        assert_eq!(second.starts, both.starts[node as usize..]);
        assert_eq!(second.from, both.from[place as usize..]);
        assert_eq!(second.src_starts, both.src_starts[node as usize..]);
        assert_eq!((&second.places[..], &second.to[..]), (&both.places[edge as usize..], &both.to[edge as usize..]));
        // A graph of two nodes without edges behind both.
        let mut padded = both.clone();
        padded.pad(8);
        assert_eq!((&padded.starts[..7], &padded.starts[7..]), (&both.starts[..], &[12, 12][..]));
        assert_eq!((&padded.src_starts[..7], &padded.src_starts[7..]), (&both.src_starts[..], &[10, 10][..]));
        assert_eq!(padded.graph_of, [0, 0, 0, 1, 1, 1, 2, 2]);
        assert_eq!((&padded.graphs[..3], padded.graphs[3].node), (&both.graphs[..], 8));
        assert_eq!((padded.graphs[3].place, &padded.from, &padded.to), (12, &both.from, &both.to));
        let mut as_it_is = both.clone();
        as_it_is.pad(6);
        assert_eq!(as_it_is, both);
        // Given attributes by place, and the means of what nodes receive from others.
        let lists = BatchEdges::new(std::iter::once((7, graph)), SeenEdges { self_loops: true, attributes: 1 });
        assert_eq!(lists.attributes, [0.0, 1.0, 1.0, 0.0, 2.0, 2.0]);
    }
}
