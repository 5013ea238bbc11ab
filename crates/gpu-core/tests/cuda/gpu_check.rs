//! The program of `scripts/gpu-check`, on the fake driver.

use crate::ops::driver_with_kernels;

#[path = "../../examples/gpu_check/check/mod.rs"]
mod check;

#[test]
fn every_check_has_its_line_and_what_fails_is_the_verdict() {
    let driver = driver_with_kernels();
    driver.fail("cuLaunchKernel", 1, 700);
    let report = check::run(0, &check::Plan::quick()).unwrap();
    let text = report.markdown("2026-01-02");
    for piece in [
        ", 2026-01-02\n",
        "| memory: a small capacity can be used to its end, and again | ok |",
        "| operation: fill sets every element | **failed**: cuda:0: cuLaunchKernel(fill, ",
        "| operation: cast rounds as the CPU does | ok |",
        "| pool: random blocks keep their contents | ok |",
        "| pinned host to device | ",
        "| kernel reduce sum, f32 | ",
    ] {
        assert!(text.contains(piece), "no `{piece}` in:\n{text}");
    }
    assert_eq!(text.matches("**failed**").count(), 1, "{text}");
    assert!(!report.passed());
}
