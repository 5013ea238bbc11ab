//! The edges that a layer attends over: those of the graph, or those between different nodes and
//! one from each node to itself.

use crate::graph::GraphView;

/// Origin of an edge's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This row of the graph's.
    Given(usize),
    /// Made for its node: the mean of the attributes of the other edges that the node receives.
    Loop,
}

/// An edge to some node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Place of the edge's values, below [`places`].
    pub place: usize,
    /// The node that it comes from.
    pub from: usize,
    pub origin: Origin,
}

/// Places for what belongs to an edge: with self-loops, edge `e` to node `i` has place `e + i`, and
/// after each node's edges comes its loop.
pub fn places(nodes: usize, edges: usize) -> usize {
    nodes + edges
}

/// The edges that node `node` receives, in the order of their sums.
pub(crate) fn edges_to<'a>(
    graph: &GraphView<'a>,
    self_loops: bool,
    node: usize,
) -> impl Iterator<Item = Edge> + use<'a> {
    let (csr, shift) = (graph.csr, if self_loops { node } else { 0 });
    let given = csr.edges_of(node).map(move |edge| Edge {
        place: edge + shift,
        from: csr.col()[edge] as usize,
        origin: Origin::Given(edge),
    });
    let own = Edge { place: csr.edges_of(node).end + node, from: node, origin: Origin::Loop };
    given.filter(move |edge| !(self_loops && edge.from == node)).chain(self_loops.then_some(own))
}

/// The attributes of edges and loops by place, [P, A] with A = `width`.
pub fn place_attributes(graph: &GraphView<'_>, self_loops: bool, width: usize, to: &mut [f32]) {
    let mut mean = 0..0;
    for node in 0..graph.nodes() {
        for edge in edges_to(graph, self_loops, node) {
            match edge.origin {
                Origin::Given(row) => {
                    let attributes = &graph.attributes[row * width..(row + 1) * width];
                    to[edge.place * width..][..width].copy_from_slice(attributes);
                }
                Origin::Loop => mean = edge.place * width..(edge.place + 1) * width,
            }
        }
        if self_loops {
            mean_of_received(graph, node, width, &mut to[mean.clone()]);
        }
    }
}

/// The mean of the attributes of the edges that `node` receives from others; zero where there is
/// none.
fn mean_of_received(graph: &GraphView<'_>, node: usize, width: usize, mean: &mut [f32]) {
    mean.fill(0.0);
    let mut count = 0.0;
    for edge in edges_to(graph, true, node) {
        if let Origin::Given(row) = edge.origin {
            let attributes = &graph.attributes[row * width..(row + 1) * width];
            mean.iter_mut().zip(attributes).for_each(|(sum, a)| *sum += a);
            count += 1.0;
        }
    }
    mean.iter_mut().for_each(|sum| *sum /= f32::max(count, 1.0));
}

#[cfg(test)]
mod tests {
    use megabatch_segment::{Csc, Csr};

    use super::*;

    #[test]
    fn a_loop_is_added_to_each_node_and_those_given_are_left_out() {
        let (row_ptr, col) = ([0u32, 3, 3, 5], [0u32, 1, 2, 1, 2]);
        let csr = Csr::new(&row_ptr, &col, 3).unwrap();
        let transposed = csr.transposed().unwrap();
        let csc = Csc::new(&transposed.offsets, &transposed.indices, &transposed.edges, 3).unwrap();
        let graph = GraphView { csr, csc, attributes: &[] };
        let edges = |self_loops: bool, node| -> Vec<_> {
            edges_to(&graph, self_loops, node).map(|Edge { place, from, origin }| (place, from, origin)).collect()
        };
        use Origin::{Given, Loop};
        assert_eq!(edges(true, 0), [(1, 1, Given(1)), (2, 2, Given(2)), (3, 0, Loop)]);
        assert_eq!(edges(true, 1), [(4, 1, Loop)]);
        assert_eq!(edges(true, 2), [(5, 1, Given(3)), (7, 2, Loop)]);
        assert_eq!(edges(false, 0), [(0, 0, Given(0)), (1, 1, Given(1)), (2, 2, Given(2))]);
        assert_eq!(edges(false, 1), []);
        assert_eq!(places(3, 5), 8);
    }
}
