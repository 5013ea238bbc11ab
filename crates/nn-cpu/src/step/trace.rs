//! Search for the first non-finite number: a step's forward pass once more, with a look at all that
//! it keeps.

use megabatch_amp::NonFiniteTrace;
use megabatch_nn::batch::BatchView;
use megabatch_nn::model::{Model, TensorSet, prefixed};

use super::workspace::weights;
use super::{Engine, Objective, parts_of};
use crate::carried::Carried;
use crate::shard::ShardWorkspace;

impl Engine {
    /// Computes the shards of `batch` one after another as a step of training does, from the states
    /// of `carried` and with the same dropout, and looks at what each layer gave, in the order of
    /// computation. Weights must be loaded.
    pub fn trace(
        &mut self,
        model: &Model,
        parameters: &TensorSet,
        batch: &BatchView<'_>,
        carried: Option<&Carried>,
        objective: Objective,
        trace: &mut NonFiniteTrace,
    ) {
        let weights = weights(model, parameters, &self.weights, &self.working);
        let memory = &mut self.workers[0].memory;
        for part in parts_of(batch, self.purpose, objective.position) {
            let shard = part.shard(batch, carried, Some(objective.dropout));
            self.pool.install(|| {
                memory.forward(weights, &shard);
            });
            memory.trace(model, shard.samples.len(), trace);
            if trace.first().is_some() {
                return;
            }
        }
    }
}

impl ShardWorkspace {
    /// Looks at what the forward pass of a shard of so many samples computed, in its order.
    fn trace(&self, model: &Model, samples: usize, trace: &mut NonFiniteTrace) {
        for (k, timeframe) in model.shape().timeframes.iter().enumerate() {
            if !model.recurrent_layers().is_empty() {
                self.trace_layers(model, k, samples, trace);
            }
            if let Some(pooling) = model.poolings().get(k) {
                let width = pooling.heads * timeframe.steps;
                let mut all = vec![0.0; samples * width];
                let rows = all.chunks_exact_mut(width).enumerate();
                rows.for_each(|(sample, row)| self.read_pooling(k, sample, row));
                trace.look(&prefixed("pooling", &timeframe.name), "weights [B, heads, T]", &all);
            }
        }
        self.decoding().trace(model.decoder(), trace);
    }

    /// Looks at the states of timeframe `k`: layer by layer, in each step by step, the cell state,
    /// if there is one, before the hidden state.
    fn trace_layers(&self, model: &Model, k: usize, samples: usize, trace: &mut NonFiniteTrace) {
        let (timeframe, config) = (&model.shape().timeframes[k], model.config());
        let name = prefixed(config.cell.name(), &timeframe.name);
        for l in 0..config.layers {
            for t in 0..timeframe.steps {
                let [cells, hidden] = self.layer_states(k, l, samples, t, config.hidden);
                let layer = format!("layer {l} of {name}");
                let after = |what: &str| format!("the {what} state after bar {t} [B, H]");
                if config.cell.has_cell_state() {
                    trace.look(&layer, &after("cell"), &cells);
                }
                trace.look(&layer, &after("hidden"), &hidden);
                if trace.first().is_some() {
                    return;
                }
            }
        }
    }

    /// The cell states, where they are kept, and the hidden states of layer `l` in timeframe `k`
    /// after step `t`, [B, H] each. Cell states that are not kept are zeros: a fault in them shows
    /// in the hidden states.
    fn layer_states(&self, k: usize, l: usize, samples: usize, t: usize, width: usize) -> [Vec<f32>; 2] {
        let [mut cells, mut hidden] = [0, 1].map(|_| vec![0.0; samples * width]);
        let rows = cells.chunks_exact_mut(width).zip(hidden.chunks_exact_mut(width));
        for (sample, (cell, hidden)) in rows.enumerate() {
            self.read_layer(k, l, sample, t, cell, hidden);
        }
        [cells, hidden]
    }
}
