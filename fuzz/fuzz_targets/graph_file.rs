//! Any bytes in place of some of a file of graphs, with checksums that fit.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::graph_files::read(bytes));
