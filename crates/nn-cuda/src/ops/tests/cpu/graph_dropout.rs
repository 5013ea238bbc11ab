//! Dropout of nodes on the CPU.

use megabatch_nn::model::Mask;

use super::DroppedNodes;

impl DroppedNodes<'_> {
    /// Factors of all numbers in their order.
    fn factors(&self) -> impl Iterator<Item = f32> {
        let (mask, edges) = (Mask::from(self.mask.0.as_slice()[self.mask.1]), &self.lists.edges);
        (0..self.len()).map(move |k| {
            let node = k / self.width;
            let graph = edges.graphs[edges.graph_of[node] as usize];
            mask.factor(graph.index as usize, node - graph.node as usize, k % self.width) as f32
        })
    }
}

pub(super) fn drop_nodes(dropped: DroppedNodes<'_>, x: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(x).zip(dropped.factors()).for_each(|((to, x), factor)| *to = x * factor);
}

pub(super) fn drop_node_gradients(dropped: DroppedNodes<'_>, d: &mut [f32]) {
    d.iter_mut().zip(dropped.factors()).for_each(|(d, factor)| *d *= factor);
}
