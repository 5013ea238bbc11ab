//! The folds that a configuration asks for.

use serde::Serialize;

use super::split::walk_forward;
use crate::config::{Config, data};
use crate::error::{Error, Result};

/// Kinds of folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoldKind {
    /// Consecutive test spans, each with a model that was trained on earlier samples.
    WalkForward,
    /// Graphs in random parts. Each part is the test once.
    CrossValidation,
}

/// The folds that a configuration asks to be trained one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldPlan {
    pub(crate) kind: FoldKind,
    /// Number of folds.
    pub(crate) folds: usize,
    /// Number of later folds whose tests overlap with that of one fold.
    pub(crate) overlap: usize,
}

impl FoldPlan {
    /// The folds of `config`; `None` where it asks for one model.
    ///
    /// # Errors
    /// A usage failure for `data.fold_number=all` without a number of folds.
    pub(crate) fn from_config(config: &Config) -> Result<Option<Self>> {
        if let Some(walk) = walk_forward(config) {
            // Tests that begin 1 - o of their length apart; less a rounding error.
            let overlap = (1.0 / (1.0 - walk.overlap) - 1e-9).ceil() as usize - 1;
            let overlap = overlap.min(walk.folds.saturating_sub(1));
            let plan = FoldPlan { kind: FoldKind::WalkForward, folds: walk.folds, overlap };
            return Ok(config.walks_all_folds().then_some(plan));
        }
        match (config.cross_validation_fold(), config.get(&data::FOLDS)) {
            (Some(_), _) => Ok(None),
            (None, Some(folds)) => Ok(Some(FoldPlan { kind: FoldKind::CrossValidation, folds, overlap: 0 })),
            (None, None) => Err(Error::usage(
                "data.fold_number=all: expected a number of folds, such as data.folds=10; data.folds is none",
            )),
        }
    }

    /// Sets the one fold to train; `fold` counts from 0.
    pub(crate) fn choose(self, config: &mut Config, fold: usize) {
        match self.kind {
            FoldKind::WalkForward => config.set_walk_forward_fold(fold),
            FoldKind::CrossValidation => config.set_cross_validation_fold(fold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(settings: &[&str]) -> Result<Option<FoldPlan>> {
        let arguments: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        FoldPlan::from_config(&Config::load(None, &[], &arguments)?)
    }

    #[test]
    fn folds_are_those_of_the_configuration() {
        let plan = |settings: &[&str]| plan_of(settings).unwrap().map(|plan| (plan.kind, plan.folds, plan.overlap));
        assert_eq!(plan(&[]), None);
        assert_eq!(plan(&["data.folds=10"]), None);
        let all = ["data.folds=10", "data.fold_number=all"];
        assert_eq!(plan(&all), Some((FoldKind::CrossValidation, 10, 0)));
        for (one, fold) in [("data.fold_number=3", 2), ("data.folds=10", 0)] {
            let mut config = Config::load(None, &[], &["data.folds=10".to_owned(), one.to_owned()]).unwrap();
            assert_eq!((plan(&["data.folds=10", one]), config.cross_validation_fold()), (None, Some(fold)), "{one}");
            config.set_cross_validation_fold(7);
            assert_eq!(config.cross_validation_fold(), Some(7), "{one}");
        }
        for (overlap, expected) in [("0", 0), ("0.25", 1), ("0.5", 1), ("0.6", 2), ("0.75", 3), ("0.9", 4)] {
            let overlap = format!("data.walk_forward_overlap={overlap}");
            let found = plan(&["data.walk_forward=5", &overlap]);
            assert_eq!(found, Some((FoldKind::WalkForward, 5, expected)), "{overlap}");
        }
        let error = plan_of(&["data.fold_number=all"]).unwrap_err().to_string();
        assert!(error.starts_with("data.fold_number=all: expected a number of folds"), "{error}");
    }
}
