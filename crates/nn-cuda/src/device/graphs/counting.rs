//! Device memory of a model over graphs, from shapes.

use megabatch_nn::graph::SeenEdges;
use megabatch_nn::memory::{BACKWARD, BOTH, LargestGraphs, StepPhase};
use megabatch_nn::model::Readout;

use super::encoder::Encodings;
use super::graph_loss::GraphLoss;
use super::layer::{GraphSizes, LayerShape};
use super::pads;
use super::shared::Shared;
use crate::device::bucketing::{bucket_nodes, bucket_places};
use crate::device::memory_estimate::MemoryEstimate;
use crate::ops::{Affine, GraphLists, KeptGraphs, MaskNumbers, Scratch};

/// Counts what [`GraphModel`](super::GraphLearner) takes, and what batches do.
pub(in crate::device) fn estimate(estimate: &mut MemoryEstimate<'_>) {
    let (model, LargestGraphs { graphs, edges, kept }) = (estimate.model, estimate.batch.graphs.unwrap_or_default());
    let (decoder, nodes) = (model.decoder(), estimate.batch.sizes.iter().copied().max().unwrap_or(0));
    let attention = decoder.attention.as_ref();
    let seen = SeenEdges::for_config(&model.config());
    let brought_places = seen.places(nodes, edges);
    let places = bucket_places(brought_places);
    let (nodes, graphs) = if pads(model) { (bucket_nodes(nodes), graphs + 1) } else { (nodes, graphs) };
    Encodings::estimate(estimate, nodes);
    let lists_bytes: usize = GraphLists::bytes(nodes, places, seen.attributes).iter().sum();
    estimate.put_mail("starts of the graphs", [GraphLists::starts_bytes(graphs)]);
    match kept {
        Some(all) => {
            estimate.put("graphs", "edges of all graphs", KeptGraphs::bytes(all, seen), BOTH);
            estimate.put("batches", "edges of a batch's graphs", lists_bytes, &StepPhase::ALL);
            estimate.put_mail("graphs of a batch among all", [GraphLists::origins_bytes(graphs)]);
        }
        None => {
            estimate.put("batches", "edges of the graphs", lists_bytes, &StepPhase::ALL);
            let brought = GraphLists::bytes(nodes, brought_places, seen.attributes);
            brought.into_iter().for_each(|bytes| estimate.enqueue(bytes));
        }
    }
    let (shapes, graph_sizes) = (LayerShape::all(model, estimate.config.arithmetic), GraphSizes { nodes, places });
    let drops = attention
        .is_some_and(|attention| attention.config().dropout > 0.0 || attention.config().attention_dropout > 0.0);
    let masks = if drops { 2 * shapes.len() * size_of::<MaskNumbers>() } else { 0 };
    estimate.put_mail("masks of the layers over graphs", [masks]);
    for (l, shape) in shapes.iter().enumerate() {
        estimate.put("activations", format!("attention layer {l}"), shape.bytes(graph_sizes), BOTH);
    }
    let by_node = model.config().readout == Some(Readout::Node);
    let shared = Shared::bytes(shapes.iter(), graph_sizes);
    let shared = if shapes.is_empty() { nodes * decoder.widths.top * size_of::<f32>() } else { shared };
    estimate.put("activations", "gradients of attention", shared, BACKWARD);
    let rows = if by_node { nodes } else { graphs };
    tally_outputs(estimate, rows, by_node);
    tally_loss(estimate, &shapes, nodes, graphs, rows);
}

/// Counts what is read of graphs, and what is made of it.
fn tally_outputs(estimate: &mut MemoryEstimate<'_>, rows: usize, by_node: bool) {
    let (model, decoder) = (estimate.model, estimate.model.decoder());
    let (outputs, read) = (rows * model.outputs(), if by_node { 0 } else { rows * decoder.widths.top });
    let head_len = if decoder.head.is_some() { 2 * outputs + read } else { 0 };
    let d_outputs = if decoder.head.is_none() && !by_node { outputs } else { 0 };
    let bytes = (head_len + d_outputs + 2 * read) * size_of::<f32>();
    estimate.put("activations", "what is read of graphs, and outputs", bytes, BOTH);
}

/// Counts the loss of so many graphs and rows, and the parts of all sums.
fn tally_loss(estimate: &mut MemoryEstimate<'_>, shapes: &[LayerShape], nodes: usize, graphs: usize, rows: usize) {
    let (model, config) = (estimate.model, estimate.config);
    let loss_and_outputs = (config.loss, model.shape().outputs);
    let (table, upload, totals) = GraphLoss::bytes(loss_and_outputs.0, loss_and_outputs.1, rows);
    estimate.put("parameters", "what the loss holds outputs against", table, BACKWARD);
    estimate.put_mail("targets", upload);
    estimate.put("batches", "sums of losses", totals, &StepPhase::ALL);
    let head_len = model.decoder().head.as_ref().map(|head| {
        let [weight, bias] = head.slots();
        Affine::new(model, weight, Some(bias), model.decoder().widths.top, config.arithmetic).partial_sums_len(rows)
    });
    let parts = shapes.iter().map(|shape| shape.partial_sums_len(nodes)).chain(head_len).max().unwrap_or(0);
    let parts = Scratch::bytes::<f32>(parts).max(GraphLoss::scratch_bytes(
        loss_and_outputs.0,
        loss_and_outputs.1,
        graphs,
        rows,
    ));
    estimate.put("activations", "parts of sums over graphs", parts, BOTH);
}
