//! The kernels of this folder on the CPU, for the tests of the operations.
#![forbid(unsafe_code)]

use megabatch_simt::Harness;

pub(super) static HARNESS: Harness =
    Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops"), &["unscale_and_check", "update"]);

/// Numbers from -`most` to `most`.
pub(super) fn noise(len: usize, most: f32) -> Vec<f32> {
    let unit = |k: u32| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
    (0..len as u32).map(|k| (2.0 * unit(k) - 1.0) * most).collect()
}
