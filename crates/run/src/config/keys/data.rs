//! Input data of a run.

use super::{COUNT, COUNT_OR_ZERO, Condition, Key, POSITIVE, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key("data.path", Kind::Text, "", "Data file, HDF5 or `.mbg`; the same as `--data`."),
    key(
        "data.residency",
        Kind::Choice { now: &["auto", "resident", "streamed"], later: "" },
        "auto",
        "Place of bars and targets during a run. `resident`: in memory. `streamed`: read from the \
         file through a cache. `auto`: in memory if they fit. The results are the same.",
    )
    .only(&[Condition::OnSeries]),
    key(
        "data.cache_gb",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "Cache of a streamed series, in 10^9 bytes. `auto`: half of the memory left by the model, \
         or the size of the series.",
    )
    .only(&[Condition::OnSeries, Condition::Without { key: "data.residency", value: "resident" }]),
    key(
        "data.split",
        Kind::Fractions,
        "[0.7, 0.15, 0.15]",
        "Shares of training, validation and test samples, in time order; validation and test may \
         be 0.",
    )
    .only(&[Condition::With { key: "data.folds", values: &["none"] }]),
    key(
        "data.purge",
        Kind::OrWord { word: "auto", otherwise: &Kind::Duration },
        "auto",
        "Distance between two neighbouring splits. `auto`: no window of the later one reaches \
         back before the last label of the earlier one ends. Samples of the later split are \
         excluded; of walk-forward folds, those of the earlier one.",
    )
    .only(&[Condition::OnSamples]),
    key(
        "data.walk_forward",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 1, max: 100 } },
        "none",
        "Number of walk-forward test folds in the last part of `data.split`. Each has a model \
         trained on the samples before it, in `fold-1`, `fold-2`, … of the run's folder. The purge \
         never shortens a test.",
    )
    .only(&[Condition::OnSamples]),
    key(
        "data.walk_forward_window",
        Kind::Choice { now: &["expanding", "sliding"], later: "" },
        "expanding",
        "Training window of a fold. `expanding`: all samples before its validation part. \
         `sliding`: the first share of `data.split` before it.",
    )
    .only(&[Condition::OnSamples, Condition::Without { key: "data.walk_forward", value: "none" }]),
    key("data.walk_forward_overlap", Kind::Probability, "0", "Share of a fold's test that the next fold tests again.")
        .only(&[Condition::OnSamples, Condition::Without { key: "data.walk_forward", value: "none" }]),
    key(
        "data.walk_forward_number",
        Kind::OrWord { word: "all", otherwise: &COUNT },
        "all",
        "Trains only this fold, from 1, as an ordinary run.",
    )
    .only(&[Condition::OnSamples, Condition::Without { key: "data.walk_forward", value: "none" }]),
    key(
        "data.walk_forward_fold",
        Kind::OrWord { word: "all", otherwise: &COUNT_OR_ZERO },
        "all",
        "Older name of `data.walk_forward_number`, counted from 0. `data.walk_forward_number` \
         takes precedence.",
    )
    .only(&[Condition::OnSamples, Condition::Without { key: "data.walk_forward", value: "none" }]),
    key(
        "data.folds",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 3, max: 1000 } },
        "none",
        "Cross-validation: number of equal parts, random and stratified by class, in place of \
         `data.split`. One part is the test, the next the validation, the others the training set.",
    )
    .only(&[Condition::OnGraphFiles]),
    key(
        "data.fold_number",
        Kind::OrWord { word: "all", otherwise: &COUNT },
        "1",
        "Part to test, from 1. `all` tests each part once; `cross-validation.json` and \
         `report.html` have mean and deviation.",
    )
    .only(&[Condition::OnGraphFiles, Condition::Without { key: "data.folds", value: "none" }]),
    key(
        "data.fold",
        Kind::OrWord { word: "none", otherwise: &Kind::OrWord { word: "all", otherwise: &COUNT_OR_ZERO } },
        "none",
        "Older name of `data.fold_number`, counted from 0; where it is given, it is used in its place.",
    )
    .only(&[Condition::OnGraphFiles, Condition::Without { key: "data.folds", value: "none" }]),
];
