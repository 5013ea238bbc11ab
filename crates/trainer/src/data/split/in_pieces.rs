//! A split of samples whose times are read in pieces. Memory grows with the runs of consecutive
//! samples in the parts, not with samples.

use std::error::Error as StdError;
use std::ops::Range;

use super::{Split, SplitFractions, check};
use crate::data::sample_ranges::SampleRanges;
use crate::error::{Error, Result};

/// Error of a source of times; it names its file and place.
type SourceError = Box<dyn StdError + Send + Sync>;

/// A time that each sample has, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeColumn {
    /// When the sample was taken.
    Sample,
    /// As `window_start_ns` of [`Purge::Windows`](super::Purge::Windows).
    WindowStart,
    /// As `label_end_ns` of [`Purge::Windows`](super::Purge::Windows).
    LabelEnd,
}

/// Times of samples, read in pieces.
pub trait SampleTimes {
    /// Number of samples.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with the times of `samples` in order, piece by piece, and the number of the
    /// first sample of the piece.
    ///
    /// # Errors
    /// Whatever keeps the source from reading.
    fn scan(
        &self,
        column: TimeColumn,
        samples: Range<usize>,
        each: &mut dyn FnMut(usize, &[i64]),
    ) -> Result<(), SourceError>;
}

/// Distance rule between samples of an earlier and a later part; see [`Purge`](super::Purge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeRule {
    /// By [`TimeColumn::WindowStart`] and [`TimeColumn::LabelEnd`].
    Windows,
    /// By [`TimeColumn::Sample`], ns.
    Duration(i64),
}

/// [`split`](super::split) of samples whose times are read in pieces.
///
/// # Errors
/// As [`split`](super::split); [`Error::Gather`] where times cannot be read.
pub fn split_in_pieces(times: &dyn SampleTimes, fractions: SplitFractions, purge: PurgeRule) -> Result<Split> {
    check(fractions)?;
    let reader = Reader { times, purge };
    let [validation_start_ns, test_start_ns] = reader.instants(fractions)?;
    let mut parts = [(); 3].map(|()| SampleRanges::default());
    reader.scan(TimeColumn::Sample, &reader.all(), |sample, time| {
        parts[part_at(time, [validation_start_ns, test_start_ns])].push(sample..sample + 1);
    })?;
    let [train, before_validation, before_test] = parts;
    let after_train = reader.clear_time(&train)?;
    let validation = reader.keep(&before_validation, after_train)?;
    let test = reader.keep(&before_test, after_train.max(reader.clear_time(&validation)?))?;
    for (part, fraction, [before, after]) in [
        ("training", fractions.train, [train.len(); 2]),
        ("validation", fractions.validation, [before_validation.len(), validation.len()]),
        ("test", fractions.test, [before_test.len(), test.len()]),
    ] {
        if fraction > 0.0 && after == 0 {
            return Err(part_without_samples(part, before, after));
        }
    }
    let purged = times.len() - train.len() - validation.len() - test.len();
    Ok(Split { train, validation, test, validation_start_ns, test_start_ns, purged })
}

/// The part of a sample taken at `time_ns`, by the times at which validation and test begin.
fn part_at(time_ns: i64, starts_ns: [i64; 2]) -> usize {
    starts_ns.iter().filter(|&&start_ns| start_ns <= time_ns).count()
}

fn part_without_samples(part: &'static str, before: usize, after: usize) -> Error {
    let advice = "give it a larger fraction of `split`, shorten the windows, set `purge`, or add data";
    Error::NothingLeft { part, before, after, advice }
}

/// Number of samples of `later` whose windows begin before the last label of `earlier` ends.
///
/// # Errors
/// [`Error::Gather`] where times cannot be read.
pub fn count_overlaps(times: &dyn SampleTimes, earlier: &SampleRanges, later: &SampleRanges) -> Result<usize> {
    let reader = Reader { times, purge: PurgeRule::Windows };
    Ok(later.len() - reader.keep(later, reader.clear_time(earlier)?)?.len())
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    times: &'a dyn SampleTimes,
    purge: PurgeRule,
}

