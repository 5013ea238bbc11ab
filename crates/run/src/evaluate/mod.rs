//! A model's errors by horizon beside baselines.

pub(crate) mod attention;
mod evaluation;
pub(crate) mod folds;
pub(crate) mod forecasts;
mod int8;
mod run;

pub use megabatch_trainer::{ClassErrors, GraphCorrelations, InstrumentEvaluation, Metrics, TaskEvaluation};

pub(crate) use evaluation::{BASELINES_ARE_OF_ALL, mean};
pub use evaluation::{Evaluation, Part};
pub use run::{Errors, EvaluateRequest, evaluate};
