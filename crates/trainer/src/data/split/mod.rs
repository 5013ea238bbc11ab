//! Training, validation and test samples by time, with a purge between them.
//!
//! Neighbouring samples share bars: a label reaches into the future and a window into the past.
//! Without a gap between the parts, a validation sample's window would hold bars that a training
//! label was computed from, and its error would flatter the model.

mod in_pieces;
pub mod reckoning;
mod walk_forward;

use std::error::Error as StdError;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use in_pieces::{PurgeRule, SampleTimes, TimeColumn, count_overlaps, split_in_pieces};
pub use walk_forward::{TrainingWindow, WalkForward, walk_forward};

use crate::data::sample_ranges::SampleRanges;
use crate::error::{Error, Result};

/// Shares of the samples, by time: training first, then validation, then test. Validation and test
/// may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitFractions {
    /// Share of the samples to train on, > 0.
    pub train: f64,
    /// Share of the samples to validate on.
    pub validation: f64,
    /// Share of the samples kept for the test.
    pub test: f64,
}

impl Default for SplitFractions {
    fn default() -> Self {
        SplitFractions { train: 0.7, validation: 0.15, test: 0.15 }
    }
}

/// Distance rule between samples of an earlier and a later part.
///
/// [`split`] excludes later samples that break it, [`walk_forward()`] earlier ones.
#[derive(Clone, Copy, Debug)]
pub enum Purge<'a> {
    /// The later sample depends on no bar that opens before the earlier sample's label ends.
    Windows {
        /// Open time of the earliest bar that each sample depends on, ns: in its windows or, before
        /// them, where the look-back of their features is known.
        window_start_ns: &'a [i64],
        /// Close time of the last bar that each sample's label uses, ns.
        label_end_ns: &'a [i64],
    },
    /// The later sample is at least this much later than the earlier one, ns.
    Duration(i64),
}

impl Purge<'_> {
    fn check_len(&self, samples: usize) {
        if let Purge::Windows { window_start_ns, label_end_ns } = self {
            assert_eq!([window_start_ns.len(), label_end_ns.len()], [samples; 2], "one time a sample");
        }
    }
}

/// The samples of each part, by index, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Samples to train on.
    pub train: SampleRanges,
    /// Samples to validate on.
    pub validation: SampleRanges,
    /// Samples kept for the test.
    pub test: SampleRanges,
    /// Time of the first sample after training, before the purge; `i64::MAX` where there is none.
    pub validation_start_ns: i64,
    /// Time of the first sample after validation, before the purge; `i64::MAX` where there is none.
    pub test_start_ns: i64,
    /// Samples that the purge took away.
    pub purged: usize,
}

/// Splits samples at two instants, the same for every instrument, so that each part gets its
/// fraction of the samples.
///
/// `time_ns` has each sample's time in any order. Samples of one time stay together. The purge
/// excludes samples of validation and test, each by its own start, and never of training. With
/// [`Purge::Windows`] the limit is the end of the last label of any instrument: of training for
/// validation, of both for the test.
///
/// # Errors
/// [`Error::Setting`] for fractions that are negative or do not sum to 1; [`Error::NothingLeft`]
/// when training, or a part with a fraction above 0, ends up without samples.
///
/// # Panics
/// If the purge's times are not one a sample.
pub fn split(time_ns: &[i64], fractions: SplitFractions, purge: Purge<'_>) -> Result<Split> {
    purge.check_len(time_ns.len());
    let rule = match purge {
        Purge::Windows { .. } => PurgeRule::Windows,
        Purge::Duration(duration_ns) => PurgeRule::Duration(duration_ns),
    };
    split_in_pieces(&TimesInMemory { time_ns, purge }, fractions, rule)
}

/// Times of samples in memory, as one piece.
struct TimesInMemory<'a> {
    time_ns: &'a [i64],
    purge: Purge<'a>,
}

impl SampleTimes for TimesInMemory<'_> {
    fn len(&self) -> usize {
        self.time_ns.len()
    }

    fn scan(
        &self,
        column: TimeColumn,
        samples: Range<usize>,
        each: &mut dyn FnMut(usize, &[i64]),
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let times = match (column, self.purge) {
            (TimeColumn::WindowStart, Purge::Windows { window_start_ns, .. }) => window_start_ns,
            (TimeColumn::LabelEnd, Purge::Windows { label_end_ns, .. }) => label_end_ns,
            _ => self.time_ns,
        };
        each(samples.start, &times[samples]);
        Ok(())
    }
}

