//! Checks and measures megabatch on the GPU of this machine, and prints a table row by row.
//! `scripts/gpu-check` builds it and runs it.

mod check;
#[path = "../../tests/source_suite/mod.rs"]
mod source_suite;
mod watch;

use std::process::{Command, ExitCode};

use check::{Bench, Plan};
use megabatch_gpu_core::Error;

const USAGE: &str = "gpu-check [--device N] [--date YYYY-MM-DD] [--quick]";

/// Exit code of `megabatch` itself where a device cannot be had.
const NO_DEVICE: u8 = 6;

struct Arguments {
    ordinal: u32,
    date: String,
    plan: Plan,
    /// The check to begin with, for the process that does them.
    first: Option<usize>,
}

fn main() -> ExitCode {
    let Some(Arguments { ordinal, date, plan, first }) = arguments(std::env::args().skip(1)) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    let bench = match Bench::open(ordinal, plan) {
        Ok(bench) => bench,
        Err(error) => return refused(&error),
    };
    let done = match first {
        Some(first) => watch::work(&bench.checks(), first, &|| bench.settle(), &mut std::io::stdout()),
        None => watched(bench, &date),
    };
    done.map_or_else(
        |error| {
            eprintln!("gpu-check: {error}");
            ExitCode::from(watch::FAILED)
        },
        ExitCode::from,
    )
}

/// Lets go of the GPU before the checks have it.
fn watched(bench: Bench, date: &str) -> std::io::Result<u8> {
    println!("{}", bench.head(date));
    let names: Vec<String> = bench.checks().into_iter().map(|check| check.name).collect();
    drop(bench);
    let program = std::env::current_exe()?;
    let worker = |first: usize| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).arg("--from").arg(first.to_string());
        command
    };
    watch::watch(&names, &worker, watch::LIMIT, &mut std::io::stdout())
}

fn refused(error: &Error) -> ExitCode {
    eprintln!("gpu-check: {error}");
    match error {
        Error::DriverAbsent { .. } | Error::NoSuchDevice { .. } | Error::DriverTooOld { .. } => {
            ExitCode::from(NO_DEVICE)
        }
        _ => ExitCode::from(watch::FAILED),
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments { ordinal: 0, date: "undated".to_owned(), plan: Plan::full(), first: None };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--device" => arguments.ordinal = words.next()?.parse().ok()?,
            "--quick" => arguments.plan = Plan::quick(),
            "--date" => arguments.date = words.next()?,
            "--from" => arguments.first = Some(words.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(arguments)
}
