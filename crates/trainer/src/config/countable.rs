use megabatch_nn::model::{Fusion, ModelConfig, Pooling, SampleShape};

use super::Config;
use crate::error::{Error, Result};

/// Upper bound of the bytes of a run: an eighth of the address space.
const BYTES_MAX: f64 = (1u64 << 60) as f64;

/// Refuses settings whose products overflow, before any of them is multiplied. Batches have up to
/// `nodes` nodes a graph, or single samples. The numbers here are many times those that are
/// allocated, so that no sum of the plan overflows either.
pub(crate) fn check_countable(config: &Config, shape: &SampleShape, nodes: usize) -> Result<()> {
    let ModelConfig { hidden, layers, pooling, fusion, graph, graph_edge_attributes, .. } = config.model;
    let [hidden, layers, nodes] = [hidden, layers, nodes].map(|n| n as f64);
    let outputs = shape.outputs as f64 * config.model.for_loss(config.loss).outputs_per_target as f64;
    let heads = match pooling {
        Pooling::Last => 0.0,
        Pooling::Attention { heads } => heads as f64,
    };
    let timeframes = shape.timeframes.len() as f64;
    let fused = match fusion {
        Fusion::Concat => 0.0,
        Fusion::Attention { heads, feed_forward } => heads as f64 * timeframes + (4.0 + feed_forward as f64) * hidden,
    };
    let attended = graph.map_or(0.0, |graph| {
        let width = graph.heads.max(graph.output_heads) as f64 * (graph.hidden as f64).max(outputs);
        graph.layers as f64 * (width + graph_edge_attributes as f64 + graph.heads as f64)
    });
    let features = shape.timeframes.iter().map(|timeframe| timeframe.features as f64).sum::<f64>();
    let per_step = features + (layers * hidden + heads) * timeframes;
    let longest = config.purpose().runs().map_or(0.0, |runs| runs.longest as f64);
    let steps = shape.timeframes.iter().map(|timeframe| timeframe.steps as f64).sum::<f64>() + longest;
    let width = (hidden + heads * hidden) * timeframes + fused * timeframes + attended + outputs + features;
    let rows = config.batch_capacity() as f64 * nodes;
    let batch_numbers = rows * (steps * per_step + width) * config.threads as f64;
    let weight_numbers = (width + layers * hidden * timeframes).powi(2) * (config.threads as f64 + 4.0);
    // Four gates, forward and backward, in bytes.
    if 64.0 * (batch_numbers + weight_numbers) < BYTES_MAX {
        return Ok(());
    }
    let expected = "less, or a smaller model: the memory that they take together is more than can be counted";
    Err(Error::setting("batch_size", &config.batch_size, expected))
}
