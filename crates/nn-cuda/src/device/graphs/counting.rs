//! Device memory of a model over graphs, from shapes.

use megabatch_nn::graph::SeenEdges;
use megabatch_nn::memory::{BACKWARD, BOTH, LargestBatch, StepPhase};
use megabatch_nn::model::{Model, Readout};

use super::graph_loss::GraphLoss;
use super::layer::GraphSizes;
use super::{GraphModel, pads};
use crate::device::bucketing::{bucket_nodes, bucket_places};
use crate::device::head::LossSums;
use crate::device::memory_estimate::MemoryEstimate;
use crate::ops::KeptGraphs;
use crate::tuning::Tuner;

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

/// Counts what [`GraphModel`] takes, and what batches do.
pub(in crate::device) fn estimate(estimate: &mut MemoryEstimate<'_>) {
    let (model, kept) = (estimate.model, estimate.batch.graphs.unwrap_or_default().kept);
    let config = estimate.config;
    let mut graph_model = estimate.dry_run(|scope| GraphModel::new(scope, model, config, &Tuner::off()));
    let seen = SeenEdges::for_config(&model.config());
    let [all, learnt] = [estimate.batch, estimate.learnt].map(|batch| MostGraphs::new(model, seen, batch));
    graph_model.encodings.estimate(estimate, all.nodes, learnt.nodes);
    let (lists, attributes, most) = (&mut graph_model.lists, seen.attributes, [all, learnt].map(Some));
    match kept {
        Some([nodes, edges]) => {
            estimate.book("graphs", "edges of all graphs", BOTH, |scope| {
                KeptGraphs::zeros(scope, nodes, seen.places(nodes, edges), attributes)
            });
            estimate.book("batches", "edges of a batch's graphs", &StepPhase::ALL, |_| {
                lists.reserve(all.nodes, all.places, attributes)
            });
            estimate.book_upload("graphs of a batch among all", most, |upload, most| {
                lists.plan_selected(most.graphs, upload)
            });
        }
        None => estimate.book_upload("edges of the graphs", most, |upload, most| {
            lists.reserve(most.nodes, most.places, attributes)?;
            lists.plan_lists([most.graphs, most.nodes, most.brought_places, attributes], upload)
        }),
    }
    let drops = graph_model.rates.iter().any(|&rate| rate > 0.0);
    let masks = drops.then_some(2 * graph_model.layers.len());
    estimate.book_upload("masks of the layers over graphs", [None, masks], |upload, masks| {
        upload.put(&mut graph_model.masks, masks)
    });
    for (l, layer) in graph_model.layers.iter_mut().enumerate() {
        estimate.book("activations", format!("attention layer {l}"), BOTH, |_| {
            layer.prepare(learnt.sizes(), true)?;
            layer.prepare(all.sizes(), false)
        });
    }
    estimate.book("activations", "gradients of attention", BACKWARD, |_| {
        graph_model.ensure_gradient_capacity(learnt.sizes())
    });
    let by_node = graph_model.readout == Readout::Node;
    let (rows, rows_learnt) = (all.rows(by_node), learnt.rows(by_node));
    estimate.book("activations", "what is read of graphs, and outputs", BOTH, |_| {
        graph_model.ensure_output_capacity(rows_learnt, true)?;
        graph_model.ensure_output_capacity(rows, false)
    });
    estimate.book("parameters", "what the loss holds outputs against", BACKWARD, |scope| {
        GraphLoss::table(scope, config.loss, model.shape().outputs)
    });
    estimate.book("batches", "sums of losses", &StepPhase::ALL, LossSums::zeros);
    estimate.book_upload("targets", [None, Some(rows_learnt)], |upload, rows| {
        graph_model.graph_loss.plan_upload(rows, upload)
    });
    let GraphModel { layers, head, graph_loss, scratch, .. } = &mut graph_model;
    let head_len = head.map(|head| head.partial_sums_len(rows));
    let layer_lens = layers.iter().map(|layer| layer.shape.partial_sums_len(all.nodes));
    // Those of the forward pass are not told from the others.
    let parts = layer_lens.chain(head_len).max().unwrap_or(0);
    estimate.book("activations", "parts of sums over graphs", BOTH, |_| {
        scratch.reserve::<f32>(parts)?;
        graph_loss.reserve_scratch(scratch, learnt.graphs, rows_learnt)
    });
}
