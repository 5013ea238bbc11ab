#![forbid(unsafe_code)]

//! The memory of a training run tensor by tensor, and which phases of a step use it.

use megabatch_amp::Precision;
use serde::Serialize;

use super::{Footprint, pass_len};
use crate::cpu::fast::{self, PackedWeights};
use crate::cpu::form::Form;
use crate::cpu::step::Capacity;
use crate::error::Result;
use crate::loss::Loss;
use crate::model::{Model, SampleShape};
use crate::train::config::Config;

/// A phase of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepPhase {
    /// From the batch to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// From the gradients to the weights.
    Optimizer,
}

impl StepPhase {
    /// All of them, in their order.
    pub const ALL: [StepPhase; 3] = [StepPhase::Forward, StepPhase::Backward, StepPhase::Optimizer];
}

/// A tensor that a run takes from its device, or one of each thread's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedTensor {
    /// The part of the [`Footprint`] that it is counted in, such as `activations`.
    pub part: &'static str,
    /// Name, such as `lstm.M1.weight_ih_l0` or `lstm.M5 layer 1: gates`.
    pub name: String,
    /// Number of such tensors: one a shard in work where threads compute with them.
    pub count: usize,
    /// Bytes of all of them.
    pub bytes: usize,
    /// The phases of a step that read or write it. Its memory is held from the run's beginning to
    /// its end, whatever these are.
    pub used_in: Vec<StepPhase>,
}

/// Members of a list of buffers: name, numbers, and the phases that use them.
pub(crate) type Parts = Vec<(String, usize, &'static [StepPhase])>;

pub(crate) const FORWARD: &[StepPhase] = &[StepPhase::Forward];
pub(crate) const BACKWARD: &[StepPhase] = &[StepPhase::Backward];
pub(crate) const BOTH: &[StepPhase] = &[StepPhase::Forward, StepPhase::Backward];
const LEARNT: &[StepPhase] = &[StepPhase::Backward, StepPhase::Optimizer];
const OPTIMIZER: &[StepPhase] = &[StepPhase::Optimizer];
const ALL: &[StepPhase] = &StepPhase::ALL;

impl Footprint {
    /// The tensors that this is the sum of, without those of nothing: the footprint of training on
    /// samples of `shape`, or on graphs of which the largest have so many nodes and edges.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn tensors(
        &self,
        config: &Config,
        shape: &SampleShape,
        graphs: Option<(usize, usize)>,
    ) -> Result<Vec<PlannedTensor>> {
        let model = Model::new(shape.clone(), config.model.for_loss(config.loss))?;
        let purpose = config.purpose();
        let (room, samples) = match graphs {
            Some((nodes, edges)) => (Capacity { samples: nodes, edges, run: 1 }, nodes),
            None => (config.compute().room(purpose), 1),
        };
        let shards = config.compute().shards_at_once(&model, purpose);
        let weights = |prefix: &str, phases| {
            let tensors = model.layout().tensors();
            tensors.map(|(name, shape)| (format!("{prefix}{name}"), shape.iter().product(), phases)).collect::<Parts>()
        };
        let (packed, pass) = match config.form {
            Form::Plain => {
                (Parts::new(), vec![("the plain form".to_owned(), pass_len(config, shape, &model, room), BOTH)])
            }
            Form::Fast => (PackedWeights::parts(&model, purpose), fast::Pass::parts(&model, room, purpose)),
        };
        let working = if config.precision == Precision::Fp32 { Parts::new() } else { weights("rounded: ", BOTH) };
        let moments = if config.optimizer.kind.has_moments() { &["exp_avg.", "exp_avg_sq."][..] } else { &[] };
        let batches_of = |rows: usize, prefix: &str| -> Parts {
            let windows = shape.timeframes.iter().enumerate();
            let windows = windows
                .map(|(k, tf)| (format!("{prefix}windows {}", tf.name), rows * samples * shape.window_len(k), ALL));
            windows.chain([(format!("{prefix}targets"), rows * samples * shape.outputs, ALL)]).collect()
        };
        let batches = batches_of(config.batch_capacity(), "");
        let counted = matches!(config.loss, Loss::Tasks(_)) && config.accumulation_steps > 1;
        let sample = (0..shape.timeframes.len()).map(|k| shape.window_len(k)).sum::<usize>() + shape.outputs;
        let ahead = if counted { vec![("a sample counted ahead".to_owned(), sample, FORWARD)] } else { Parts::new() };
        // Two, and two of the given size while a validation interrupts training.
        let bytes_of = |parts: &Parts| parts.iter().map(|(_, numbers, _)| numbers * size_of::<f32>()).sum::<usize>();
        let of_batches = self.batches_bytes - if counted { sample * size_of::<f32>() } else { 0 };
        let validates = of_batches > 2 * bytes_of(&batches);
        let (count, validated) = match (validates, config.batch_capacity() == config.batch_size) {
            (false, _) => (2, Parts::new()),
            (true, true) => (4, Parts::new()),
            (true, false) => (2, batches_of(config.batch_size, "validation: ")),
        };
        let lists = [
            ("parameters", 1, weights("", ALL)),
            ("parameters", 1, working),
            ("parameters", 1, packed),
            ("gradients", 1, weights("sum: ", LEARNT)),
            ("gradients", shards, weights("shard: ", BACKWARD)),
            ("optimizer", 1, moments.iter().flat_map(|prefix| weights(prefix, OPTIMIZER)).collect()),
            ("activations", shards, pass),
            ("batches", count, batches),
            ("batches", 2, validated),
            ("batches", 1, ahead),
            ("carried", 1, vec![("states".to_owned(), self.carried_bytes / size_of::<f32>(), BOTH)]),
        ];
        let tensors = lists.into_iter().flat_map(|(part, count, list)| {
            list.into_iter().filter(|(_, numbers, _)| *numbers > 0).map(move |(name, numbers, phases)| PlannedTensor {
                part,
                name,
                count,
                bytes: count * numbers * size_of::<f32>(),
                used_in: phases.to_vec(),
            })
        });
        Ok(tensors.collect())
    }
}
