#![forbid(unsafe_code)]

//! The suites of operations of segment, amp and trainer on a device of this machine, as a table. `scripts/gpu-check` builds it and runs it.
//!
//! `cargo run --release -p megabatch-trainer --example gpu_operations -- [--device N | --device cpu]`

mod device;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use megabatch_gpu_core::{CublasLt, Device};
use megabatch_trainer::ops;

const USAGE: &str = "gpu_operations [--device N | --device cpu]";

/// What a case found, or the device's error.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let device = match device::named("gpu_operations", USAGE) {
        Ok(device) => device,
        Err(code) => return code,
    };
    println!("| operations on {device} | |\n| --- | --- |");
    let mut failed = 0;
    let mut tell = |suite: &str, case: &str, run: &dyn Fn() -> Outcome| {
        let outcome = outcome(run);
        failed += usize::from(outcome.is_err());
        println!(
            "| {suite}: {case} | {} |",
            outcome.map_or_else(|why| why.replace(['\n', '|'], " "), |()| "passed".to_owned())
        );
    };
    for (case, run) in megabatch_segment::ops::conformance::CASES {
        tell("segment", case, &|| Ok(run(&device)?));
    }
    for (case, run) in megabatch_amp::ops::conformance::CASES {
        tell("amp", case, &|| Ok(run(&device)?));
    }
    for (case, run) in ops::conformance::CASES {
        tell("trainer", case, &|| Ok(run(&device)?));
    }
    println!("| cuBLASLt | {} |", library(&device));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Which library cases were about, if any.
fn library(device: &Device) -> String {
    let Device::Cuda(cuda) = device else { return "not for the processor".to_owned() };
    match CublasLt::open(cuda) {
        Ok(Some(library)) => library.name(),
        Ok(None) => "none that this driver runs".to_owned(),
        Err(error) => error.to_string().replace(['\n', '|'], " "),
    }
}

/// That of a case; where it panics, what it says.
fn outcome(run: &dyn Fn() -> Outcome) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text
                .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                .unwrap_or_else(|| "panicked".to_owned()))
        }
    }
}
