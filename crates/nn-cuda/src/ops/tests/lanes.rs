//! The order in which a warp adds, for operations on the CPU that have their kernels' bits.
const LANES: usize = 32;

/// The sum of `term` over 0 … `len` - 1: lane `j` of 32 starts at zero and takes `j`, `j + 32`, …
/// in turn; then the upper half of the lanes is added to the lower, down to one.
pub(super) fn sum(len: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    for (k, lane) in (0..len).zip((0..LANES).cycle()) {
        lanes[lane] += term(k);
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (lower, upper) = lanes.split_at_mut(half);
        lower.iter_mut().zip(upper).for_each(|(lower, upper)| *lower += *upper);
        half /= 2;
    }
    lanes[0]
}
