//! The kernels of this folder on the CPU, for the tests of the operations.
use megabatch_order::random::{Stream, uniform};
use megabatch_simt::Harness;

use super::SOURCES;

pub(super) static HARNESS: Harness = Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops"), SOURCES);

/// Numbers from -`most` to `most`, others for each name.
pub(super) fn noise(name: &'static str, len: usize, most: f32) -> Vec<f32> {
    let stream = Stream { seed: 11, name };
    (0..len as u64).map(|k| (uniform(stream, k) as f32 - 0.5) * 2.0 * most).collect()
}
