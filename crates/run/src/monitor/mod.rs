//! A run, watched through the files in its folder.

#[cfg(any(test, feature = "conformance"))]
#[path = "tests/fixtures.rs"]
pub mod fixtures;
mod monitored_run;
mod run_status;
mod warning;

pub use crate::gpu::GpuSample;
pub use monitored_run::MonitoredRun;
pub use run_status::{READINGS, Reading, RunStatus};
