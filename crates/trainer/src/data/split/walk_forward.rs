//! Walk-forward evaluation: each fold trains on the samples before its test.

use serde::{Deserialize, Serialize};

use super::{Purge, Split, SplitFractions, check};
use crate::data::sample_ranges::SampleRanges;
use crate::error::{Error, Result};

/// Walk-forward validation over the test's share of the samples.
///
/// With shares a, v and c for training, validation and test, K folds and overlap o, each test has c
/// / (1 + (K - 1)(1 - o)) of the samples, and begins (1 - o) of that after the one before; the
/// first begins where [`split`](super::split) begins its own. Right before a test lies its
/// validation, v of the samples, and before that what is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalkForward {
    /// K, ≥ 1.
    pub folds: usize,
    /// Training window of a fold.
    pub window: TrainingWindow,
    /// Share of a fold's test that the next fold tests again, in [0, 1).
    pub overlap: f64,
}

/// Training window of a fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainingWindow {
    /// To the first sample.
    #[default]
    Expanding,
    /// As long as in the first fold: the training's share of the samples.
    Sliding,
}

/// The times at which the parts of a fold begin and its test ends, in ns; `i64::MAX` for a part
/// that does not.
struct Instants {
    training: i64,
    validation: i64,
    test: i64,
    end: i64,
}

/// The parts of the `fold`-th fold, counted from 0.
///
/// Unlike in [`split`](super::split), the purge excludes samples at the end of training and of
/// validation and never of the test. Without overlap, the tests of all folds together have every
/// sample from the first test's beginning on, once.
///
/// # Errors
/// [`Error::Setting`] for settings out of range; [`Error::NothingLeft`] when a part with a fraction
/// above 0 ends up without samples.
///
/// # Panics
/// If the purge's times are not one a sample.
pub fn walk_forward(
    time_ns: &[i64],
    fractions: SplitFractions,
    walk: WalkForward,
    fold: usize,
    purge: Purge<'_>,
) -> Result<Split> {
    check(fractions)?;
    walk.check(fractions, fold)?;
    purge.check_len(time_ns.len());
    let Instants { training, validation, test, end } = walk.instants(time_ns, fractions, fold);
    let samples_between = |start_ns: i64, end_ns: i64| -> SampleRanges {
        let inside = |time: i64| time >= start_ns && (time < end_ns || end_ns == i64::MAX);
        time_ns.iter().enumerate().filter(|&(_, &time)| inside(time)).map(|(sample, _)| sample).collect()
    };
    let before = [samples_between(training, validation), samples_between(validation, test), samples_between(test, end)];
    let counts = before.each_ref().map(SampleRanges::len);

    let [training, validating, testing] = before;
    let limit = Limit { time_ns, purge };
    let validating = limit.keep_before(&validating, &testing);
    let training = limit.keep_before(&limit.keep_before(&training, &testing), &validating);
    for (part, fraction, [before, after]) in [
        ("training", fractions.train, [counts[0], training.len()]),
        ("validation", fractions.validation, [counts[1], validating.len()]),
        ("test", fractions.test, [counts[2], testing.len()]),
    ] {
        if fraction > 0.0 && after == 0 {
            let advice =
                "give it a larger fraction of `split`, use fewer folds or shorter windows, set `purge`, or add data";
            return Err(Error::NothingLeft { part, before, after, advice });
        }
    }
    let purged = counts.iter().sum::<usize>() - training.len() - validating.len() - testing.len();
    Ok(Split {
        train: training,
        validation: validating,
        test: testing,
        validation_start_ns: validation,
        test_start_ns: test,
        purged,
    })
}

impl WalkForward {
    fn check(&self, fractions: SplitFractions, fold: usize) -> Result<()> {
        if self.folds == 0 {
            return Err(Error::setting("walk_forward", &0, "1 fold or more"));
        }
        if fold >= self.folds {
            return Err(Error::setting(
                "walk_forward_number",
                &(fold + 1),
                "a fold from 1 to `walk_forward`, their number",
            ));
        }
        if !(0.0..1.0).contains(&self.overlap) {
            return Err(Error::setting("walk_forward_overlap", &self.overlap, "a share from 0 to below 1"));
        }
        if fractions.test <= 0.0 {
            return Err(Error::setting(
                "split",
                &"0 for the test",
                "a third share above 0, which the folds go through",
            ));
        }
        Ok(())
    }