impl Reader<'_> {
    fn all(self) -> SampleRanges {
        SampleRanges::from(0..self.times.len())
    }

    fn scan(self, column: TimeColumn, samples: &SampleRanges, mut each: impl FnMut(usize, i64)) -> Result<()> {
        for run in samples.runs() {
            let (first, last, count) = (run.start, run.end - 1, run.len());
            let mut piece = |first: usize, times: &[i64]| (first..).zip(times).for_each(|(n, &time)| each(n, time));
            let scanned = self.times.scan(column, run, &mut piece);
            scanned.map_err(|source| Error::Gather { first, last, count, source })?;
        }
        Ok(())
    }

    /// First time at which a sample is clear of all samples of `earlier`.
    fn clear_time(self, earlier: &SampleRanges) -> Result<i64> {
        let (column, beyond) = match self.purge {
            PurgeRule::Windows => (TimeColumn::LabelEnd, 0),
            PurgeRule::Duration(duration_ns) => (TimeColumn::Sample, duration_ns),
        };
        let mut limit = i64::MIN;
        self.scan(column, earlier, |_, time| limit = limit.max(time.saturating_add(beyond)))?;
        Ok(limit)
    }

    /// The samples of `part` that begin at `limit_ns` or later.
    fn keep(self, part: &SampleRanges, limit_ns: i64) -> Result<SampleRanges> {
        let column = if self.purge == PurgeRule::Windows { TimeColumn::WindowStart } else { TimeColumn::Sample };
        let mut kept = SampleRanges::default();
        self.scan(column, part, |sample, start| {
            if start >= limit_ns {
                kept.push(sample..sample + 1);
            }
        })?;
        Ok(kept)
    }

    /// The times at which validation and test begin; `i64::MAX` for a part that does not.
    fn instants(self, fractions: SplitFractions) -> Result<[i64; 2]> {
        // Rounded, so that 0.7 + 0.15 of 100 samples is 85 although the sum of the doubles is less.
        let rank = |share: f64| (share * self.times.len() as f64).round() as usize;
        let ranks = [rank(fractions.train), rank(fractions.train + fractions.validation)];
        let [after_train, after_validation] = self.values_at(ranks)?;
        let test = if fractions.test > 0.0 { after_validation } else { i64::MAX };
        let validation = if fractions.validation > 0.0 { after_train } else { test };
        Ok([validation.min(test), test])
    }

    /// The times of these ranks among all, ascending; `i64::MAX` beyond the last.
    fn values_at(self, ranks: [usize; 2]) -> Result<[i64; 2]> {
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        self.scan(TimeColumn::Sample, &self.all(), |_, time| (low, high) = (low.min(time), high.max(time)))?;
        let beyond = Bracket { low: i64::MAX, high: i64::MAX, rank: 0, values: 1 };
        let mut brackets = ranks.map(|rank| match rank < self.times.len() {
            true => Bracket { low, high, rank, values: self.times.len() },
            false => beyond,
        });
        while brackets.iter().any(|bracket| !bracket.is_small()) {
            let mut counts = brackets.map(|bracket| vec![0_usize; if bracket.is_small() { 0 } else { BUCKETS }]);
            self.scan(TimeColumn::Sample, &self.all(), |_, time| {
                for (bracket, counts) in brackets.iter().zip(&mut counts).filter(|(_, counts)| !counts.is_empty()) {
                    bracket.bucket_of(time).into_iter().for_each(|bucket| counts[bucket] += 1);
                }
            })?;
            for (bracket, counts) in brackets.iter_mut().zip(&counts).filter(|(_, counts)| !counts.is_empty()) {
                bracket.narrow(counts);
            }
        }
        let mut values = [(); 2].map(|()| Vec::new());
        if brackets.iter().any(|bracket| bracket.low < bracket.high) {
            self.scan(TimeColumn::Sample, &self.all(), |_, time| {
                for (bracket, values) in brackets.iter().zip(&mut values) {
                    if bracket.low < bracket.high && (bracket.low..=bracket.high).contains(&time) {
                        values.push(time);
                    }
                }
            })?;
        }
        let mut found = [i64::MAX; 2];
        for ((found, bracket), mut values) in found.iter_mut().zip(brackets).zip(values) {
            *found = match values.is_empty() {
                true => bracket.low,
                false => *values.select_nth_unstable(bracket.rank).1,
            };
        }
        Ok(found)
    }
}

