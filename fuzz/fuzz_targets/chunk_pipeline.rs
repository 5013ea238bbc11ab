//! Any bytes as a stored chunk with any filters.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::chunk::pipeline(bytes));
