//! One thread's share of a batch.

use std::time::Instant;

use megabatch_gpu_core::Device;
use megabatch_nn::Result;
use megabatch_nn::loss::{labelled_rows, weigh_gradient};
use megabatch_nn::model::{Model, TensorSet};

use super::{Objective, RoundWork, Totals};
use crate::arithmetic::CpuArithmetic;
use crate::compute::{Capacity, Purpose};
use crate::shard::{Shard, ShardWorkspace, SharedGradients, Weights};

/// State with which one thread computes a shard.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) memory: ShardWorkspace,
    pub(super) gradients: Option<TensorSet>,
    pub(super) totals: Totals,
}

impl Worker {
    pub(super) fn new(
        device: &Device,
        model: &Model,
        capacity: Capacity,
        purpose: Purpose,
        arithmetic: CpuArithmetic,
    ) -> Result<Self> {
        let (activations, gradients) = (device.scope("activations"), device.scope("model/gradients/shards"));
        Ok(Worker {
            memory: ShardWorkspace::new(&activations, model, capacity, purpose, arithmetic)?,
            gradients: match purpose {
                Purpose::Training { .. } => Some(TensorSet::zeros(&gradients, model.layout())?),
                Purpose::Prediction => None,
            },
            totals: Totals::default(),
        })
    }

    /// The gradients of the last shard.
    pub(super) fn gradients(&self) -> &TensorSet {
        self.gradients.as_ref().expect("an engine made for training")
    }

    /// Forward, loss and backward of one shard, the `n`-th of its round.
    pub(super) fn train(&mut self, work: RoundWork<'_>, n: usize, shard: &Shard<'_>) {
        let RoundWork { weights, objective, .. } = work;
        let start = Instant::now();
        let (y, d_y) = self.memory.forward(weights, shard);
        let forward = start.elapsed();

        let (loss_sum, terms) = loss_gradient(weights, shard, objective, y, d_y);
        let gradients = self.gradients.as_mut().expect("an engine made for training");
        gradients.clear();
        self.memory.backward(weights, shard, &SharedGradients::new(gradients, work.finals_of(n)));
        self.totals = Totals { loss_sum, terms, forward, backward: start.elapsed() - forward };
    }
}

/// The loss of a shard with the outputs `y`, without the division by its count, and its terms;
/// `d_y` receives the outputs' gradient.
pub(super) fn loss_gradient(
    weights: Weights<'_>,
    shard: &Shard<'_>,
    Objective { loss, count, scale, .. }: Objective,
    y: &[f32],
    d_y: &mut [f32],
) -> (f64, usize) {
    let outputs = weights.model.shape().outputs;
    let targets = &shard.batch.targets()[shard.samples.start * outputs..shard.samples.end * outputs];
    // What is predicted for a graph as a whole has the targets of its first node, which are
    // those of all.
    let targets = &targets[..y.len() / weights.model.outputs() * outputs];
    let (loss_sum, terms) = match shard.graph {
        Some(_) => {
            loss.graph_gradient(y, targets, outputs, count, d_y);
            (loss.graph_sum(y, targets, outputs), loss.graph_terms(labelled_rows(targets, outputs), outputs))
        }
        None => {
            let weights = shard.batch.weights().map(|weights| &weights[shard.samples.clone()]);
            loss.gradient(y, targets, count, d_y);
            weigh_gradient(d_y, weights);
            (loss.weighted_sum(y, targets, weights), loss.terms(targets))
        }
    };
    if scale != 1.0 {
        d_y.iter_mut().for_each(|d| *d *= scale);
    }
    // The loss is formed in single precision, and its gradient read by a product.
    weights.packed.arithmetic().round(d_y);
    (loss_sum, terms)
}