/// Buckets of a histogram.
const BUCKETS: usize = 1 << 16;
/// Values that are sorted at once.
const SORTED_MAX: usize = 1 << 18;

/// Bounds of the value of a rank.
#[derive(Clone, Copy)]
struct Bracket {
    low: i64,
    /// Inclusive.
    high: i64,
    /// Rank among the values within.
    rank: usize,
    /// Number of values within.
    values: usize,
}

impl Bracket {
    fn is_small(&self) -> bool {
        self.low == self.high || self.values <= SORTED_MAX
    }

    /// Width of a bucket.
    fn width(&self) -> u64 {
        self.high.wrapping_sub(self.low) as u64 / BUCKETS as u64 + 1
    }

    fn bucket_of(&self, time: i64) -> Option<usize> {
        let inside = (self.low..=self.high).contains(&time);
        inside.then(|| (time.wrapping_sub(self.low) as u64 / self.width()) as usize)
    }

    /// Bounds of the bucket that holds the rank.
    fn narrow(&mut self, counts: &[usize]) {
        let mut before = 0;
        let bucket = counts.iter().position(|count| {
            before += count;
            before > self.rank
        });
        let bucket = bucket.expect("the rank is one of the values within");
        let width = self.width();
        let low = self.low.wrapping_add((bucket as u64 * width) as i64);
        let last = low.checked_add_unsigned(width - 1).unwrap_or(i64::MAX);
        *self = Bracket {
            low,
            high: last.min(self.high),
            rank: self.rank - (before - counts[bucket]),
            values: counts[bucket],
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::split::{Purge, split};

    struct InPieces<'a> {
        columns: [&'a [i64]; 3],
        piece: usize,
    }

    impl SampleTimes for InPieces<'_> {
        fn len(&self) -> usize {
            self.columns[0].len()
        }

        fn scan(
            &self,
            column: TimeColumn,
            samples: Range<usize>,
            each: &mut dyn FnMut(usize, &[i64]),
        ) -> Result<(), SourceError> {
            let times = self.columns[column as usize];
            for first in samples.clone().step_by(self.piece) {
                each(first, &times[first..samples.end.min(first + self.piece)]);
            }
            Ok(())
        }
    }

    /// The parts, found by sorting all times; empty where one that should have samples has none.
    fn sorted_split(columns: [&[i64]; 3], shares: [f64; 3], rule: PurgeRule) -> Option<[SampleRanges; 3]> {
        let [time, window_start, label_end] = columns;
        let mut sorted = time.to_vec();
        sorted.sort_unstable();
        let time_at =
            |share: f64| sorted.get((share * time.len() as f64).round() as usize).copied().unwrap_or(i64::MAX);
        let test_start = if shares[2] > 0.0 { time_at(shares[0] + shares[1]) } else { i64::MAX };
        let validation_start = if shares[1] > 0.0 { time_at(shares[0]).min(test_start) } else { test_start };
        let starts = [i64::MIN, validation_start, test_start];
        let part_of = |n: usize| (1..3).filter(|&part| starts[part] <= time[n]).count();
        let (begins, ends): (&[i64], Vec<i64>) = match rule {
            PurgeRule::Windows => (window_start, label_end.to_vec()),
            PurgeRule::Duration(duration) => (time, time.iter().map(|t| t.saturating_add(duration)).collect()),
        };
        let mut parts: [Vec<usize>; 3] = Default::default();
        for part in 0..3 {
            let limit = parts.iter().flatten().map(|&n| ends[n]).max().unwrap_or(i64::MIN);
            parts[part] = (0..time.len()).filter(|&n| part_of(n) == part && begins[n] >= limit).collect();
        }
        let is_whole = shares.iter().zip(&parts).all(|(&share, part)| share == 0.0 || !part.is_empty());
        is_whole.then(|| parts.map(SampleRanges::from_iter))
    }

    proptest! {
        #[test]
        fn parts_are_those_of_sorted_times(
            time in prop::collection::vec(prop_oneof![0_i64..200, any::<i64>(), Just(7)], 0..150),
            window in 0_i64..10, horizon in 0_i64..10, piece in 1_usize..40,
            shares in prop_oneof![Just([0.6, 0.2, 0.2]), Just([1.0, 0.0, 0.0]), Just([0.5, 0.0, 0.5]), Just([0.8, 0.2, 0.0])],
        ) {
            let window_start: Vec<i64> = time.iter().map(|t| t.saturating_sub(window)).collect();
            let label_end: Vec<i64> = time.iter().map(|t| t.saturating_add(horizon)).collect();
            let [train, validation, test] = shares;
            let fractions = SplitFractions { train, validation, test };
            let columns: [&[i64]; 3] = [&time, &window_start, &label_end];
            let pieces = InPieces { columns, piece };
            let windows = Purge::Windows { window_start_ns: &window_start, label_end_ns: &label_end };
            for (rule, purge) in
                [(PurgeRule::Windows, windows), (PurgeRule::Duration(horizon), Purge::Duration(horizon))]
            {
                let expected = sorted_split(columns, shares, rule);
                for found in [split_in_pieces(&pieces, fractions, rule), split(&time, fractions, purge)] {
                    let found = found.ok().map(|found| [found.train, found.validation, found.test]);
                    prop_assert_eq!(&found, &expected);
                }
            }
        }

        #[test]
        fn overlaps_are_counted_in_pieces(
            samples in prop::collection::vec((0_i64..200, 0_i64..10, 0_i64..10, 0_usize..3), 0..100), piece in 1_usize..40,
        ) {
            let column = |field: fn(&(i64, i64, i64, usize)) -> i64| samples.iter().map(field).collect::<Vec<_>>();
            let (time, start, end) = (column(|s| s.0), column(|s| s.0 - s.1), column(|s| s.0 + s.2));
            let part = |part: usize| (0..samples.len()).filter(|&n| samples[n].3 == part).collect::<SampleRanges>();
            let (earlier, later) = (part(0), part(1));
            let last = earlier.iter().map(|n| end[n]).max();
            let expected = later.iter().filter(|&n| last.is_some_and(|last| start[n] < last)).count();
            let pieces = InPieces { columns: [&time, &start, &end], piece };
            prop_assert_eq!(count_overlaps(&pieces, &earlier, &later).unwrap(), expected);
        }
    }

    /// Minutes of several instruments, one after the other.
    struct Minutes {
        instruments: usize,
        minutes: usize,
    }

    impl SampleTimes for Minutes {
        fn len(&self) -> usize {
            self.instruments * self.minutes
        }

        fn scan(
            &self,
            column: TimeColumn,
            samples: Range<usize>,
            each: &mut dyn FnMut(usize, &[i64]),
        ) -> Result<(), SourceError> {
            let shift = [0, -480, 36][column as usize];
            for first in samples.clone().step_by(4096) {
                let piece = first..samples.end.min(first + 4096);
                let times: Vec<i64> = piece.map(|sample| (sample % self.minutes) as i64 + shift).collect();
                each(first, &times);
            }
            Ok(())
        }
    }

    /// However many samples there are, a part keeps one run an instrument.
    #[test]
    fn a_part_is_a_run_an_instrument() {
        let minutes = Minutes { instruments: 3, minutes: 200_000 };
        let split = split_in_pieces(&minutes, SplitFractions::default(), PurgeRule::Windows).unwrap();
        let part = |start: usize, end: usize| -> SampleRanges {
            (0..3).map(|instrument| instrument * 200_000 + start..instrument * 200_000 + end).collect()
        };
        let expected = [part(0, 140_000), part(140_515, 170_000), part(170_515, 200_000)];
        assert_eq!([split.train, split.validation, split.test], expected);
        assert!(expected.iter().all(|part| part.runs().len() == 3));
    }

    /// More values than are sorted at once, over the whole range of times.
    #[test]
    fn ranks_are_found_among_many_values() {
        let mut state = 1_u64;
        let mut time: Vec<i64> = (0..SORTED_MAX + 1000)
            .map(|n| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if n % 3 == 0 { 5 } else { state as i64 >> (n % 40) }
            })
            .collect();
        let pieces = InPieces { columns: [&time, &time, &time], piece: 4096 };
        let ranks = [time.len() / 2, time.len() * 9 / 10];
        let found = Reader { times: &pieces, purge: PurgeRule::Windows }.values_at(ranks).unwrap();
        time.sort_unstable();
        assert_eq!(found, ranks.map(|rank| time[rank]));
    }
}
