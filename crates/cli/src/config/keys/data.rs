//! What a run reads.

use super::{Acts, COUNT, COUNT_OR_ZERO, Key, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key("data.path", Kind::Text, "", "The file to train on, HDF5 or `.mbg`; `--data` says it too."),
    key(
        "data.split",
        Kind::Fractions,
        "[0.7, 0.15, 0.15]",
        "Shares of the samples for training, validation and test, by time. They sum to one; the last two may be 0.",
    ).only(&[Acts::With { key: "data.folds", values: &["none"] }]),
    key(
        "data.purge",
        Kind::OrWord { word: "auto", otherwise: &Kind::Duration },
        "auto",
        "Time left out between two splits, such as `8d`, `36h` or `90m`. `auto` leaves out every sample whose windows reach back to \
         before the end of the last label of the split before.",
    ).only(&[Acts::OnSamples]),
    key(
        "data.purge_reckoning",
        Kind::Choice { now: &["times", "bars"], later: "" },
        "times",
        "How `data.purge: auto` reckons: `times` by when bars opened and closed. `bars` as versions did that took no bar to be missing, so that \
         labels may reach into validation; a run that began so is resumed so.",
    ),
    key(
        "data.walk_forward",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 1, max: 100 } },
        "none",
        "Goes through the last share of `data.split` in so many tests, one after the other in time, each with a model of its own that was trained \
         on what lies before it: `fold-1`, `fold-2`, … in the run's folder. The purge takes from what lies before, so that every sample is tested.",
    ).only(&[Acts::OnSamples]),
    key(
        "data.walk_forward_window",
        Kind::Choice { now: &["expanding", "sliding"], later: "" },
        "expanding",
        "What a fold trains on: everything before its validation, or the first share of `data.split` right before it.",
    ).only(&[Acts::OnSamples, Acts::Without { key: "data.walk_forward", value: "none" }]),
    key("data.walk_forward_overlap", Kind::Probability, "0", "Share of a fold's test that the next fold tests again.").only(&[Acts::OnSamples, Acts::Without { key: "data.walk_forward", value: "none" }]),
    key(
        "data.walk_forward_number",
        Kind::OrWord { word: "all", otherwise: &COUNT },
        "all",
        "The one fold to train, from 1, as an ordinary run.",
    ).only(&[Acts::OnSamples, Acts::Without { key: "data.walk_forward", value: "none" }]),
    key(
        "data.walk_forward_fold",
        Kind::OrWord { word: "all", otherwise: &COUNT_OR_ZERO },
        "all",
        "The same, counted from 0: the name that configurations of before have. `data.walk_forward_number` goes over it.",
    ).only(&[Acts::OnSamples, Acts::Without { key: "data.walk_forward", value: "none" }]),
    key(
        "data.folds",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 3, max: 1000 } },
        "none",
        "Cuts a file of graphs into so many parts of equal size, by chance and evenly over the classes, in place of `data.split`: one to \
         test, the next to validate, the others to train.",
    ).only(&[Acts::OnGraphFiles]),
    key(
        "data.fold",
        Kind::OrWord { word: "all", otherwise: &COUNT_OR_ZERO },
        "0",
        "The part to test, from 0; or `all`: each is the test once, of a model of its own in a folder \
         of its own, and `cross-validation.json` and `report.html` have mean and deviation over all.",
    ).only(&[Acts::OnGraphFiles, Acts::Without { key: "data.folds", value: "none" }]),
];
