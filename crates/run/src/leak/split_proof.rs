//! The proof that no label of one part of the split ends after the first bar that a later part
//! looks back at.

use megabatch_bars::{BarSource, Segment, StreamedInstrument, bars_before};
use megabatch_chunk_io::{SeriesColumn, SeriesFile, Source};
use megabatch_trainer::{self as trainer, SampleRanges, Split};
use serde::Serialize;

use crate::adapters::split::{split_source, walk_forward};
use crate::config::Config;
use crate::error::{Context as _, Error, Result};
use crate::text::utc;

/// Spans of time that the samples of a series use, from the bars themselves.
pub(super) struct ExactSpans<'a> {
    /// The series. Its samples were proven to be those of its bars.
    pub(super) file: &'a SeriesFile,
    /// Its bars, by instrument.
    pub(super) instruments: &'a [StreamedInstrument<'a>],
    /// Segments that have samples, in the order of these.
    pub(super) segments: &'a [Segment],
    pub(super) ends: LabelEnds,
}

/// Ends of the labels of samples.
#[derive(Clone, Copy)]
pub(super) enum LabelEnds {
    /// So many bars after each sample.
    Horizon(usize),
    /// As the file has them, which were proven to be those of its bars. They have no order.
    Stored,
}

impl ExactSpans<'_> {
    /// Close of the last bar that a label of `samples` reads. With a horizon, labels of an
    /// instrument end in the order of its samples, so that the last sample of each counts.
    fn last_label_end_ns(&self, samples: &SampleRanges) -> Result<i64> {
        let LabelEnds::Horizon(horizon) = self.ends else { return self.last_stored_end_ns(samples) };
        let mut last = vec![None; self.instruments.len()];
        for run in samples.runs() {
            let first = self.segments.partition_point(|segment| segment.samples.end <= run.start);
            let segments = self.segments[first..].iter().take_while(|segment| segment.samples.start < run.end);
            for segment in segments {
                let last = &mut last[segment.instrument as usize];
                *last = (*last).max(Some(segment.samples.end.min(run.end) - 1));
            }
        }
        let mut last_ns = i64::MIN;
        for (instrument, sample) in self.instruments.iter().zip(last) {
            if let Some(sample) = sample {
                last_ns = last_ns.max(self.label_end_ns(instrument.bars, sample, horizon)?);
            }
        }
        Ok(last_ns)
    }

    /// Looks a sample's base bar up by its close, and counts the horizon on from there.
    fn label_end_ns(&self, bars: &dyn BarSource, sample: usize, horizon: usize) -> Result<i64> {
        let mut time = [0];
        self.file.read_column(SeriesColumn::SampleTime, sample..sample + 1, &mut time)?;
        let (last, mut open_time) = (bars_before(bars, time[0])? + horizon, Vec::new());
        bars.read_open_times(last..last + 1, &mut open_time)?;
        Ok(open_time[0] + bars.timeframe().duration_ns())
    }

    fn last_stored_end_ns(&self, samples: &SampleRanges) -> Result<i64> {
        let mut last_ns = i64::MIN;
        for run in samples.runs() {
            self.file.scan_column(SeriesColumn::LabelEndTime, run, |_, ends_ns| {
                last_ns = ends_ns.iter().copied().fold(last_ns, i64::max);
                Ok::<(), Error>(())
            })?;
        }
        Ok(last_ns)
    }

    /// Samples of `later` that look back to before the end of a label of `earlier`, and the last of
    /// these ends.
    pub(super) fn reached_by(&self, earlier: &SampleRanges, later: &SampleRanges) -> Result<(usize, i64)> {
        let last_ns = self.last_label_end_ns(earlier)?;
        let mut reached = 0;
        for run in later.runs() {
            self.file.scan_column(SeriesColumn::ReachTime, run, |_, reach_ns| {
                reached += reach_ns.iter().filter(|&&reach_ns| reach_ns < last_ns).count();
                Ok::<(), Error>(())
            })?;
        }
        Ok((reached, last_ns))
    }

    /// # Errors
    /// A data failure that counts the samples of a part that look back to before the end of a label
    /// of an earlier one.
    fn require_apart(&self, split: &Split) -> Result<()> {
        let Split { train, validation, test, .. } = split;
        let pairs = [
            ("validation", "training", validation, train),
            ("test", "validation", test, validation),
            ("test", "training", test, train),
        ];
        for (later_name, earlier_name, later, earlier) in pairs {
            let (reached, last_ns) = self.reached_by(earlier, later)?;
            if reached > 0 {
                return Err(Error::data(format!(
                    "{reached} of {} samples of {later_name} look back to before {}, when the last label of {earlier_name} ends; \
                     use data.purge=auto, or a longer time",
                    later.len(),
                    utc(last_ns)
                )));
            }
        }
        Ok(())
    }
}

/// Splits that are proven.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct SplitProof {
    /// Number of splits: one, or one a fold.
    pub(super) splits: usize,
    /// Samples in the parts of all of them.
    pub(super) samples: usize,
    /// Reason for no proof: the file is too short for the default split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) none_because: Option<String>,
}

/// Splits the samples of `source` as `train` does, and compares the parts with the bars.
///
/// # Errors
/// A split that is wrong, or samples of a later part that see labels of an earlier one.
pub(super) fn prove_splits(
    source: &Source,
    config: &Config,
    exact: &ExactSpans<'_>,
    asked: SplitSource,
) -> Result<SplitProof> {
    // Folds of a cross-validation are of graphs: a series without a walk forward has one split.
    let folds = match walk_forward(config).filter(|_| config.walks_all_folds()) {
        Some(walk) => (0..walk.folds).map(Some).collect(),
        None => vec![None],
    };
    let mut proof = SplitProof::default();
    for fold in folds {
        let mut config = config.clone();
        if let Some(fold) = fold {
            config.set_walk_forward_fold(fold);
        }
        let split = match split_source(source, &config) {
            Ok(split) => split,
            Err(error)
                if asked == SplitSource::ByDefault
                    && matches!(error.find(), Some(trainer::Error::NothingLeft { .. })) =>
            {
                proof.none_because = Some(error.exact_message());
                return Ok(proof);
            }
            Err(error) => return Err(error),
        };
        let proven = exact.require_apart(&split).with_context(|| source.path().display().to_string());
        match fold {
            Some(fold) => proven.with_context(|| format!("fold {}", fold + 1))?,
            None => proven?,
        }
        proof.splits += 1;
        proof.samples += split.train.len() + split.validation.len() + split.test.len();
    }
    Ok(proof)
}

/// Origin of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitSource {
    /// From `--config` or `--set`.
    ByTheUser,
    /// From the defaults.
    ByDefault,
}
