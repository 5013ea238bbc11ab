//! The program of `scripts/gpu-check`, on the fake driver, and how it goes on where a check takes
//! its process with it.

use std::process::Command;
use std::time::Duration;

use megabatch_simt::driver::{FakeDriver, Setting};

use crate::watch::{self, FAILED, PASSED};

#[path = "../../examples/gpu_check/check/mod.rs"]
mod check;

/// The rows of the checks from number `first` on, and what the process would exit with.
fn rows(first: usize, prepare: impl FnOnce(&FakeDriver)) -> (Vec<String>, u8) {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let bench = check::Bench::open(0, check::Plan::quick()).unwrap();
    assert!(bench.head("2026-01-02").starts_with("## Fake GPU 0, 2026-01-02\n"));
    prepare(&driver);
    let mut out = Vec::new();
    let code = watch::work(&bench.checks(), first, &|| bench.settle(), &mut out).unwrap();
    (String::from_utf8(out).unwrap().lines().map(str::to_owned).collect(), code)
}

#[test]
fn every_check_has_its_row_and_what_fails_is_the_verdict() {
    let (rows, code) = rows(0, |driver| driver.fail("cuEventElapsedTime", 1, 700));
    let text = rows.join("\n");
    for piece in [
        "| memory: a small capacity can be used to its end, and again | ok |",
        "| pool: random blocks keep their contents | ok, ",
        "pinned host to device ",
        "| rates within the GPU | **failed**: cuda:0: cuEventElapsedTime(",
    ] {
        assert!(text.contains(piece), "no `{piece}` in:\n{text}");
    }
    assert_eq!(text.matches("**failed**").count(), 1, "{text}");
    assert_eq!(code, FAILED);
}

#[test]
fn behind_a_check_that_loses_the_device_nothing_is_tried() {
    let (all, code) = rows(0, |_| {});
    assert_eq!(code, PASSED);
    let first = all.iter().position(|row| row.contains("rates over the bus")).unwrap();
    // The device fails where it is waited for after that check.
    let (found, code) = rows(first, |driver| driver.fail("cuCtxSynchronize", 1, 700));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("| rates over the bus | **failed**: cuda:0: cuCtxSynchronize("));
    assert!(![PASSED, FAILED].contains(&code));
}

#[test]
fn checks_go_on_behind_one_that_ends_its_process_or_hangs() {
    let names: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).into();
    // What each process does, by the check that it begins with.
    let worker = |first: usize| {
        let script = match first {
            0 => "echo '| a | ok | 0 |'; kill -9 $$",
            2 => "echo '| c | **failed**: lost | 0 |'; exit 7",
            3 => "exec sleep 600",
            _ => "echo '| e | ok | 0 |'; echo '| f | ok | 0 |'",
        };
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    };
    let mut out = Vec::new();
    let code = watch::watch(&names, &worker, Duration::from_secs(2), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(rows.len(), names.len(), "{text}");
    assert_eq!(
        [rows[0], rows[2], rows[4], rows[5]],
        ["| a | ok | 0 |", "| c | **failed**: lost | 0 |", "| e | ok | 0 |", "| f | ok | 0 |"]
    );
    assert!(rows[1].starts_with("| b | **failed**: its process ended with signal: 9"), "{text}");
    assert!(rows[3].starts_with("| d | **failed**: it did not end within 2 s"), "{text}");
    assert_eq!(code, FAILED);
}
