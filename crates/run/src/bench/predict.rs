//! Predictions of consecutive or scattered samples, without data that have to be read.

use std::time::Instant;

use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer as trainer;
use megabatch_trainer::{Predictor, SampleRanges, Samples, Selection};
use serde_json::json;

use super::SampleOrder;
use super::series::{SHUFFLED_SAMPLES, Work};
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::trained::Weights;
use crate::usage::peak_rss_bytes;

/// Predictions to measure.
#[derive(Clone, Copy, Debug)]
pub struct PredictOptions {
    /// The model and its batches.
    pub work: Work,
    /// Timed batches, after one untimed batch.
    pub batches: u32,
    /// Arithmetic of the LSTMs' matrices.
    pub weights: Weights,
    /// Samples of a batch.
    pub samples: SampleOrder,
}

/// Measures predictions for samples of synthetic numbers.
///
/// # Errors
/// A capacity error for a model that does not fit into memory.
pub fn predict(options: &PredictOptions) -> Result<CommandReport> {
    let PredictOptions { work, batches, weights, samples: order } = options;
    let is_shuffled = *order == SampleOrder::Shuffled;
    let batch_size = work.batch();
    let count = (*batches as usize + 1) * batch_size;
    let samples = work.samples(if is_shuffled { count.max(SHUFFLED_SAMPLES) } else { count })?;
    let mut predictor = predictor(work, *weights, &samples)?;
    let place = |n: usize| if is_shuffled { n * SHUFFLED_APART % samples.len() } else { n };
    let indices: SampleRanges = (0..count).map(place).collect();
    // When each batch was done.
    let mut done = Vec::new();
    predictor.predict(Selection { samples: &samples, indices: &indices }, |_, _| {
        done.push(Instant::now());
        Ok::<(), trainer::Error>(())
    })?;
    let mut batches_s: Vec<f64> = done.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    batches_s.sort_by(f64::total_cmp);
    let (best, median) = (batches_s[0], batches_s[batches_s.len() / 2]);
    let rate = |batch_s: f64| batch_size as f64 / batch_s;
    let text = format!(
        "{:.1} samples/s (median {:.1}), {:.3} ms a batch of {batch_size} (median {:.3})",
        rate(best),
        rate(median),
        best * 1e3,
        median * 1e3
    );
    let json = json!({
        "samples_per_s": rate(best),
        "samples_per_s_median": rate(median),
        "batch_s": best,
        "batch_s_median": median,
        "peak_rss_bytes": peak_rss_bytes(),
        "int8": *weights == Weights::Int8,
        "precision": work.precision.to_string(),
    });
    Ok(CommandReport::new(text, &json))
}

/// Places between samples that follow one another when they are shuffled: the golden ratio of all,
/// so that those of a batch are far apart.
const SHUFFLED_APART: usize = SHUFFLED_SAMPLES * 618 / 1000 + 3;

/// A model with the weights that training begins with.
fn predictor(work: &Work, weights: Weights, samples: &dyn Samples) -> Result<Predictor> {
    let device = Device::cpu();
    let model = Model::new(samples.shape().clone(), work.model())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("weights.safetensors");
    save_weights(&file, &model.initial_parameters(&device.scope("initial"), 0)?)?;
    let compute = Compute { threads: work.threads, batch_size: work.batch() };
    let predictor = Predictor::open(&device, model, &file, compute)?;
    Ok(match weights {
        Weights::Int8 => predictor.with_int8()?,
        Weights::AsTrained => predictor.with_precision(work.precision)?,
    })
}
