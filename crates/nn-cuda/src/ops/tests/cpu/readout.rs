//! Readouts of graphs on the CPU.

use megabatch_nn::graph::GraphStart;
use megabatch_nn::model::Readout;

use super::ReadGraphs;

pub(super) fn read_graphs(inputs: ReadGraphs<'_>, nodes: &[f32], read: &mut [f32], arguments: &mut [u32]) {
    let width = inputs.width;
    let rows = read.chunks_exact_mut(width).zip(arguments.chunks_exact_mut(width));
    for (graph, (read, arguments)) in inputs.lists.edges.graphs.windows(2).zip(rows) {
        let (first, end) = (graph[0].node, graph[1].node);
        for (unit, (read, argument)) in read.iter_mut().zip(arguments).enumerate() {
            let value = |node: u32| nodes[node as usize * width + unit];
            (*read, *argument) = (value(first), first);
            for node in first + 1..end {
                match inputs.readout {
                    Readout::Max if exceeds(value(node), *read) => (*read, *argument) = (value(node), node),
                    Readout::Max => {}
                    Readout::Mean | Readout::Sum | Readout::Node => *read += value(node),
                }
            }
            *read *= share(inputs.readout, graph);
        }
    }
}

pub(super) fn backward(inputs: ReadGraphs<'_>, d_read: &[f32], arguments: &[u32], d_nodes: &mut [f32]) {
    let width = inputs.width;
    let rows = d_read.chunks_exact(width).zip(arguments.chunks_exact(width));
    for (graph, (d_read, arguments)) in inputs.lists.edges.graphs.windows(2).zip(rows) {
        for node in graph[0].node..graph[1].node {
            let d_node = &mut d_nodes[node as usize * width..][..width];
            for (d_node, (d, &argument)) in d_node.iter_mut().zip(d_read.iter().zip(arguments)) {
                let is_read = inputs.readout != Readout::Max || argument == node;
                *d_node = if is_read { d * share(inputs.readout, graph) } else { 0.0 };
            }
        }
    }
}

/// Factor of a node's numbers. `graph` is its start and the next one's.
fn share(readout: Readout, graph: &[GraphStart]) -> f32 {
    match readout {
        Readout::Mean => (1.0 / f64::from(graph[1].node - graph[0].node)) as f32,
        _ => 1.0,
    }
}

/// True if `value` takes the place of the maximum so far. NaN does, and keeps it.
fn exceeds(value: f32, most: f32) -> bool {
    value > most || (value.is_nan() && !most.is_nan())
}
