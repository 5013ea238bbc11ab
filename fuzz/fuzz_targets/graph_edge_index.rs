//! Any bytes as tensors of graphs.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::graphs::edge_index(bytes));