    fn instants(&self, time_ns: &[i64], fractions: SplitFractions, fold: usize) -> Instants {
        let mut sorted = time_ns.to_vec();
        sorted.sort_unstable();
        let time_at = |share: f64| {
            let rank = (share * sorted.len() as f64).round() as usize;
            sorted.get(rank).copied().unwrap_or(i64::MAX)
        };
        let SplitFractions { train, validation, test } = fractions;
        let pace = 1.0 - self.overlap;
        let step = test / (1.0 + (self.folds - 1) as f64 * pace) * pace;
        // In steps, so that without overlap a test ends with the very number that the next one
        // begins with.
        let after = |steps: f64| train + validation + steps * step;
        let test_start = time_at(after(fold as f64));
        let validation_start = if validation > 0.0 { time_at(after(fold as f64) - validation) } else { test_start };
        Instants {
            training: match self.window {
                TrainingWindow::Expanding => i64::MIN,
                // The first fold goes back to the first sample.
                TrainingWindow::Sliding if fold == 0 => i64::MIN,
                TrainingWindow::Sliding => time_at(fold as f64 * step),
            },
            validation: validation_start.min(test_start),
            test: test_start,
            end: if fold + 1 == self.folds { i64::MAX } else { time_at(after(fold as f64 + 1.0 / pace)) },
        }
    }
}

/// The purge before a later part.
#[derive(Clone, Copy)]
struct Limit<'a> {
    time_ns: &'a [i64],
    purge: Purge<'a>,
}