fn check(fractions: SplitFractions) -> Result<()> {
    let SplitFractions { train, validation, test } = fractions;
    let all = [train, validation, test];
    let in_range = train > 0.0 && all.iter().all(|share| (0.0..=1.0).contains(share));
    if !in_range || (all.iter().sum::<f64>() - 1.0).abs() > 1e-6 {
        let value = format!("{train}, {validation}, {test}");
        return Err(Error::setting("split", &value, "fractions from 0 to 1 that sum to 1, training above 0"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fractions(train: f64, validation: f64, test: f64) -> SplitFractions {
        SplitFractions { train, validation, test }
    }

    #[test]
    fn parts_follow_each_other_with_a_gap() {
        let time: Vec<i64> = (0..100).collect();
        let no_gap = split(&time, fractions(0.7, 0.15, 0.15), Purge::Duration(0)).unwrap();
        assert_eq!([no_gap.train.len(), no_gap.validation.len(), no_gap.test.len()], [70, 15, 15]);
        assert_eq!((no_gap.validation_start_ns, no_gap.test_start_ns, no_gap.purged), (70, 85, 0));

        // Windows of 4 bars and labels 3 bars ahead: 69 + 3 = 72 is the first open time that
        // validation may see.
        let window_start: Vec<i64> = time.iter().map(|t| t - 4).collect();
        let label_end: Vec<i64> = time.iter().map(|t| t + 3).collect();
        let purge = Purge::Windows { window_start_ns: &window_start, label_end_ns: &label_end };
        let gap = split(&time, fractions(0.7, 0.15, 0.15), purge).unwrap();
        assert_eq!(
            (gap.train.len(), gap.validation.first(), gap.test.first(), gap.purged),
            (70, Some(76), Some(91), 12)
        );
        let duration = split(&time, fractions(0.7, 0.15, 0.15), Purge::Duration(7)).unwrap();
        assert_eq!((duration.validation, duration.test), (gap.validation, gap.test));
    }

    #[test]
    fn validation_and_test_may_be_empty() {
        let time: Vec<i64> = (0..10).collect();
        for (fractions, counts) in [
            (fractions(1.0, 0.0, 0.0), [10, 0, 0]),
            (fractions(0.8, 0.2, 0.0), [8, 2, 0]),
            (fractions(0.8, 0.0, 0.2), [8, 0, 2]),
        ] {
            let parts = split(&time, fractions, Purge::Duration(0)).unwrap();
            assert_eq!([parts.train.len(), parts.validation.len(), parts.test.len()], counts);
        }
        let only_test = split(&time, fractions(0.5, 0.0, 0.5), Purge::Duration(4)).unwrap();
        assert_eq!((only_test.train.len(), only_test.test), (5, SampleRanges::from(8..10)));
    }

    #[test]
    fn a_part_without_samples_is_an_error_with_both_counts() {
        let time: Vec<i64> = (0..100).collect();
        let error = split(&time, fractions(0.7, 0.15, 0.15), Purge::Duration(16)).unwrap_err().to_string();
        assert!(error.starts_with("no samples are left for validation (15 before the purge, 0 after it);"), "{error}");
        let error = split(&[], fractions(1.0, 0.0, 0.0), Purge::Duration(0)).unwrap_err().to_string();
        assert!(error.starts_with("no samples are left for training (0 before the purge, 0 after it);"), "{error}");
        for wrong in [fractions(0.0, 0.5, 0.5), fractions(0.7, 0.1, 0.1), fractions(1.5, -0.5, 0.0)] {
            assert!(matches!(split(&time, wrong, Purge::Duration(0)), Err(Error::Setting { .. })));
        }
    }

    proptest! {
        /// Several instruments share times: no training label may reach into a later window, and
        /// nobody is lost unpurged.
        #[test]
        fn no_label_reaches_into_a_later_part(
            time in prop::collection::vec(0i64..200, 1..150), window in 0i64..10, horizon in 0i64..10,
        ) {
            let window_start: Vec<i64> = time.iter().map(|t| t - window).collect();
            let label_end: Vec<i64> = time.iter().map(|t| t + horizon).collect();
            let purge = Purge::Windows { window_start_ns: &window_start, label_end_ns: &label_end };
            let Ok(parts) = split(&time, fractions(0.6, 0.2, 0.2), purge) else { return Ok(()) };
            let limit = |part: &SampleRanges| part.iter().map(|s| label_end[s]).max().unwrap();
            prop_assert!(parts.validation.iter().all(|s| window_start[s] >= limit(&parts.train)));
            prop_assert!(parts.test.iter().all(|s| window_start[s] >= limit(&parts.validation).max(limit(&parts.train))));
            prop_assert!(parts.train.iter().all(|s| time[s] < parts.validation_start_ns));
            let kept = parts.train.len() + parts.validation.len() + parts.test.len();
            prop_assert_eq!(kept + parts.purged, time.len());
        }
    }
}
