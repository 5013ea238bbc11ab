//! Any bytes as a stored chunk with the filter deflate.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::chunk::one_filter(bytes, "deflate"));
