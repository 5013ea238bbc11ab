#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::path::Path;

use serde::Serialize;

use crate::ahead::Waits;
use crate::metrics::Metrics;

/// What training tells its observer, who may end it by answering `ControlFlow::Break`; a checkpoint is then saved first,
/// where checkpoints are kept.
pub type Observer<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Something that happened in training.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Event<'a> {
    /// An optimizer step was done.
    Step(StepEvent),
    /// The validation samples were evaluated.
    Validation(ValidationEvent),
    /// A checkpoint was saved.
    Checkpoint {
        /// Optimizer steps done.
        step: u64,
        /// Its folder.
        path: &'a Path,
    },
    /// An epoch is over and validated. Its checkpoint is saved next, so that what is told here is told once, also in a resumed run.
    Epoch(EpochEvent),
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
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// The learning rate that the step used.
    pub lr: f64,
    /// Time in which the computation waited for data.
    pub data_wait_s: f64,
    /// The same by cause, where the samples load themselves ahead ([`LoadAhead`](crate::LoadAhead)).
    #[serde(flatten)]
    pub data_waits: Option<Waits>,
    /// Time of the forward pass.
    pub forward_s: f64,
    /// Time of the backward pass.
    pub backward_s: f64,
    /// Time of the norm, the clipping and the update.
    pub optimizer_s: f64,
    /// Samples, or graphs, over the whole time of the step.
    pub samples_per_s: f64,
    /// Bytes allocated on the device.
    pub allocated_bytes: usize,
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
    /// Whether it is the lowest so far.
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
