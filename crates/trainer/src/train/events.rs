use std::ops::ControlFlow;
use std::path::Path;

use megabatch_nn_cpu::Profile;
use serde::Serialize;

use crate::data::prefetching::Waits;
use crate::error::Error;
use crate::evaluate::metrics::Metrics;
use crate::train::oom_fallback::MemoryLimits;

/// Events of training for its observer, which may end it by answering `ControlFlow::Break`; a
/// checkpoint is then saved first, where checkpoints are kept.
pub type Observer<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Something that happened in training.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Event<'a> {
    /// An optimizer step was done.
    Step(StepEvent),
    /// A batch is waited for, of a step or of a validation. Where this is answered by
    /// `ControlFlow::Break`, the run ends before the batch's step, on all ranks, and a validation
    /// as by [`Event::Validating`].
    Waiting,
    /// A validation is under way. Where this is answered by `ControlFlow::Break`, it ends here and
    /// is done anew by the run that goes on.
    Validating(ValidatingEvent),
    /// The validation samples were evaluated.
    Validation(ValidationEvent),
    /// A checkpoint was saved.
    Checkpoint {
        /// Optimizer steps done.
        step: u64,
        /// Its folder.
        path: &'a Path,
    },
    /// An epoch is over and validated. Its checkpoint is saved next, so that what is told here is
    /// told once, also in a resumed run.
    Epoch(EpochEvent),
    /// A step diverged, and the run goes on from a checkpoint, which is saved anew next.
    Rollback(RollbackEvent),
    /// A rank of several was lost, and the others go on from the step under way.
    Reformed {
        /// Optimizer steps done.
        step: u64,
        /// Number of this rank from now on.
        rank: usize,
        /// Number of ranks from now on.
        world: usize,
        /// Number of ranks before.
        world_before: usize,
        /// Symptom of the loss of a rank.
        cause: String,
    },
    /// Something that users should know, and that changes no result.
    Note {
        /// Optimizer steps done.
        step: u64,
        /// A sentence without its stop.
        text: String,
    },
    /// The device had less memory than was planned, and the run goes on with less.
    Shortage(ShortageEvent),
}

/// One optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepEvent {
    /// Optimizer steps done, this one included.
    pub step: u64,
    /// Steps at which training will end.
    pub steps: u64,
    /// The step's epoch, from 0.
    pub epoch: u64,
    /// Samples of the step; graphs, for a model over graphs.
    pub samples: usize,
    /// Mean loss over them, before the update.
    pub loss: f64,
    /// Terms that the loss is the mean of, where some targets are not known. A step without any,
    /// whose loss is 0, changes no weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_terms: Option<usize>,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// Loss scale of the gradients before rounding, in a run that needs it; the gradients' norm is
    /// without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// The first gradient that was too large for the loss scale: the step changed no weight, and
    /// the scale was lowered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<String>,
    /// The learning rate that the step used.
    pub lr: f64,
    /// Time in which the computation waited for data.
    pub data_wait_s: f64,
    /// The same by cause, where the samples load themselves ahead
    /// ([`PrefetchingSource`](crate::PrefetchingSource)).
    #[serde(flatten)]
    pub data_waits: Option<Waits>,
    /// Time of the forward pass. On a GPU, the host's time of the whole step, with its wait for
    /// data.
    pub forward_s: f64,
    /// Time of the backward pass.
    pub backward_s: f64,
    /// Time of the norm, the clipping and the update.
    pub optimizer_s: f64,
    /// The GPU's time of the work that it ended meanwhile, by its events, in a run that
    /// [asks for it](crate::Trainer::time_gpu). Copies from and to the host do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_s: Option<f64>,
    /// CUDA graphs that were captured meanwhile, which takes time of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captures: Option<u64>,
    /// Samples, or graphs, over the whole time of the step.
    pub samples_per_s: f64,
    /// Bytes allocated on the device.
    pub allocated_bytes: usize,
    /// The time of forward and backward pass layer by layer, for a run that asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<Profile>>,
}

