//! The kernels of this folder on the CPU, for the tests of the operations.
#![forbid(unsafe_code)]

use megabatch_simt::Harness;

pub(super) static HARNESS: Harness =
    Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/upload"), &["byte_swap", "gather"]);
