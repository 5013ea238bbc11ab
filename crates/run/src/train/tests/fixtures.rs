//! Events as training tells them, for tests.

use megabatch_trainer::{EpochEvent, Event, Metrics, StepEvent, ValidationEvent};

/// A step of a second, without any waiting.
pub(super) fn step(step: u64) -> StepEvent {
    StepEvent {
        step,
        steps: 1000,
        epoch: 0,
        samples: 50,
        loss: 1.0,
        loss_terms: None,
        grad_norm: 1.0,
        loss_scale: None,
        overflow: None,
        lr: 0.1,
        data_wait_s: 0.0,
        data_waits: None,
        forward_s: 0.1,
        backward_s: 0.1,
        optimizer_s: 0.1,
        gpu_s: None,
        captures: None,
        samples_per_s: 50.0,
        allocated_bytes: 0,
        profile: None,
    }
}

/// The end of `epoch` after so many steps.
pub(super) fn epoch(epoch: u64, step: u64) -> Event<'static> {
    Event::Epoch(EpochEvent {
        step,
        epoch,
        allocated_bytes: 0,
        allocated_bytes_peak: 0,
        reserved_bytes: 0,
        reserved_bytes_peak: 0,
        inactive_split_bytes: 0,
    })
}

/// A validation after so many steps.
pub(super) fn validation(step: u64) -> Event<'static> {
    Event::Validation(ValidationEvent { step, epoch: 0, loss: 1.0, best: false, metrics: Metrics::default() })
}
