//! Any bytes as the files of an edge list.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::graphs::edge_list(bytes));
