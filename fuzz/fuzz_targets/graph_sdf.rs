//! Any bytes as a file of molecules.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::graphs::sdf(bytes));
