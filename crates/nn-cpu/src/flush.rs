//! Gradients that vanish become zero.

/// The smallest normal number over the distance from 1 to the next number.
pub(crate) const NEGLIGIBLE: f32 = f32::MIN_POSITIVE / f32::EPSILON;

/// `x`, or zero where its magnitude is below [`NEGLIGIBLE`].
///
/// A gradient that vanishes over hundreds of steps does not reach zero: multiplied by a gate above
/// 1/2, the smallest subnormal number rounds to itself for ever, and CPUs take a hundred times as
/// long for a product with such a number. The limit lies high enough that a product with a factor
/// above the rounding error is still normal.
pub(crate) fn flush(x: f32) -> f32 {
    if x < NEGLIGIBLE && x > -NEGLIGIBLE { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negligible_numbers_become_zero_and_nothing_else_changes() {
        for kept in [1.0, -1.0, NEGLIGIBLE, -NEGLIGIBLE, f32::INFINITY, 0.0] {
            assert_eq!(flush(kept), kept);
        }
        assert!(flush(f32::NAN).is_nan());
        for flushed in [NEGLIGIBLE * 0.99, -f32::MIN_POSITIVE, f32::from_bits(1)] {
            assert_eq!(flush(flushed), 0.0);
        }
    }
}
