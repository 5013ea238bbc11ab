//! The suites of operations of segment, amp and trainer on a device of this machine, and whole
//! runs, as a table that grows row by row. `scripts/gpu-check` builds it and runs it.
//!
//! `cargo run --release -p megabatch-trainer --example gpu_operations -- [--device N | --device
//! cpu]`

#[path = "../../../amp/tests/suite/mod.rs"]
mod amp_suite;
#[path = "../../../nn-cuda/examples/device/mod.rs"]
mod device;
#[path = "../../tests/graphs/made_up.rs"]
#[allow(dead_code, reason = "made for the tests of graphs on the processor, and not all of it is needed here")]
mod made_up;
#[path = "../../../nn-cuda/tests/suite/mod.rs"]
mod nn_suite;
mod runs;
#[path = "../../../segment/tests/suite/mod.rs"]
mod segment_suite;
#[path = "../../../gpu-core/examples/gpu_check/watch.rs"]
mod watch;

use std::error::Error;
use std::process::{Command, ExitCode};

use megabatch_gpu_core::{CublasLt, Device};

use watch::{Check, Outcome};

const USAGE: &str = "gpu_operations [--device N | --device cpu]";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let from = from(&mut words);
    let device = match device::named("gpu_operations", USAGE, &words) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let done = match from {
        Some(from) => watch::work(&checks(&device), from, &|| settle(&device), &mut std::io::stdout()),
        None => watched(device, &words),
    };
    done.map_or_else(
        |error| {
            eprintln!("gpu_operations: {error}");
            ExitCode::from(watch::FAILED)
        },
        ExitCode::from,
    )
}

/// The check to begin with, where this is the process that does them: `--from K`, last.
fn from(words: &mut Vec<String>) -> Option<usize> {
    let [.., flag, number] = &words[..] else { return None };
    let from = (flag == "--from").then(|| number.parse().ok()).flatten()?;
    words.truncate(words.len() - 2);
    Some(from)
}

/// Lets go of the device before the checks have it.
fn watched(device: Device, words: &[String]) -> std::io::Result<u8> {
    println!("\nOperations on {device}\n");
    let names: Vec<String> = checks(&device).into_iter().map(|check| check.name).collect();
    drop(device);
    let program = std::env::current_exe()?;
    let worker = |from: usize| {
        let mut command = Command::new(&program);
        command.args(words).arg("--from").arg(from.to_string());
        command
    };
    watch::watch(&names, &worker, watch::LIMIT, &mut std::io::stdout())
}

/// The cases of all suites.
fn checks(device: &Device) -> Vec<Check<'_>> {
    let segment = segment_suite::CASES.iter();
    let segment = segment.map(|&(name, case)| case_check("segment", name, move || case(device)));
    let amp = amp_suite::CASES.iter();
    let amp = amp.map(|&(name, case)| case_check("amp", name, move || case(device)));
    let trainer = nn_suite::CASES.iter();
    let trainer = trainer.map(|&(name, case)| case_check("trainer", name, move || case(device)));
    let library = Check::new("trainer: which cuBLASLt is here".to_owned(), move || library(device));
    let by_library = nn_suite::LIBRARY_CASES.iter().map(|&(name, case)| {
        Check::new(format!("trainer: {name}"), move || match has_library(device)? {
            true => case(device).map(|()| "ok".to_owned()).map_err(Into::into),
            false => Ok("skipped: there is no cuBLASLt that this driver runs".to_owned()),
        })
    });
    let runs = runs::CASES.iter().map(|&(name, run)| Check::new(format!("trainer: {name}"), move || run(device)));
    segment.chain(amp).chain(trainer).chain([library]).chain(by_library).chain(runs).collect()
}

fn case_check<'d, E: Error + 'static>(suite: &str, name: &str, case: impl Fn() -> Result<(), E> + 'd) -> Check<'d> {
    Check::new(format!("{suite}: {name}"), move || {
        case()?;
        Ok("ok".to_owned())
    })
}

/// Waits for the device.
fn settle(device: &Device) -> Outcome {
    if let Some(gpu) = device.gpu() {
        gpu.synchronize()?;
    }
    Ok(String::new())
}

fn has_library(device: &Device) -> megabatch_gpu_core::Result<bool> {
    let Device::Cuda(cuda) = device else { return Ok(false) };
    Ok(CublasLt::open(cuda)?.is_some())
}

/// Name and path of cuBLASLt, if it is here.
fn library(device: &Device) -> Outcome {
    let Device::Cuda(cuda) = device else { return Ok("not for the processor".to_owned()) };
    let library = CublasLt::open(cuda)?;
    let name = |library: CublasLt| format!("{}, {}", library.name(), library.path().display());
    Ok(library.map_or_else(|| "none that this driver runs".to_owned(), name))
}
