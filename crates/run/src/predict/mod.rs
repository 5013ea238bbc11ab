//! Predictions of a trained model: for samples, or for bars as they come.

pub(crate) mod bar_stream;
mod folds;
mod follow;
mod forecast_lines;
mod growing_file;
mod latest;
mod output_file;
mod output_lock;
mod samples;
mod stream_progress;
mod streaming_model;
mod tail;

pub use folds::predict;
pub use follow::{LineOutput, follow};
pub use forecast_lines::LineForm;
pub use output_file::predict_to_file;
pub use samples::{InstrumentsOfSamples, PredictRequest, Predicted, SampleChoice};
pub use streaming_model::{FollowRequest, History};
pub use tail::{AtEnd, BarSource};
