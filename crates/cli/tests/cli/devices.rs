//! What a machine with an NVIDIA driver changes: a fake one, found by the name that a real one has.
#![cfg(target_os = "linux")]

use megabatch_simt::driver::FakeDriver;

use crate::stage::{SERIES, SMALL, Stage};

const TRAIN: &str = "train --data series.h5 --out run --max-steps 1";

/// Exit code and standard error of `megabatch LINE` on a machine with a driver.
fn with_driver(stage: &Stage, line: &str) -> (Option<i32>, String) {
    let output = stage.command(line).env("LD_LIBRARY_PATH", FakeDriver::folder()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_gpu_is_refused_by_the_trainer_and_auto_trains_on_the_cpu() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let (code, message) = with_driver(&stage, &format!("{TRAIN} --device cuda:0"));
    assert_eq!(code, Some(6));
    assert_eq!(
        message,
        "megabatch: device `cuda:0` is present, but the trainer runs on the CPU only so far; use cpu or auto\n"
    );
    let (code, message) = with_driver(&stage, &format!("{TRAIN} --device cuda:1"));
    assert_eq!(code, Some(6));
    assert!(message.contains("the driver lists 1 devices"), "{message}");
    let (code, message) = with_driver(&stage, &format!("{TRAIN} {SMALL} --device auto"));
    assert_eq!(code, Some(0), "{message}");
}

#[test]
fn without_a_driver_the_loader_says_why() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    for message in stage.fails(&format!("{TRAIN} --device cuda:0"), 6) {
        // The other on a machine that has one.
        let reasons = ["device `cuda:0`: no CUDA driver: libcuda.so.1: cannot open", "CPU only so far"];
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{message}");
    }
}
