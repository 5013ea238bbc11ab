//! Losses of whole graphs on the CPU.

use std::ops::Range;

use megabatch_nn::loss::{Loss, labelled_rows};

use super::GraphRows;
use crate::ops::loss::LossScaling;

impl GraphRows<'_> {
    /// The rows of each graph.
    fn graph_ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let by_node = self.by_node;
        let pairs = self.lists.edges.graphs.windows(2).enumerate();
        pairs.map(move |(g, pair)| if by_node { pair[0].node as usize..pair[1].node as usize } else { g..g + 1 })
    }
}

/// The sum of the losses, and the number of its terms.
pub(super) fn graph_loss(
    loss: Loss,
    graph_rows: GraphRows<'_>,
    LossScaling { terms, scale }: LossScaling<'_>,
    d_outputs: &mut [f32],
) -> [f64; 2] {
    let (count, scale, mut totals) = (terms.as_slice()[0].count as usize, scale.as_slice()[0], [0.0; 2]);
    for rows in graph_rows.graph_ranges() {
        let values = rows.start * graph_rows.width..rows.end * graph_rows.width;
        let (y, targets) =
            (&graph_rows.outputs.as_slice()[values.clone()], &graph_rows.targets.as_slice()[values.clone()]);
        let d = &mut d_outputs[values];
        loss.graph_gradient(y, targets, graph_rows.width, count, d);
        d.iter_mut().for_each(|d| *d *= scale);
        totals[0] += loss.graph_sum(y, targets, graph_rows.width);
        totals[1] += loss.graph_terms(labelled_rows(targets, graph_rows.width), graph_rows.width) as f64;
    }
    totals
}
