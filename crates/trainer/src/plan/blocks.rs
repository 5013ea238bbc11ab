//! The memory of a training run on the CPU block by block, in the order in which it is taken.

use megabatch_nn::model::{Model, SampleShape};
use megabatch_nn_cpu::Engine;

use super::{CarriedStates, Footprint, HeldBatches};
use crate::config::Config;
use crate::error::Result;

impl Footprint {
    /// Bytes of each block of this footprint in the order in which a run takes them, for training
    /// on samples of `shape`, or on graphs whose largest have these numbers of nodes and edges.
    /// `validated` samples or graphs are validated; `states` are those that the run carries.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn blocks(
        &self,
        config: &Config,
        shape: &SampleShape,
        graphs: Option<(usize, usize)>,
        validated: usize,
        states: Option<&CarriedStates>,
    ) -> Result<Vec<usize>> {
        let model = Model::new(shape.clone(), config.model.for_loss(config.loss))?;
        let (purpose, precision) = (config.purpose(), config.precision);
        let (capacity, samples) = match graphs {
            Some((nodes, edges)) => (config.compute().graph_capacity(nodes, edges), nodes),
            None => (config.compute().capacity(purpose), 1),
        };
        let weights = model.layout().len();
        let windows: Vec<usize> = (0..shape.timeframes.len()).map(|k| shape.window_len(k)).collect();
        // Weights, the sum of their gradients, and the moments.
        let mut blocks = vec![weights; if config.optimizer.kind.has_moments() { 4 } else { 2 }];
        blocks.extend(Engine::weights_buffers(&model, purpose, precision));
        blocks.push(Engine::working_weights_len(&model, precision));
        let workspace = Engine::workspace_buffers(&model, capacity, purpose, precision);
        let shards = config.compute().shards_at_once(&model, purpose);
        for _ in 0..shards {
            blocks.extend(&workspace);
            blocks.push(weights);
        }
        // Sets of gradients that a rank of several holds.
        let sets = self.gradients_bytes / (size_of::<f32>() * weights).max(1);
        blocks.extend(std::iter::repeat_n(weights, sets.saturating_sub(1 + shards)));
        let HeldBatches { step, validation, counted } = HeldBatches::new(config, validated);
        let batch = |rows: usize| windows.iter().chain([&shape.outputs]).map(move |numbers| rows * samples * numbers);
        blocks.extend(states.iter().flat_map(|states| states.training_lens(config, shape)));
        blocks.extend(batch(step).chain(batch(step)));
        let streamed = states.map(|states| states.streamed(config, shape)).unwrap_or_default();
        blocks.extend(streamed.readers);
        blocks.extend(batch(validation).chain(batch(validation)));
        blocks.extend(streamed.states);
        blocks.push(counted * (windows.iter().sum::<usize>() + shape.outputs));
        Ok(blocks.into_iter().map(|numbers| numbers * size_of::<f32>()).filter(|&bytes| bytes > 0).collect())
    }
}
