//! `megabatch export`: a run's weights for other programs.

mod onnx;
mod scaler;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use megabatch_gpu_core::Device;
use megabatch_trainer::{TensorSet, load_weights, save_weights};
use serde_json::json;

use crate::answer::{Answer, shown};
use crate::failure::Failure;
use crate::output;
use crate::run::RunFolder;
use crate::trained::{Which, trained_model, weights_file};

/// Write a model for other programs: its weights with PyTorch's names, shapes and gate order, or
/// all of it as ONNX
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch export --run runs/first --format safetensors --out model.safetensors
  megabatch export --run runs/first --format onnx --out model.onnx --batch 1 --fold-scaler")]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(long)]
    run: PathBuf,
    /// Format of the file; that of its ending if not given
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// File to write: .safetensors or .onnx
    #[arg(long)]
    out: PathBuf,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    onnx: onnx::Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Named tensors, as `safetensors.torch.load_file` reads them
    Safetensors,
    /// The model as a graph of operators (opset 17), for ONNX Runtime 1.14 or newer and MetaTrader
    /// 5
    Onnx,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let format = Format::of(&args.out, args.format)?;
    if let (Format::Safetensors, Some(option)) = (format, args.onnx.first_given()) {
        return Err(Failure::usage(format!("{option} is for --format onnx; weights in safetensors are as they are")));
    }
    output::check(&args.out, &[])?;
    let folder = RunFolder::open(&args.run)?;
    let (step, weights) = weights_file(&folder, args.checkpoint)?;
    let model = trained_model(&folder)?;
    // Loaded and written anew, so that what leaves is known to be whole and to fit the model.
    let mut parameters: TensorSet<f32> = TensorSet::zeros(&Device::cpu().scope("model/parameters"), model.layout())?;
    load_weights(&weights, &mut parameters)?;
    match format {
        Format::Safetensors => save_weights(&args.out, &parameters)?,
        Format::Onnx => {
            let subject = onnx::OnnxInput { folder: &folder, model: &model, parameters: &parameters, step };
            return onnx::write(&args.out, &subject, &args.onnx);
        }
    }
    let tensors: Vec<&str> = model.layout().tensors().map(|(name, _)| name).collect();
    let text = format!("{}: {} tensors of step {step}", args.out.display(), tensors.len());
    Ok(Answer::new(text, &json!({ "out": shown(&args.out), "step": step, "tensors": tensors })))
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Format::Safetensors => "safetensors",
            Format::Onnx => "onnx",
        }
    }

    /// The format that is asked for, or that of the file's ending; both say the same.
    fn of(out: &Path, asked: Option<Format>) -> Result<Self> {
        let possible = asked.map_or(vec![Format::Safetensors, Format::Onnx], |format| vec![format]);
        let endings: Vec<&str> = possible.iter().map(|format| format.ending()).collect();
        output::require_ending(out, &endings)?;
        let has_ending = |format: &Format| out.extension().is_some_and(|ending| ending == format.ending());
        Ok(possible.into_iter().find(has_ending).expect("the ending is one of these"))
    }
}
