#![forbid(unsafe_code)]

//! The suites of operations of segment, amp and trainer on a device of this machine, as a table. `scripts/gpu-check` builds it and runs it.
//!
//! `cargo run --release -p megabatch-trainer --example gpu_operations -- [--device N | --device cpu]`

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use megabatch_gpu_core::Device;
use megabatch_trainer::ops;

const USAGE: &str = "gpu_operations [--device N | --device cpu]";

/// What `megabatch` itself exits with where a device cannot be had.
const NO_DEVICE: u8 = 6;

/// What a case found, or the device's error.
type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "cuda:0".to_owned(),
        ["--device", "cpu"] => "cpu".to_owned(),
        ["--device", ordinal] if ordinal.parse::<u32>().is_ok() => format!("cuda:{ordinal}"),
        _ => {
            eprintln!("usage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    let device = match Device::select(&name) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("gpu_operations: {error}");
            return ExitCode::from(NO_DEVICE);
        }
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
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