impl Limit<'_> {
    /// First time at which a sample is clear of the sample `earlier`.
    fn clear_time(self, earlier: usize) -> i64 {
        match self.purge {
            Purge::Windows { label_end_ns, .. } => label_end_ns[earlier],
            Purge::Duration(duration_ns) => self.time_ns[earlier].saturating_add(duration_ns),
        }
    }

    /// Samples of `samples` that no sample of `later` overlaps.
    fn keep_before(self, samples: &SampleRanges, later: &SampleRanges) -> SampleRanges {
        let starts = self.starts();
        let limit_ns = later.iter().map(|sample| starts[sample]).min().unwrap_or(i64::MAX);
        samples.iter().filter(|&sample| self.clear_time(sample) <= limit_ns).collect()
    }

    fn starts(&self) -> &[i64] {
        match self.purge {
            Purge::Windows { window_start_ns, .. } => window_start_ns,
            Purge::Duration(_) => self.time_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::split::split;

    const SHARES: SplitFractions = SplitFractions { train: 0.5, validation: 0.1, test: 0.4 };

    fn walk(folds: usize, window: TrainingWindow, overlap: f64) -> WalkForward {
        WalkForward { folds, window, overlap }
    }

    fn all(time: &[i64], walk: WalkForward, purge: Purge<'_>) -> Result<Vec<Split>> {
        (0..walk.folds).map(|fold| walk_forward(time, SHARES, walk, fold, purge)).collect()
    }

    fn span(part: &SampleRanges) -> (usize, usize) {
        (part.first().unwrap(), part.last().unwrap() + 1)
    }

    fn contains(part: &SampleRanges, sample: usize) -> bool {
        part.runs().any(|run| run.contains(&sample))
    }

    #[test]
    fn folds_walk_through_the_last_share() {
        let time: Vec<i64> = (0..100).collect();
        let spans = |walk| {
            let folds = all(&time, walk, Purge::Duration(0)).unwrap();
            folds.iter().map(|fold| [span(&fold.train), span(&fold.validation), span(&fold.test)]).collect::<Vec<_>>()
        };
        assert_eq!(
            spans(walk(2, TrainingWindow::Expanding, 0.0)),
            [[(0, 50), (50, 60), (60, 80)], [(0, 70), (70, 80), (80, 100)]]
        );
        assert_eq!(
            spans(walk(2, TrainingWindow::Sliding, 0.0)),
            [[(0, 50), (50, 60), (60, 80)], [(20, 70), (70, 80), (80, 100)]]
        );
        // Three tests of 20, ten apart.
        assert_eq!(
            spans(walk(3, TrainingWindow::Sliding, 0.5)),
            [[(0, 50), (50, 60), (60, 80)], [(10, 60), (60, 70), (70, 90)], [(20, 70), (70, 80), (80, 100)]]
        );
    }

    #[test]
    fn the_purge_takes_from_what_lies_before() {
        let time: Vec<i64> = (0..100).collect();
        let window_start: Vec<i64> = time.iter().map(|t| t - 4).collect();
        let label_end: Vec<i64> = time.iter().map(|t| t + 3).collect();
        let purge = Purge::Windows { window_start_ns: &window_start, label_end_ns: &label_end };
        let folds = all(&time, walk(2, TrainingWindow::Expanding, 0.0), purge).unwrap();
        // The first window of the test opens at 56: the last label may end there. That of the
        // validation opens at 46.
        assert_eq!(
            [span(&folds[0].train), span(&folds[0].validation), span(&folds[0].test)],
            [(0, 44), (50, 54), (60, 80)]
        );
        assert_eq!((folds[0].purged, folds[0].validation_start_ns, folds[0].test_start_ns), (12, 50, 60));
        let duration = all(&time, walk(2, TrainingWindow::Expanding, 0.0), Purge::Duration(7)).unwrap();
        assert_eq!(duration, folds);
    }

    #[test]
    fn settings_out_of_range_and_parts_without_samples_are_named() {
        let time: Vec<i64> = (0..100).collect();
        let message = |walk, fold, fractions| {
            walk_forward(&time, fractions, walk, fold, Purge::Duration(11)).unwrap_err().to_string()
        };
        let (expanding, no_test) =
            (TrainingWindow::Expanding, SplitFractions { train: 0.8, validation: 0.2, test: 0.0 });
        for (walk, fold, fractions, expected) in [
            (walk(0, expanding, 0.0), 0, SHARES, "`walk_forward` is 0"),
            (walk(3, expanding, 0.0), 3, SHARES, "`walk_forward_number` is 4"),
            (walk(3, expanding, 1.0), 0, SHARES, "`walk_forward_overlap` is 1"),
            (walk(3, expanding, f64::NAN), 0, SHARES, "`walk_forward_overlap` is NaN"),
            (walk(3, expanding, 0.0), 0, no_test, "`split` is 0 for the test"),
            (
                walk(3, expanding, 0.0),
                0,
                SHARES,
                "no samples are left for validation (10 before the purge, 0 after it);",
            ),
        ] {
            let message = message(walk, fold, fractions);
            assert!(message.starts_with(expected), "{message}");
        }
    }

    proptest! {
        /// Several instruments share times.
        #[test]
        fn no_label_reaches_into_a_later_part_and_every_sample_is_tested_once(
            time in prop::collection::vec(0i64..300, 30..200), (window, horizon) in (0i64..8, 0i64..8),
            (folds, sliding) in (1usize..6, any::<bool>()),
        ) {
            let window_start: Vec<i64> = time.iter().map(|t| t - window).collect();
            let label_end: Vec<i64> = time.iter().map(|t| t + horizon).collect();
            let purge = Purge::Windows { window_start_ns: &window_start, label_end_ns: &label_end };
            let kind = if sliding { TrainingWindow::Sliding } else { TrainingWindow::Expanding };
            let Ok(parts) = all(&time, walk(folds, kind, 0.0), purge) else { return Ok(()) };
            let starts = |part: &SampleRanges| part.iter().map(|s| window_start[s]).min().unwrap();
            for fold in &parts {
                prop_assert!(fold.validation.iter().all(|s| label_end[s] <= starts(&fold.test)));
                let later = starts(&fold.test).min(starts(&fold.validation));
                prop_assert!(fold.train.iter().all(|s| label_end[s] <= later));
                prop_assert!(fold.train.iter().all(|s| time[s] < fold.validation_start_ns));
                prop_assert!(fold.validation.iter().all(|s| (fold.validation_start_ns..fold.test_start_ns).contains(&time[s])));
            }
            let mut tested: Vec<usize> = parts.iter().flat_map(|fold| fold.test.iter()).collect();
            tested.sort_unstable();
            let first_test_ns = parts[0].test_start_ns;
            prop_assert_eq!(tested, (0..time.len()).filter(|&s| time[s] >= first_test_ns).collect::<Vec<_>>());
            for pair in parts.windows(2) {
                prop_assert!(sliding || pair[0].train.iter().all(|s| contains(&pair[1].train, s)));
            }
            let whole = split(&time, SHARES, Purge::Duration(0)).unwrap();
            prop_assert_eq!(parts[0].validation_start_ns, whole.validation_start_ns);
            prop_assert_eq!(first_test_ns, whole.test_start_ns);
        }

        #[test]
        fn tests_overlap_and_training_slides_by_their_shares(
            folds in 2usize..6, overlap in 0.0f64..0.9, count in 200usize..400,
        ) {
            let time: Vec<i64> = (0..count as i64).collect();
            let parts = all(&time, walk(folds, TrainingWindow::Sliding, overlap), Purge::Duration(0)).unwrap();
            let tested = parts[0].test.len() as f64;
            for pair in parts.windows(2) {
                let shared = pair[1].test.iter().filter(|&s| contains(&pair[0].test, s)).count() as f64;
                // Each end of a span is rounded to a sample.
                prop_assert!((shared - overlap * tested).abs() <= 2.0, "{} of {}", shared, tested);
                prop_assert!((pair[1].test.len() as f64 - tested).abs() <= 2.0);
                prop_assert!(pair[1].train.len().abs_diff(pair[0].train.len()) <= 2);
            }
            prop_assert_eq!(parts[folds - 1].test.last(), Some(count - 1));
        }
    }
}
