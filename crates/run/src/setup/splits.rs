//! The split of a run, or of each of its folds, checked before anything is trained.

use megabatch_trainer::Split;

use super::TrainingSetup;
use crate::adapters::fold_plan::FoldPlan;
use crate::error::{Context as _, Error, Result};
use crate::unit_names::UnitNames;

/// Refuses a run of `folds` on the data of `setup` if the split of any fold fails, or has a part
/// without a known target. A run of one model has the split of `setup`.
///
/// # Errors
/// The failure of the first such fold, after its number.
pub(crate) fn require_splits(setup: &TrainingSetup, folds: Option<FoldPlan>) -> Result<()> {
    let Some(plan) = folds else { return require_known_targets(setup, &setup.split) };
    (0..plan.folds).try_for_each(|fold| {
        let mut own = setup.config.clone();
        plan.choose(&mut own, fold);
        let split = setup.data.split(&own);
        split.and_then(|split| require_known_targets(setup, &split)).with_context(|| format!("fold {}", fold + 1))
    })
}

/// Refuses parts of `split` without a known target, which would fail only after an epoch or at the
/// end of the run. It checks each part, and the samples that errors are estimated from.
///
/// # Errors
/// A data failure that names the part.
pub(crate) fn require_known_targets(setup: &TrainingSetup, split: &Split) -> Result<()> {
    let data = &setup.data;
    let Split { train, validation, test, .. } = split;
    let parts = [("training", "train on", train), ("validation", "validate", validation), ("test", "test", test)];
    let (path, unit) = (data.path().display(), UnitNames::for_data(data).unit);
    for (part, purpose, units) in parts {
        if !units.is_empty() && !data.any_target_known(units)? {
            return Err(Error::data(format!(
                "{path}: none of the targets of the {} {unit}s to {purpose} is known, so that {part} has no loss; change data.split, or give \
                 data whose targets are known there",
                units.len(),
            )));
        }
    }
    let unseen = if test.is_empty() { validation } else { test };
    let estimates = [
        (
            "validate",
            validation,
            setup.training.draw(validation, setup.training.validation_samples),
            "validation_samples",
        ),
        ("test", unseen, setup.draw_for_errors(unseen, setup.planned_steps())?, "test_samples"),
    ];
    for (purpose, units, drawn, setting) in estimates {
        if drawn.is_estimate() && !data.any_target_known(&drawn.samples)? {
            return Err(Error::data(format!(
                "{path}: none of the targets of the {} {unit}s that are taken, evenly spaced, of the {} to {purpose} is known; set \
                 training.{setting}=all, or another number",
                drawn.samples.len(),
                units.len(),
            )));
        }
    }
    Ok(())
}
