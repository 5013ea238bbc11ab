//! `megabatch bench predict`: predictions of consecutive or scattered samples, without data that
//! have to be read.

use std::time::Instant;

use anyhow::Result;
use megabatch_gpu_core::Device;
use megabatch_trainer::{self as trainer, Compute, Form, Model, Predictor, Samples, Selection, save_weights};
use serde_json::json;

use super::series::{SHUFFLED_SAMPLES, Work};
use crate::answer::Answer;
use crate::usage::peak_rss_bytes;

/// Predictions for samples of made-up numbers
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch bench predict --model single --batch 1 --features 167 --threads 1")]
pub(crate) struct Args {
    #[command(flatten)]
    work: Work,
    /// Batches that are timed, after one that is not
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Compute with the LSTM's weights in eight bits
    #[arg(long)]
    int8: bool,
    /// Samples that lie far apart instead of consecutive ones
    #[arg(long)]
    shuffled: bool,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let batch_size = args.work.batch();
    let count = (args.batches as usize + 1) * batch_size;
    let samples = args.work.samples(if args.shuffled { count.max(SHUFFLED_SAMPLES) } else { count })?;
    let mut predictor = predictor(args, &samples)?;
    let place = |n: usize| if args.shuffled { n * SHUFFLED_APART % samples.len() } else { n };
    let indices: Vec<usize> = (0..count).map(place).collect();
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

/// Places between samples that follow one another when they are shuffled: the golden ratio of all,
/// so that those of a batch are far apart.
const SHUFFLED_APART: usize = SHUFFLED_SAMPLES * 618 / 1000 + 3;

/// A model with the weights that training begins with.
fn predictor(args: &Args, samples: &dyn Samples) -> Result<Predictor> {
    let device = Device::cpu();
    let model = Model::new(samples.shape().clone(), args.work.model())?;
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("weights.safetensors");
    save_weights(&weights, &model.initial_parameters::<f32>(&device.scope("initial"), 0)?)?;
    let compute = Compute { threads: args.work.threads, batch_size: args.work.batch(), form: Form::Fast };
    let predictor = Predictor::open(&device, model, &weights, compute)?;
    Ok(if args.int8 { predictor.with_int8()? } else { predictor })
}
