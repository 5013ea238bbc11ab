/// A set of granule indices: one bit each, and one bit for each word of bits, so that neighbours
/// are found in a few steps.
#[derive(Debug, Default)]
pub(super) struct GranuleSet {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl GranuleSet {
    pub(super) fn insert(&mut self, index: usize) {
        let word = index / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        self.words[word] |= 1 << (index % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    pub(super) fn remove(&mut self, index: usize) {
        let word = index / 64;
        if let Some(bits) = self.words.get_mut(word) {
            *bits &= !(1 << (index % 64));
            if *bits == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|bits| bits >> (index % 64) & 1 == 1)
    }

    /// The smallest member.
    pub(super) fn first(&self) -> Option<usize> {
        let (block, &summary) = self.summary.iter().enumerate().find(|(_, summary)| **summary != 0)?;
        let word = block * 64 + summary.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The largest member that is not larger than `index`.
    pub(super) fn last_up_to(&self, index: usize) -> Option<usize> {
        let word = index / 64;
        if let Some(&bits) = self.words.get(word)
            && let Some(bit) = highest(bits & (u64::MAX >> (63 - index % 64)))
        {
            return Some(word * 64 + bit);
        }
        let word = self.last_word_before(word.min(self.words.len()))?;
        Some(word * 64 + highest(self.words[word]).expect("the summary knows of a member"))
    }

    fn last_word_before(&self, word: usize) -> Option<usize> {
        let block = word / 64;
        if let Some(&summary) = self.summary.get(block)
            && let Some(bit) = highest(summary & !(u64::MAX << (word % 64)))
        {
            return Some(block * 64 + bit);
        }
        (0..block.min(self.summary.len())).rev().find_map(|b| highest(self.summary[b]).map(|bit| b * 64 + bit))
    }
}

fn highest(bits: u64) -> Option<usize> {
    bits.checked_ilog2().map(|bit| bit as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_answers_as_an_ordered_set(events in prop::collection::vec((0usize..20_000, any::<bool>()), 1..200)) {
            let (mut set, mut model) = (GranuleSet::default(), BTreeSet::new());
            for (index, add) in events {
                if add {
                    set.insert(index);
                    model.insert(index);
                } else {
                    // Mostly of what is there, or the set would never shrink.
                    let index = model.range(index..).next().copied().unwrap_or(index);
                    set.remove(index);
                    model.remove(&index);
                }
                prop_assert_eq!(set.contains(index), model.contains(&index));
                prop_assert_eq!(set.first(), model.first().copied());
                for probe in [0, index, index.saturating_sub(1), index + 64, 19_999, 30_000] {
                    prop_assert_eq!(set.last_up_to(probe), model.range(..=probe).next_back().copied());
                }
            }
        }
    }
}
