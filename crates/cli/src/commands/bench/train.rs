//! `megabatch bench train`: training steps, without data that have to be read.

use std::ops::ControlFlow;

use anyhow::Result;
use clap::ValueEnum;
use megabatch_gpu_core::Device;
use megabatch_trainer::{Config, Event, Form, OptimizerConfig, OptimizerKind, Run, Samples, Trainer};
use serde_json::json;

use super::series::{SHUFFLED_SAMPLES, Work};
use crate::answer::Answer;
use crate::plan::bytes;
use crate::usage::peak_rss_bytes;

/// Training steps on made-up numbers: forward, loss, backward, clipping and Adam
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch bench train --model single --batch 128 --features 167 --shuffled")]
pub(crate) struct Args {
    #[command(flatten)]
    work: Work,
    /// Steps that are timed, after one that is not
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Samples in random order instead of consecutive ones
    #[arg(long)]
    shuffled: bool,
    /// How the model is computed
    #[arg(long, value_enum, default_value_t = FormName::Fast)]
    form: FormName,
    /// Computes half of the gates again in the backward pass, in place of keeping them
    #[arg(long)]
    gradient_checkpointing: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormName {
    /// What windows have in common once, on the processor's vectors
    Fast,
    /// Every window whole, as the reference
    Plain,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    let work = &args.work;
    let samples = work.samples(if args.shuffled { SHUFFLED_SAMPLES } else { 4 * work.batch() })?;
    let device = Device::cpu();
    let config = Config {
        model: work.model(),
        optimizer: OptimizerConfig { kind: OptimizerKind::Adam, weight_decay: 0.0, ..OptimizerConfig::default() },
        max_steps: Some(args.steps + 1),
        batch_size: work.batch(),
        run_length: args.shuffled.then_some(1),
        threads: work.threads,
        form: match args.form {
            FormName::Fast => Form::Fast,
            FormName::Plain => Form::Plain,
        },
        gradient_checkpointing: args.gradient_checkpointing,
        ..Config::default()
    };
    let mut trainer = Trainer::new(&device, config, samples.shape().clone())?;
    let train: Vec<usize> = (0..samples.len()).collect();
    let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: None };
    let mut rates = Vec::new();
    trainer.train(&run, &mut |event| {
        if let Event::Step(step) = event
            && step.step > 1
        {
            rates.push(step.samples_per_s);
        }
        ControlFlow::Continue(())
    })?;
    rates.sort_by(f64::total_cmp);
    let (best, median) = (rates[rates.len() - 1], rates[rates.len() / 2]);
    let allocated = device.usage().allocated_bytes_peak;
    let activations = device.scope("activations").usage().allocated_bytes_peak;
    let text = format!(
        "{best:.1} samples/s (median {median:.1}), {} allocated at the peak, {} of it for activations",
        bytes(allocated),
        bytes(activations)
    );
    let json = json!({
        "samples_per_s": best,
        "samples_per_s_median": median,
        "step_s": work.batch() as f64 / best,
        "peak_rss_bytes": peak_rss_bytes(),
        "peak_allocated_bytes": allocated,
        "peak_activations_bytes": activations,
        "parameters": trainer.parameters().values().len(),
    });
    Ok(Answer::new(text, &json))
}
