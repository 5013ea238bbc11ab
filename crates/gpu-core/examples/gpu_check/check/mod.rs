//! The checks and measurements, for the program and for a test of it on a made-up driver.

mod bandwidth;
mod report;
mod sources;
mod stress;

use std::cell::OnceCell;

use megabatch_gpu_core::cuda::Gpu;
use megabatch_gpu_core::{Device, Result};

use crate::source_suite;
use crate::watch::{Check, Outcome};

/// Extent of the checks.
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
    /// For a GPU. No check is to come near the limit of `watch`.
    #[allow(dead_code, reason = "the test of this program runs the quick plan only")]
    pub(crate) fn full() -> Self {
        Plan { stress_events: 6_000, stress_bytes: 4 << 30, copy_bytes: 512 << 20, copies: 11 }
    }

    /// Every check, and rates that mean nothing: for a first look, or a made-up GPU.
    pub(crate) fn quick() -> Self {
        Plan { stress_events: 60, stress_bytes: 512 << 10, copy_bytes: 64 << 10, copies: 1 }
    }
}

/// A GPU that is checked.
pub(crate) struct Bench {
    plan: Plan,
    gpu: Gpu,
    ordinal: u32,
    /// From the first check on that is not of a source of memory: the suite of these counts what
    /// memory there is.
    device: OnceCell<Device>,
}

impl Bench {
    /// # Errors
    /// If there is no such GPU, or its properties cannot be read.
    pub(crate) fn open(ordinal: u32, plan: Plan) -> Result<Self> {
        Ok(Bench { plan, gpu: Gpu::open(ordinal)?, ordinal, device: OnceCell::new() })
    }

    /// Heading of the table.
    pub(crate) fn head(&self, date: &str) -> String {
        report::head(self.gpu.properties(), date)
    }

    /// Waits for the GPU.
    ///
    /// # Errors
    /// If the device does not work any more.
    pub(crate) fn settle(&self) -> Outcome {
        self.gpu.synchronize()?;
        Ok(String::new())
    }

    /// All checks, those of sources of memory first.
    pub(crate) fn checks(&self) -> Vec<Check<'_>> {
        let source_check = |&(name, case): &(&str, _)| {
            Check::new(format!("memory: {name}"), move || {
                sources::run(&self.gpu, case)?;
                Ok("ok".to_owned())
            })
        };
        let mut checks: Vec<Check<'_>> = source_suite::CASES.iter().map(source_check).collect();
        checks.push(Check::new("pool: random blocks keep their contents", || Ok(self.stress()?)));
        checks.push(Check::new("rates over the bus", || self.rates(bandwidth::Bench::over_the_bus)));
        checks.push(Check::new("rates of mapping memory", || self.rates(bandwidth::Bench::pages)));
        checks.push(Check::new("rates within the GPU", || self.rates(bandwidth::Bench::within_device)));
        checks
    }

    fn device(&self) -> Result<&Device> {
        if self.device.get().is_none() {
            let _ = self.device.set(Device::cuda(self.ordinal)?);
        }
        Ok(self.device.get().expect("it was set"))
    }

    fn stress(&self) -> Result<String> {
        let Plan { stress_events: events, stress_bytes, .. } = self.plan;
        let bytes_max = stress_bytes.min(self.gpu.memory()?.free_bytes / 2);
        let calls = stress::Stress { events, bytes_max }.run(self.device()?)?;
        Ok(format!("ok, {calls} driver calls for {events} random allocations"))
    }

    fn rates<'b>(&'b self, measure: fn(&bandwidth::Bench<'b>) -> Result<Vec<bandwidth::Rate>>) -> Outcome {
        let bytes = self.plan.copy_bytes.min(self.gpu.memory()?.free_bytes / 4);
        let rates = measure(&bandwidth::Bench::new(self.device()?, bytes, self.plan.copies))?;
        let rates: Vec<String> = rates.iter().map(|rate| format!("{} {:.1}", rate.name, rate.gb_per_s)).collect();
        Ok(format!("GB/s, {} MiB at a time: {}", bytes >> 20, rates.join("; ")))
    }
}
