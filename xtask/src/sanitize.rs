//! `cargo xtask sanitize`: conversions and hostile files under AddressSanitizer, HDF5's C included.
//!
//! HDF5 keeps lists of freed blocks, in which a use after free shows nowhere: they are off here.
//! The sanitizer asks for a nightly compiler or for `RUSTC_BOOTSTRAP=1`, which makes the stable one
//! accept it. Leaks are not checked: that needs ptrace, which containers forbid.

use anyhow::Result;

use crate::limits::succeed_without_limit;
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// Tests of chunk-io that open, copy and write files of every storage.
const TESTS: [&str; 4] = ["convert", "rechunk", "series_conversion", "hostile_files"];

const C_FLAGS: &str = "-fsanitize=address -fno-omit-frame-pointer -g1 -DH5_USING_MEMCHECKER";

/// `sanitize [ARGS…]`: the tests, or those that ARGS of the test harness name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    // Flags reach neither build scripts nor macros where a target is named.
    let mut test = cargo(&workspace.root, &["test", "--package", "megabatch-chunk-io", "--target", "host-tuple"]);
    test.args(TESTS.iter().flat_map(|test| ["--test", test])).arg("--").args(args);
    test.env("CARGO_TARGET_DIR", workspace.target_dir.join("sanitize"));
    test.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address").env("CFLAGS", C_FLAGS);
    test.env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=1");
    succeed_without_limit(tools::with_cmake(&mut test, &workspace)?)
}
