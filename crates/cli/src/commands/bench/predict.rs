//! `megabatch bench predict`: predictions of consecutive samples, without data that have to be read.

use std::time::Instant;

use anyhow::Result;
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    self as trainer, Compute, Form, Model, ModelConfig, Predictor, Samples, Selection, save_weights,
};
use serde_json::json;

use super::series::{ModelKind, made_up};
use crate::answer::Answer;
use crate::usage::peak_rss_bytes;

/// Predictions for consecutive samples of made-up numbers
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch bench predict --model single --batch 1 --features 167 --threads 1")]
pub(crate) struct Args {
    /// The model
    #[arg(long, value_enum, default_value_t = ModelKind::Multi)]
    model: ModelKind,
    /// Samples in a batch
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Features of a bar
    #[arg(long, default_value_t = 128)]
    features: usize,
    /// Hidden units
    #[arg(long, default_value_t = 128)]
    hidden: usize,
    /// LSTM layers
    #[arg(long, default_value_t = 1)]
    layers: usize,
    /// Threads that compute
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Batches that are timed, after one that is not
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Compute with the LSTM's weights in eight bits
    #[arg(long)]
    int8: bool,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let batch_size = args.batch as usize;
    let samples = made_up(args.model, args.features, (args.batches as usize + 1) * batch_size)?;
    let mut predictor = predictor(args, &samples)?;
    let indices: Vec<usize> = (0..samples.len()).collect();
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
        "int8": args.int8,
    });
    Ok(Answer::new(text, &json))
}

/// A model with the weights that training begins with.
fn predictor(args: &Args, samples: &dyn Samples) -> Result<Predictor> {
    let device = Device::cpu();
    let config = ModelConfig { hidden: args.hidden, layers: args.layers, ..ModelConfig::default() };
    let model = Model::new(samples.shape().clone(), config)?;
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("weights.safetensors");
    save_weights(&weights, &model.initial_parameters::<f32>(&device.scope("initial"), 0)?)?;
    let compute = Compute { threads: args.threads, batch_size: args.batch as usize, form: Form::Fast };
    let predictor = Predictor::open(&device, model, &weights, compute)?;
    Ok(if args.int8 { predictor.with_int8()? } else { predictor })
}
