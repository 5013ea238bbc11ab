use serde::Serialize;

/// Treatment of NaN and infinities in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// Returned as they are, unchecked.
    #[default]
    Pass,
    /// Returned as they are, and counted.
    Count,
    /// Replaced by 0, and counted.
    Zero,
    /// An error that names the first feature that is NaN or infinite, or target that is infinite. A
    /// target that is not known is NaN, and is returned.
    Fail,
}

/// Values read so far that were NaN or infinite; a value that was read twice counts twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NonFiniteFound {
    /// Count.
    pub count: u64,
    /// The dataset in which they were found first.
    pub dataset: String,
    /// Place of the first in that dataset, in its order, by axis: sample, step, feature.
    pub index: Vec<usize>,
}

impl NonFiniteFound {
    /// Adds what a later request found.
    pub(super) fn add(&mut self, later: &NonFiniteFound) {
        self.count += later.count;
        if self.dataset == later.dataset && later.index < self.index {
            self.index.clone_from(&later.index);
        }
    }
}

/// Count and least flat index of values that are not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NonFiniteCount {
    pub(crate) count: u64,
    pub(crate) first: Option<usize>,
}

impl NonFiniteCount {
    pub(crate) fn merge(&mut self, other: NonFiniteCount) {
        self.count += other.count;
        self.first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Exponent of all values that are NaN or infinite (IEEE 754 binary32).
const EXPONENT: u32 = 0x7f80_0000;

/// Values tested at once: the test takes few instructions, and most data pass it.
const STRIDE: usize = 512;

/// Applies `rule` to `values`, the first of which has the flat index `first` in its dataset.
pub(crate) fn check(rule: NonFinite, first: usize, values: &mut [f32]) -> NonFiniteCount {
    let mut tally = NonFiniteCount::default();
    if rule == NonFinite::Pass {
        return tally;
    }
    for (stride, values) in values.chunks_mut(STRIDE).enumerate() {
        let any = values.iter().fold(false, |any, value| any | (value.to_bits() & EXPONENT == EXPONENT));
        if any {
            tally.merge(look_closely(rule, first + stride * STRIDE, values));
        }
    }
    tally
}

fn look_closely(rule: NonFinite, first: usize, values: &mut [f32]) -> NonFiniteCount {
    let mut tally = NonFiniteCount::default();
    for (i, value) in values.iter_mut().enumerate().filter(|(_, value)| !value.is_finite()) {
        tally.merge(NonFiniteCount { count: 1, first: Some(first + i) });
        if rule == NonFinite::Zero {
            *value = 0.0;
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_rule_does_what_it_says() {
        let dirty = [1.0, f32::NAN, f32::MAX, f32::NEG_INFINITY];
        let found = NonFiniteCount { count: 2, first: Some(11) };
        for (rule, tally, second) in [
            (NonFinite::Pass, NonFiniteCount::default(), f32::NAN),
            (NonFinite::Count, found, f32::NAN),
            (NonFinite::Fail, found, f32::NAN),
            (NonFinite::Zero, found, 0.0),
        ] {
            let mut values = dirty;
            assert_eq!(check(rule, 10, &mut values), tally, "{rule:?}");
            assert_eq!(values[1].to_bits(), second.to_bits(), "{rule:?}");
            assert_eq!(values[2], f32::MAX);
        }
        assert_eq!(check(NonFinite::Count, 0, &mut []), NonFiniteCount::default());
    }

    proptest! {
        #[test]
        fn strides_find_what_a_plain_loop_finds(
            len in 0..3 * STRIDE + 2, places in prop::collection::vec(0..3 * STRIDE + 2, 0..6), first in 0..9_usize
        ) {
            let mut values = vec![0.5_f32; len];
            places.iter().filter(|&&place| place < len).for_each(|&place| values[place] = f32::INFINITY);
            let expected = NonFiniteCount {
                count: values.iter().filter(|value| !value.is_finite()).count() as u64,
                first: values.iter().position(|value| !value.is_finite()).map(|place| first + place),
            };
            prop_assert_eq!(check(NonFinite::Zero, first, &mut values), expected);
            prop_assert!(values.iter().all(|value| value.is_finite()));
        }
    }
}
