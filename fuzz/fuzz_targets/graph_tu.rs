//! Any bytes as the files of a TU dataset.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::graphs::tu(bytes));
