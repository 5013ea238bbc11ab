//! The splits of all folds of a run, checked before the first is trained.

use super::{TrainingSetup, require_known_targets};
use crate::adapters::split::walk_forward;
use crate::config::{Config, data};
use crate::error::{Context as _, Result};

/// Refuses a run of `config` on the data of `setup` if the split of any fold fails, or has a part
/// without a known target. A run of one model has the split of `setup`.
///
/// # Errors
/// The failure of the first such fold, after its number.
pub(crate) fn require_splits(setup: &TrainingSetup, config: &Config) -> Result<()> {
    let (folds, choose): (usize, fn(&mut Config, usize)) = match (walk_forward(config), config.get(&data::FOLDS)) {
        (Some(walk), _) if config.walks_all_folds() => (walk.folds, Config::set_walk_forward_fold),
        (None, Some(folds)) if config.cross_validation_fold().is_none() => (folds, Config::set_cross_validation_fold),
        _ => return require_known_targets(setup, &setup.split),
    };
    (0..folds).try_for_each(|fold| {
        let mut own = config.clone();
        choose(&mut own, fold);
        let split = setup.data.split(&own);
        split.and_then(|split| require_known_targets(setup, &split)).with_context(|| format!("fold {}", fold + 1))
    })
}
