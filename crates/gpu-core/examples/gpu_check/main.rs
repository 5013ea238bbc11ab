//! Checks and measures megabatch on the GPU of this machine, and prints a table. `scripts/gpu-check` builds it and runs it.

mod check;

use std::process::ExitCode;

use check::{Plan, Report};
use megabatch_gpu_core::Error;

const USAGE: &str = "gpu-check [--device N] [--date YYYY-MM-DD] [--quick]";

/// What `megabatch` itself exits with where a device cannot be had.
const NO_DEVICE: u8 = 6;

struct Arguments {
    ordinal: u32,
    date: String,
    plan: Plan,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments(std::env::args().skip(1)) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match check::run(arguments.ordinal, &arguments.plan) {
        Ok(report) => print(&report, &arguments.date),
        Err(error @ (Error::DriverAbsent { .. } | Error::NoSuchDevice { .. } | Error::DriverTooOld { .. })) => {
            eprintln!("gpu-check: {error}");
            ExitCode::from(NO_DEVICE)
        }
        Err(error) => {
            eprintln!("gpu-check: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(report: &Report, date: &str) -> ExitCode {
    println!("{}", report.markdown(date));
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments { ordinal: 0, date: "undated".to_owned(), plan: Plan::full() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--device" => arguments.ordinal = words.next()?.parse().ok()?,
            "--quick" => arguments.plan = Plan::quick(),
            "--date" => arguments.date = words.next()?,
            _ => return None,
        }
    }
    Some(arguments)
}
