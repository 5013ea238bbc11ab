//! The checks and measurements, for the program and for a test of it on a made-up driver.

mod bandwidth;
mod report;
mod sources;
mod stress;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use megabatch_gpu_core::cuda::Gpu;
use megabatch_gpu_core::{Device, Error, Result, ops};

pub(crate) use report::Report;
use report::{Check, Copying};

/// How much is done.
pub(crate) struct Plan {
    /// Allocations and frees of the stress.
    stress_events: usize,
    /// Most bytes that it holds at a time; half of what is free, if that is less.
    stress_bytes: usize,
    /// Bytes of each copy; a quarter of what is free, if that is less.
    copy_bytes: usize,
    /// Copies of which the median counts.
    copies: usize,
}

impl Plan {
    /// For a GPU: about a minute.
    #[allow(dead_code, reason = "the test of this program runs the quick plan only")]
    pub(crate) fn full() -> Self {
        Plan { stress_events: 20_000, stress_bytes: 4 << 30, copy_bytes: 512 << 20, copies: 11 }
    }

    /// Every check, and rates that mean nothing: for a first look, or a made-up GPU.
    pub(crate) fn quick() -> Self {
        Plan { stress_events: 60, stress_bytes: 512 << 10, copy_bytes: 64 << 10, copies: 1 }
    }
}

/// Runs everything on the GPU `ordinal`. What fails is in the report.
///
/// # Errors
/// Where there is no such GPU, it gives no figures about itself, or a copy fails.
pub(crate) fn run(ordinal: u32, plan: &Plan) -> Result<Report> {
    // The suite of sources counts what memory there is, and so comes before the device takes any.
    let mut checks = source_checks(&Gpu::open(ordinal)?);
    let device = &Device::cuda(ordinal)?;
    let gpu = device.gpu().expect("the device is a GPU");
    let free_bytes = gpu.memory()?.free_bytes;
    checks.extend(
        ops::conformance::CASES.iter().map(|(name, case)| timed(&format!("operation: {name}"), || case(device))),
    );
    let stress = stress::Stress { events: plan.stress_events, bytes_max: plan.stress_bytes.min(free_bytes / 2) };
    let mut calls = 0;
    checks.push(timed("pool: random blocks keep their contents", || {
        calls = stress.run(device)?;
        Ok(())
    }));
    let copying = Copying { bytes: plan.copy_bytes.min(free_bytes / 4), rates: Vec::new() };
    let rates = bandwidth::rates(device, copying.bytes, plan.copies)?;
    Ok(Report {
        properties: gpu.properties().clone(),
        checks,
        stress_driver_calls: calls,
        stress_events: plan.stress_events,
        copying: Copying { rates, ..copying },
    })
}

fn source_checks(gpu: &Gpu) -> Vec<Check> {
    use megabatch_gpu_core::source::conformance::CASES;
    CASES.iter().map(|(name, case)| timed(&format!("memory: {name}"), || sources::run(gpu, *case))).collect()
}

/// Runs a check; a panic is a failure, and its message is on the standard error.
fn timed(name: &str, check: impl FnOnce() -> Result<(), Error>) -> Check {
    let start = Instant::now();
    let fault = match catch_unwind(AssertUnwindSafe(check)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(message(&*panic)),
    };
    Check { name: name.to_owned(), fault, seconds: start.elapsed().as_secs_f64() }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
