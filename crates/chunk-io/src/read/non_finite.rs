/// Treatment of NaN and infinities in windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// Returned as they are, unchecked.
    #[default]
    Pass,
    /// An error that names the first feature that is NaN or infinite, or target that is infinite. A
    /// target that is not known is NaN, and is returned.
    Fail,
}

/// Exponent of all values that are NaN or infinite (IEEE 754 binary32).
const EXPONENT: u32 = 0x7f80_0000;

/// Values tested at once: the test takes few instructions, and most data pass it.
const STRIDE: usize = 512;

/// True if `rule` checks values and one of `values` is NaN or infinite.
pub(crate) fn has_non_finite(rule: NonFinite, values: &[f32]) -> bool {
    let any = |values: &[f32]| values.iter().fold(false, |any, value| any | (value.to_bits() & EXPONENT == EXPONENT));
    rule == NonFinite::Fail && values.chunks(STRIDE).any(any)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strides_find_what_a_plain_loop_finds(
            len in 0..3 * STRIDE + 2, places in prop::collection::vec(0..3 * STRIDE + 2, 0..3), bad in 0..3_usize
        ) {
            let mut values = vec![f32::MAX; len];
            let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][bad];
            places.iter().filter(|&&place| place < len).for_each(|&place| values[place] = bad);
            let expected = values.iter().any(|value| !value.is_finite());
            prop_assert_eq!(has_non_finite(NonFinite::Fail, &values), expected);
            prop_assert!(!has_non_finite(NonFinite::Pass, &values));
        }
    }
}
