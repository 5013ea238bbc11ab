//! Any bytes as a file of the format `year-last`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megabatch_bars::FormatName;

fuzz_target!(|bytes: &[u8]| megabatch_fuzz::read_in_every_mode(bytes, Some(FormatName::YearLast)));
