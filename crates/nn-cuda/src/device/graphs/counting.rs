//! Device memory of a model over graphs, from shapes.

use megabatch_nn::graph::SeenEdges;
use megabatch_nn::memory::{BACKWARD, BOTH, LargestBatch, StepPhase};
use megabatch_nn::model::{Model, Readout};

use super::encoder::Encodings;
use super::graph_loss::GraphLoss;
use super::layer::{GraphSizes, LayerShape};
use super::pads;
use super::shared::Shared;
use crate::device::bucketing::{bucket_nodes, bucket_places};
use crate::device::memory_estimate::MemoryEstimate;
use crate::ops::{Affine, GraphLists, KeptGraphs, MaskNumbers, Scratch};

/// The most of a batch of graphs, with what pads it.
#[derive(Clone, Copy, Debug)]
struct MostGraphs {
    graphs: usize,
    nodes: usize,
    /// Places of edges that the batch brings, and that there is memory for.
    brought_places: usize,
    places: usize,
}

impl MostGraphs {
    fn new(model: &Model, seen: SeenEdges, batch: &LargestBatch) -> Self {
        let (largest, nodes) = (batch.graphs.unwrap_or_default(), batch.sizes.iter().copied().max().unwrap_or(0));
        let brought_places = seen.places(nodes, largest.edges);
        let places = bucket_places(brought_places);
        match pads(model) {
            true => MostGraphs { graphs: largest.graphs + 1, nodes: bucket_nodes(nodes), brought_places, places },
            false => MostGraphs { graphs: largest.graphs, nodes, brought_places, places },
        }
    }

    fn sizes(self) -> GraphSizes {
        GraphSizes { nodes: self.nodes, places: self.places }
    }

    /// Rows of what is read and predicted.
    fn rows(self, by_node: bool) -> usize {
        if by_node { self.nodes } else { self.graphs }
    }
}

/// Counts what [`GraphModel`](super::GraphLearner) takes, and what batches do.
pub(in crate::device) fn estimate(estimate: &mut MemoryEstimate<'_>) {
    let (model, kept) = (estimate.model, estimate.batch.graphs.unwrap_or_default().kept);
    let decoder = model.decoder();
    let attention = decoder.attention.as_ref();
    let seen = SeenEdges::for_config(&model.config());
    let [all, learnt] = [estimate.batch, estimate.learnt].map(|batch| MostGraphs::new(model, seen, batch));
    Encodings::estimate(estimate, all.nodes, learnt.nodes);
    let lists_bytes: usize = GraphLists::bytes(all.nodes, all.places, seen.attributes).iter().sum();
    let [starts, starts_learnt] = [all, learnt].map(|most| [GraphLists::starts_bytes(most.graphs)]);
    estimate.put_mail("starts of the graphs", starts, starts_learnt);
    match kept {
        Some(kept) => {
            estimate.put("graphs", "edges of all graphs", KeptGraphs::bytes(kept, seen), BOTH);
            estimate.put("batches", "edges of a batch's graphs", lists_bytes, &StepPhase::ALL);
            let [origins, origins_learnt] = [all, learnt].map(|most| [GraphLists::origins_bytes(most.graphs)]);
            estimate.put_mail("graphs of a batch among all", origins, origins_learnt);
        }
        None => {
            estimate.put("batches", "edges of the graphs", lists_bytes, &StepPhase::ALL);
            let brought = [all, learnt].map(|most| GraphLists::bytes(most.nodes, most.brought_places, seen.attributes));
            let [brought, brought_learnt] = brought;
            estimate.enqueue(brought, brought_learnt);
        }
    }
    let shapes = LayerShape::all(model, estimate.config.arithmetic);
    let drops = attention
        .is_some_and(|attention| attention.config().dropout > 0.0 || attention.config().attention_dropout > 0.0);
    let masks = if drops { 2 * shapes.len() * size_of::<MaskNumbers>() } else { 0 };
    estimate.put_mail_learnt("masks of the layers over graphs", [masks]);
    for (l, shape) in shapes.iter().enumerate() {
        let bytes = shape.bytes(all.sizes(), learnt.sizes());
        estimate.put("activations", format!("attention layer {l}"), bytes, BOTH);
    }
    let by_node = model.config().readout == Some(Readout::Node);
    let shared = Shared::bytes(shapes.iter(), learnt.sizes());
    let shared = if shapes.is_empty() { learnt.nodes * decoder.widths.top * size_of::<f32>() } else { shared };
    estimate.put("activations", "gradients of attention", shared, BACKWARD);
    tally_outputs(estimate, all.rows(by_node), learnt.rows(by_node), by_node);
    tally_loss(estimate, &shapes, all, learnt, by_node);
}

/// Counts what is read of graphs, and what is made of it: of so many rows, and of so many that are
/// trained on.
fn tally_outputs(estimate: &mut MemoryEstimate<'_>, rows: usize, rows_learnt: usize, by_node: bool) {
    let (model, decoder) = (estimate.model, estimate.model.decoder());
    let has_head = decoder.head.is_some();
    let width = if by_node { 0 } else { decoder.widths.top };
    let outputs = if has_head { rows * model.outputs() } else { 0 };
    let d_outputs = if has_head || !by_node { rows_learnt * model.outputs() } else { 0 };
    let d_read = if has_head { rows_learnt * width } else { 0 };
    // What is read of a graph, and the nodes that maxima are from.
    let bytes = (outputs + d_outputs + d_read + 2 * rows * width) * size_of::<f32>();
    estimate.put("activations", "what is read of graphs, and outputs", bytes, BOTH);
}

/// Counts the loss of graphs such as `learnt`, and the parts of all sums, of which those of the
/// forward pass are not told from the others.
fn tally_loss(
    estimate: &mut MemoryEstimate<'_>,
    shapes: &[LayerShape],
    all: MostGraphs,
    learnt: MostGraphs,
    by_node: bool,
) {
    let (model, config) = (estimate.model, estimate.config);
    let (rows, rows_learnt, nodes) = (all.rows(by_node), learnt.rows(by_node), all.nodes);
    let loss_and_outputs = (config.loss, model.shape().outputs);
    let (table, upload, totals) = GraphLoss::bytes(loss_and_outputs.0, loss_and_outputs.1, rows_learnt);
    estimate.put("parameters", "what the loss holds outputs against", table, BACKWARD);
    estimate.put_mail_learnt("targets", upload);
    estimate.put("batches", "sums of losses", totals, &StepPhase::ALL);
    let head_len = model.decoder().head.as_ref().map(|head| {
        let [weight, bias] = head.slots();
        Affine::new(model, weight, Some(bias), model.decoder().widths.top, config.arithmetic).partial_sums_len(rows)
    });
    let parts = shapes.iter().map(|shape| shape.partial_sums_len(nodes)).chain(head_len).max().unwrap_or(0);
    let parts = Scratch::bytes::<f32>(parts).max(GraphLoss::scratch_bytes(
        loss_and_outputs.0,
        loss_and_outputs.1,
        learnt.graphs,
        rows_learnt,
    ));
    estimate.put("activations", "parts of sums over graphs", parts, BOTH);
}
