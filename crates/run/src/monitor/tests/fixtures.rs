//! Lines of logs, and what they say, for tests.

use serde_json::{Value, json};

use super::run_status::RunStatus;
pub use crate::gpu::fixtures::sample as gpu;

/// Ten samples in half a second: a quarter of it waiting, half of it computing.
pub fn step(step: u64, loss: f64) -> Value {
    json!({
        "event": "step", "step": step, "steps": 10, "epoch": 0, "samples": 10, "loss": loss, "lr": 0.001, "grad_norm": 1.5,
        "data_wait_s": 0.125, "forward_s": 0.125, "backward_s": 0.0625, "optimizer_s": 0.0625, "samples_per_s": 20.0,
        "allocated_bytes": 300_000_000,
    })
}

/// A validation that took a second.
pub fn validation(step: u64, loss: f64) -> Value {
    json!({ "event": "validation", "step": step, "epoch": 0, "loss": loss, "validation_s": 1.0 })
}

/// The end of the first epoch.
pub fn epoch(step: u64) -> Value {
    json!({
        "event": "epoch", "step": step, "epoch": 0, "allocated_bytes": 300_000_000, "allocated_bytes_peak": 350_000_000,
        "reserved_bytes": 400_000_000, "reserved_bytes_peak": 400_000_000,
    })
}

/// Status after `lines`.
pub fn seen(lines: &[Value]) -> RunStatus {
    let mut status = RunStatus::default();
    lines.iter().for_each(|line| status.see(line));
    status
}
