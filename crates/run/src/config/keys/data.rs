//! Input data of a run.

use std::path::PathBuf;

use megabatch_trainer::TrainingWindow;

use super::choices::Residency;
use super::setting::{Setting, auto_or_choice, choice, setting, settings};
use super::{COUNT, Condition::*, Key, POSITIVE, or};
use crate::config::value::Kind;
use crate::text::Duration;

settings! {
    /// Data file, HDF5 or `.mbg`; the same as `--data`.
    PATH: Option<PathBuf> = setting("data.path", Kind::Text, "");

    /// Place of bars and targets during a run. `resident`: in memory. `streamed`: read from the
    /// file through a cache. `auto`: in memory if they fit. The results are the same.
    RESIDENCY: Option<Residency> = auto_or_choice("data.residency").only(&[OnSeries]);

    /// Cache of a streamed series, in 10^9 bytes. `auto`: half of the memory left by the model, or
    /// the size of the series.
    CACHE_GB: Option<f64> = setting("data.cache_gb", or("auto", &POSITIVE), "auto")
        .only(&[OnSeries, RESIDENCY.is_not("resident")]);

    /// Shares of training, validation and test samples, in time order; validation and test may be
    /// 0.
    SPLIT: [f64; 3] = setting("data.split", Kind::Fractions, "[0.7, 0.15, 0.15]")
        .only(&[FOLDS.is(&["none"])]);

    /// Distance between two neighbouring splits. `auto`: no window of the later one reaches back
    /// before the last label of the earlier one ends. Samples of the later split are excluded; of
    /// walk-forward folds, those of the earlier one.
    PURGE: Option<Duration> = setting("data.purge", or("auto", &Kind::Duration), "auto")
        .only(&[OnSamples]);

    /// Number of walk-forward test folds in the last part of `data.split`. Each has a model trained
    /// on the samples before it, in `fold-1`, `fold-2`, … of the run's folder. The purge never
    /// shortens a test.
    WALK_FORWARD: Option<usize> =
        setting("data.walk_forward", or("none", &Kind::Count { min: 1, max: 100 }), "none")
        .only(&[OnSamples]);

    /// Training window of a fold. `expanding`: all samples before its validation part. `sliding`:
    /// the first share of `data.split` before it.
    WALK_FORWARD_WINDOW: TrainingWindow = choice("data.walk_forward_window", "expanding")
        .only(&[OnSamples, WALK_FORWARD.is_not("none")]);

    /// Share of a fold's test that the next fold tests again.
    WALK_FORWARD_OVERLAP: f64 = setting("data.walk_forward_overlap", Kind::Probability, "0")
        .only(&[OnSamples, WALK_FORWARD.is_not("none")]);

    /// Trains only this fold, from 1, as an ordinary run.
    WALK_FORWARD_NUMBER: Option<usize> = setting("data.walk_forward_number", or("all", &COUNT), "all")
        .only(&[OnSamples, WALK_FORWARD.is_not("none")]);

    /// Cross-validation: number of equal parts, random and stratified by class, in place of
    /// `data.split`. One part is the test, the next the validation, the others the training set.
    FOLDS: Option<usize> = setting("data.folds", or("none", &Kind::Count { min: 3, max: 1000 }), "none")
        .only(&[OnGraphFiles]);

    /// Part to test, from 1. `all` tests each part once; `cross-validation.json` and `report.html`
    /// have mean and deviation.
    FOLD_NUMBER: Option<usize> = setting("data.fold_number", or("all", &COUNT), "1")
        .only(&[OnGraphFiles, FOLDS.is_not("none")]);
}
