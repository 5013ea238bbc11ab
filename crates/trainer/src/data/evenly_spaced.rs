//! Evenly spaced runs of samples, from which an evaluation estimates the errors on all of them.

use std::borrow::Cow;
use std::ops::Range;

use crate::config::Config;
use crate::data::sample_ranges::SampleRanges;

/// Consecutive samples of an estimate: so many share the windows of the longer timeframes.
const EVALUATED_RUN: usize = 64;

/// Most runs of an estimate with carried state: each has a warm-up.
const EVALUATED_STRETCHES: usize = 16;

/// Samples, or graphs, of a part that an evaluation takes: all, or evenly spaced runs from which
/// the errors on the part are estimated.
#[derive(Clone, Debug)]
pub struct DrawnSamples<'a> {
    /// The samples, in the order of the part.
    pub samples: Cow<'a, SampleRanges>,
    /// How they were chosen; `None` where they are the whole part.
    pub(crate) choice: Option<Choice>,
}

/// Choice of runs of consecutive samples of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Samples of each run but the last, which may be shorter.
    pub(crate) run_length: usize,
    /// Samples that are chosen.
    pub(crate) taken: usize,
    /// Samples of the part.
    pub(crate) part: usize,
}

impl DrawnSamples<'_> {
    /// True if errors on them are estimates of those on the part.
    pub fn is_estimate(&self) -> bool {
        self.choice.is_some()
    }

    /// Samples of the part that they are taken from.
    pub fn part_len(&self) -> usize {
        self.choice.map_or(self.samples.len(), |choice| choice.part)
    }
}

impl Config {
    /// The samples of `part`, or its graphs, that a validation takes
    /// ([`Config::validation_samples`]), drawn as [`Config::draw`] does.
    pub fn evaluated<'a>(&self, part: &'a SampleRanges) -> Cow<'a, SampleRanges> {
        self.draw(part, self.validation_samples).samples
    }

    /// The samples of `part` that a validation on a GPU takes: none where the CPU validates, in one
    /// pass over each segment ([`Config::streams`]).
    pub(crate) fn evaluated_on_gpu<'a>(&self, part: &'a SampleRanges) -> Cow<'a, SampleRanges> {
        if self.streams() { Cow::Borrowed(SampleRanges::NONE) } else { self.evaluated(part) }
    }

    /// At most `samples_max` samples, or graphs, of `part`, or all without a limit: evenly spaced
    /// runs of 64, among them the first and the last of `part`. If the model is evaluated in one
    /// pass over each segment ([`Config::streams`]), there are at most 16 runs, each of 64 or more
    /// except the last, and the states of each begin with a warm-up of four windows.
    ///
    /// They depend on neither the seed nor batches.
    pub fn draw<'a>(&self, part: &'a SampleRanges, samples_max: Option<usize>) -> DrawnSamples<'a> {
        let Some(count) = samples_max.filter(|&count| count < part.len()) else {
            return DrawnSamples { samples: Cow::Borrowed(part), choice: None };
        };
        let run_length = match self.streams() {
            true => count.div_ceil(EVALUATED_STRETCHES).max(EVALUATED_RUN),
            false => EVALUATED_RUN,
        };
        let mut drawn = SampleRanges::default();
        for positions in evenly_spaced(part.len(), count, run_length) {
            drawn.extend(part.slice(positions).runs());
        }
        let run_length = run_length_for(count, run_length);
        let choice = Choice { run_length, taken: count, part: part.len() };
        DrawnSamples { samples: Cow::Owned(drawn), choice: Some(choice) }
    }
}

/// Length of the runs of `count` places: if one run would do, two of half the length.
fn run_length_for(count: usize, run_length: usize) -> usize {
    run_length.min(count.div_ceil(2)).max(1)
}

/// Positions of `count` out of `len` places, or of all where there are no more: runs of
/// `run_length` consecutive places, the last one shorter where `count` is no multiple of it, and
/// two of half the length where one would do. The first run begins at the first place, the last
/// one ends at the last, and the gaps between them differ by one place at most.
fn evenly_spaced(len: usize, count: usize, run_length: usize) -> Vec<Range<usize>> {
    let count = count.min(len);
    if count == len {
        return (len > 0).then_some(0..len).into_iter().collect();
    }
    let run_length = run_length_for(count, run_length);
    let runs = count.div_ceil(run_length);
    let skipped = len - count;
    let run = |k: usize| {
        let before = (skipped as u128 * k as u128 / (runs - 1).max(1) as u128) as usize;
        let start = k * run_length;
        before + start..before + (start + run_length).min(count)
    };
    (0..runs).map(run).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_lie_as_evenly_as_whole_places_allow() {
        type Ends<'a> = &'a [(usize, usize)];
        let cases: [(usize, usize, usize, Ends<'_>); 8] = [
            (0, 5, 4, &[]),
            (5, 5, 2, &[(0, 5)]),
            (5, 9, 2, &[(0, 5)]),
            (10, 0, 4, &[]),
            (10, 1, 4, &[(0, 1)]),
            (10, 4, 2, &[(0, 2), (8, 10)]),
            (10, 3, 64, &[(0, 2), (9, 10)]),
            (12, 7, 3, &[(0, 3), (5, 8), (11, 12)]),
        ];
        for (len, count, run_length, expected) in cases {
            let ends = |run: &Range<usize>| (run.start, run.end);
            let found: Vec<_> = evenly_spaced(len, count, run_length).iter().map(ends).collect();
            assert_eq!(found, expected, "{count} of {len} by {run_length}");
        }
        let runs = evenly_spaced(558_228, 20_000, 64);
        assert_eq!((runs.len(), &runs[0], &runs[312]), (313, &(0..64), &(558_196..558_228)));
    }

    proptest! {
        /// An evaluation chooses from ranges as it would from the list of their samples.
        #[test]
        fn samples_are_chosen_from_ranges_as_from_the_list(
            runs in prop::collection::vec((0_usize..400, 1_usize..200), 1..8), count in 1_usize..800,
        ) {
            let list: Vec<usize> = runs.into_iter().flat_map(|(first, len)| first..first + len).collect();
            let config = Config { validation_samples: Some(count), ..Config::default() };
            let places = evenly_spaced(list.len(), count, EVALUATED_RUN).into_iter().flatten();
            let expected: SampleRanges = places.map(|place| list[place]).collect();
            let part: SampleRanges = list.into_iter().collect();
            prop_assert_eq!(&*config.evaluated(&part), &expected);
        }

        #[test]
        fn as_many_as_asked_for_each_once_with_both_ends_and_even_gaps(
            len in 0usize..5_000, count in 0usize..5_000, run_length in 1usize..200,
        ) {
            let runs = evenly_spaced(len, count, run_length);
            let places: Vec<usize> = runs.iter().cloned().flatten().collect();
            prop_assert_eq!(places.len(), count.min(len));
            prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]) && places.iter().all(|&place| place < len));
            if count.min(len) >= 2 {
                prop_assert_eq!((places[0], places[places.len() - 1]), (0, len - 1));
            }
            if count < len {
                let long = runs.iter().rev().skip(1).all(|run| run.len() == run_length.min(count.div_ceil(2)));
                prop_assert!(long && runs.iter().all(|run| !run.is_empty() && run.len() <= run_length));
                let gaps: Vec<usize> = runs.windows(2).map(|pair| pair[1].start - pair[0].end).collect();
                let (least, most) = (gaps.iter().min(), gaps.iter().max());
                prop_assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1), "{:?}", runs);
            }
        }
    }
}
