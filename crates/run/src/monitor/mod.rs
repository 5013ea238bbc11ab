//! A run that trains, or has trained, followed through what it writes into its folder.

#[cfg(test)]
mod made_up;
mod monitored_run;
mod run_status;
mod warning;

pub use crate::gpu::GpuSample;
pub use monitored_run::MonitoredRun;
pub use run_status::{READINGS, Reading, RunStatus};
