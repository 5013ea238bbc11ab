//! The proof that no label of one part of the split ends after the first bar that a later part
//! looks back at.

use std::path::Path;

use megabatch_bars::{AlignedSeries, Instrument};
use megabatch_chunk_io::Source;
use megabatch_gpu_core::Device;
use megabatch_trainer::{self as trainer, Split};
use serde::Serialize;

use crate::adapters::split::{split_source, walk_forward};
use crate::config::Config;
use crate::error::{Context as _, Error, Result};
use crate::text::utc;

/// When the samples of a series look at bars, by the bars themselves.
pub(super) struct ExactSpans {
    /// `[N]` when the earliest bar opened that had a part in each sample, ns.
    reach_ns: Vec<i64>,
    /// `[N]` when the last bar closed that each sample's targets read, ns.
    label_end_ns: Vec<i64>,
}

impl ExactSpans {
    /// Looks each sample's base bar up by its close, and counts the horizon on from there.
    pub(super) fn of(series: &AlignedSeries, instruments: &[Instrument<'_>], horizon: usize) -> Self {
        let base_ns = series.base.duration_ns();
        let of_instrument = |instrument: i32| {
            let name = &series.instruments[instrument as usize];
            instruments.iter().find(|given| given.name == name).expect("the series is made of these").bars
        };
        let label_end = |(&time, &instrument): (&i64, &i32)| {
            let bars = of_instrument(instrument);
            let place = bars.open_time.partition_point(|&open_time| open_time + base_ns < time);
            bars.close_time(place + horizon)
        };
        let label_end_ns = series.sample_time.iter().zip(&series.sample_instrument).map(label_end).collect();
        ExactSpans { reach_ns: series.receptive_starts(), label_end_ns }
    }

    /// Samples of `later` that look back to before the end of a label of `earlier`, and the last of
    /// these ends.
    fn reached_by(&self, earlier: &[usize], later: &[usize]) -> (usize, i64) {
        let last_ns = earlier.iter().map(|&n| self.label_end_ns[n]).max().unwrap_or(i64::MIN);
        (later.iter().filter(|&&n| self.reach_ns[n] < last_ns).count(), last_ns)
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
            let (reached, last_ns) = self.reached_by(earlier, later);
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
    /// Why there is none, where the file is too short for the default split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) none_because: Option<String>,
}

/// Splits the file at `path` as `train` would and holds the parts against the bars.
///
/// # Errors
/// What is wrong with the split, or the samples of a later part that see labels of an earlier one.
pub(super) fn prove_splits(path: &Path, config: &Config, exact: &ExactSpans, asked: SplitSource) -> Result<SplitProof> {
    let source = Source::open(path, &Device::cpu().scope("leak"))?;
    let folds = match walk_forward(config) {
        Some(walk) if config.walk_forward_fold().is_none() => (0..walk.folds).map(Some).collect(),
        _ => vec![None],
    };
    let mut proof = SplitProof::default();
    for fold in folds {
        let mut config = config.clone();
        if let Some(fold) = fold {
            config.set_walk_forward_fold(fold);
        }
        let split = match split_source(&source, &config) {
            Ok(split) => split,
            Err(error) if asked == SplitSource::ByDefault && is_too_short(&error) => {
                proof.none_because = Some(error.exact_message());
                return Ok(proof);
            }
            Err(error) => return Err(error),
        };
        let proven = exact.require_apart(&split).with_context(|| path.display().to_string());
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

fn is_too_short(error: &Error) -> bool {
    matches!(error.find(), Some(trainer::Error::NothingLeft { .. }))
}
