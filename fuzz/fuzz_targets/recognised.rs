//! Any bytes as a file of bars whose format is to be recognised.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::read_in_every_mode(bytes, None));
