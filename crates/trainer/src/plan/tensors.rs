//! The memory of a training run tensor by tensor, and which phases of a step use it.

use megabatch_nn::memory::{BACKWARD, BOTH, FORWARD, PlannedTensor, StepPhase, TensorPlan};
use megabatch_nn::model::{Model, SampleShape};
use megabatch_nn_cpu::Engine;

use super::{Footprint, HeldBatches};
use crate::config::Config;
use crate::error::Result;

const LEARNT: &[StepPhase] = &[StepPhase::Backward, StepPhase::Optimizer];
const OPTIMIZER: &[StepPhase] = &[StepPhase::Optimizer];
const ALL: &[StepPhase] = &StepPhase::ALL;

impl Footprint {
    /// The tensors of this footprint, without empty ones, for training on samples of `shape`, or on
    /// graphs whose largest have these numbers of nodes and edges. `validated` samples or graphs
    /// are validated.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn tensors(
        &self,
        config: &Config,
        shape: &SampleShape,
        graphs: Option<(usize, usize)>,
        validated: usize,
    ) -> Result<Vec<PlannedTensor>> {
        let model = Model::new(shape.clone(), config.model.for_loss(config.loss))?;
        let purpose = config.purpose();
        let (capacity, samples) = match graphs {
            Some((nodes, edges)) => (config.compute().graph_capacity(nodes, edges), nodes),
            None => (config.compute().capacity(purpose), 1),
        };
        let shards = config.compute().shards_at_once(&model, purpose);
        let weights = |prefix: &str, phases| {
            let tensors = model.layout().tensors();
            tensors
                .map(|(name, shape)| (format!("{prefix}{name}"), shape.iter().product(), phases))
                .collect::<TensorPlan>()
        };
        let packed = Engine::weights_plan(&model, purpose, config.precision);
        let workspace = Engine::workspace_plan(&model, capacity, purpose, config.precision);
        let has_working_weights = Engine::working_weights_len(&model, config.precision) > 0;
        let working = if has_working_weights { weights("rounded: ", BOTH) } else { TensorPlan::new() };
        let moments = if config.optimizer.kind.has_moments() { &["exp_avg.", "exp_avg_sq."][..] } else { &[] };
        let batches_of = |rows: usize, prefix: &str| -> TensorPlan {
            let windows = shape.timeframes.iter().enumerate();
            let windows = windows
                .map(|(k, tf)| (format!("{prefix}windows {}", tf.name), rows * samples * shape.window_len(k), ALL));
            windows.chain([(format!("{prefix}targets"), rows * samples * shape.outputs, ALL)]).collect()
        };
        let sample = (0..shape.timeframes.len()).map(|k| shape.window_len(k)).sum::<usize>() + shape.outputs;
        let HeldBatches { step, validation, counted } = HeldBatches::new(config, validated);
        // Batches of a validation are listed apart where they have another size.
        let (alike, others) = if validation == step { (4, 0) } else { (2, 2) };
        // Of a rank of several, whole sets more.
        let sets = self.gradients_bytes / (size_of::<f32>() * model.layout().len()).max(1);
        let held = sets.saturating_sub(1 + shards);
        let lists = [
            ("parameters", 1, weights("", ALL)),
            ("parameters", 1, working),
            ("parameters", 1, packed),
            ("gradients", 1, weights("sum: ", LEARNT)),
            ("gradients", shards, weights("shard: ", BACKWARD)),
            ("gradients", held, weights("held: ", LEARNT)),
            ("optimizer", 1, moments.iter().flat_map(|prefix| weights(prefix, OPTIMIZER)).collect()),
            ("activations", shards, workspace),
            ("batches", alike, batches_of(step, "")),
            ("batches", others, batches_of(validation, "validation: ")),
            ("batches", counted, vec![("a sample counted ahead".to_owned(), sample, FORWARD)]),
            ("carried", 1, vec![("states".to_owned(), self.carried_bytes / size_of::<f32>(), BOTH)]),
        ];
        let tensors = lists.into_iter().flat_map(|(part, count, list)| {
            list.into_iter().filter(move |(_, numbers, _)| count * *numbers > 0).map(move |(name, numbers, phases)| {
                PlannedTensor { part, name, count, bytes: count * numbers * size_of::<f32>(), used_in: phases.to_vec() }
            })
        });
        Ok(tensors.collect())
    }
}
