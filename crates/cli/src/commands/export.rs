//! `megabatch export`: a run's weights for other programs.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use megabatch_gpu_core::Device;
use megabatch_trainer::{TensorSet, load_weights, save_weights};
use serde_json::json;

use crate::answer::Answer;
use crate::output;
use crate::run::RunFolder;
use crate::trained::{Which, trained_model, weights_file};

/// Write a model's weights with PyTorch's names, shapes and gate order
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch export --run runs/first --format safetensors --out model.safetensors")]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(long)]
    run: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Safetensors)]
    format: Format,
    /// File to write: .safetensors
    #[arg(long)]
    out: PathBuf,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Named tensors, as `safetensors.torch.load_file` reads them
    Safetensors,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match args.format {
        Format::Safetensors => output::require_ending(&args.out, &["safetensors"])?,
    }
    output::check(&args.out, &[])?;
    let folder = RunFolder::open(&args.run)?;
    let (step, weights) = weights_file(&folder, args.checkpoint)?;
    let model = trained_model(&folder)?;
    // Loaded and written anew, so that what leaves is known to be whole and to fit the model.
    let mut parameters: TensorSet<f32> = TensorSet::zeros(&Device::cpu().scope("model/parameters"), model.layout())?;
    load_weights(&weights, &mut parameters)?;
    match args.format {
        Format::Safetensors => save_weights(&args.out, &parameters)?,
    }
    let tensors: Vec<&str> = model.layout().tensors().map(|(name, _)| name).collect();
    let text = format!("{}: {} tensors of step {step}", args.out.display(), tensors.len());
    Ok(Answer::new(text, &json!({ "out": args.out, "step": step, "tensors": tensors })))
}