/// Progress of a validation, after each of its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ValidatingEvent {
    /// Optimizer steps done.
    pub step: u64,
    /// Samples, or graphs, that are evaluated.
    pub done: usize,
    /// Samples, or graphs, of the validation.
    pub samples: usize,
}

/// One pass over the validation samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValidationEvent {
    /// Optimizer steps done.
    pub step: u64,
    /// The last step's epoch, from 0.
    pub epoch: u64,
    /// Mean loss.
    pub loss: f64,
    /// True if it is the lowest so far.
    pub best: bool,
    /// Errors by horizon.
    pub metrics: Metrics,
}

/// The end of an epoch: memory at a point that is the same in every epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochEvent {
    /// Optimizer steps done.
    pub step: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Bytes allocated on the device.
    pub allocated_bytes: usize,
    /// Most bytes allocated since the peaks were last reset.
    pub allocated_bytes_peak: usize,
    /// Bytes that the device's pool holds.
    pub reserved_bytes: usize,
    /// Most bytes that it held since the peaks were last reset.
    pub reserved_bytes_peak: usize,
    /// Free bytes between live ones, which the pool can use but not give back.
    pub inactive_split_bytes: usize,
}

/// A return to a checkpoint, see [`Divergence`](crate::Divergence).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RollbackEvent {
    /// Optimizer steps done at the checkpoint: those after it are done again.
    pub step: u64,
    /// The step that diverged, counted from 1.
    pub failed_step: u64,
    /// Its loss, or the part of it in the batch that failed.
    pub loss: f64,
    /// Cause.
    pub cause: String,
    /// Rollbacks so far, this one included.
    pub rollbacks: u32,
    /// Most rollbacks.
    #[serde(rename = "rollbacks_max")]
    pub max_rollbacks: u32,
    /// Factor of the schedule's learning rate from now on.
    pub rate_factor: f64,
}

/// Reduced memory of a run whose device has less than was planned. It learns the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShortageEvent {
    /// Optimizer steps done.
    pub step: u64,
    /// Request that failed.
    pub cause: String,
    /// Samples, or graphs, that are computed at once from now on; they are accumulated to batches
    /// of `planned_batch_size`.
    pub batch_size: usize,
    /// Planned samples of a batch.
    pub planned_batch_size: usize,
    /// True if series lay on a GPU before, and bars come batch by batch from now on.
    pub releases_series: bool,
    /// True if stored windows lay on a GPU before, all or in chunks, and come batch by batch from
    /// now on.
    pub releases_windows: bool,
    /// True if the edges of all graphs lay on a GPU before, and come batch by batch from now on.
    pub releases_graphs: bool,
    /// True if activations are computed again in the backward pass from now on, see
    /// [`Config::gradient_checkpointing`](crate::Config::gradient_checkpointing).
    pub gradient_checkpointing: bool,
    /// Size of the chunks that samples are read ahead in from now on, of what was planned; nothing
    /// for samples that are not.
    pub chunk_percent: u32,
}

impl ShortageEvent {
    /// Event of a cut of limits from `before` to `after`.
    pub(crate) fn new(
        step: u64,
        cause: &Error,
        before: MemoryLimits,
        after: MemoryLimits,
        planned_batch_size: usize,
    ) -> Self {
        let MemoryLimits { chunk_percent, batch_size, gradient_checkpointing, .. } = after;
        ShortageEvent {
            step,
            cause: cause.to_string(),
            batch_size,
            planned_batch_size,
            releases_series: before.keep_series && !after.keep_series,
            releases_windows: (before.keep_windows && !after.keep_windows)
                || (before.chunk_windows && !after.chunk_windows),
            releases_graphs: before.keep_graphs && !after.keep_graphs,
            gradient_checkpointing,
            chunk_percent,
        }
    }
}
