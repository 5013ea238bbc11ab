//! `megabatch export`: a run's weights for other programs.

use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::export::{ExportFormat, ExportRequest, OnnxOptions, export};

use super::trained::CheckpointArg;
use crate::answer::Answer;
use crate::commands::choice;
use crate::host::host;

/// Export a model: weights with PyTorch's names, shapes and gate order, or the whole model as ONNX
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch export --run runs/first --format safetensors --out model.safetensors
  megabatch export --run runs/first --format onnx --out model.onnx --batch 1 --fold-scaler")]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(long)]
    run: PathBuf,
    /// Format of the file [default: by its extension]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// File to write: .safetensors or .onnx
    #[arg(long)]
    out: PathBuf,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = CheckpointArg::Best)]
    checkpoint: CheckpointArg,
    #[command(flatten)]
    onnx: OnnxArgs,
}

choice! {
    enum FormatArg => ExportFormat {
        /// Named tensors, as `safetensors.torch.load_file` reads them
        Safetensors => Safetensors,
        /// The model as a graph of operators (opset 17), for ONNX Runtime 1.14 or newer and
        /// MetaTrader 5
        Onnx => Onnx,
    }
}

/// Options of an ONNX file.
#[derive(clap::Args)]
struct OnnxArgs {
    /// onnx: fixed batch size [default: any]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// onnx: scale features within the model, which then takes raw features
    #[arg(long)]
    fold_scaler: bool,
    /// onnx: series file with the scaler [default: the training data]
    #[arg(long, requires = "fold_scaler")]
    data: Option<PathBuf>,
    /// onnx: instrument of the scaler, if each has its own
    #[arg(long, value_name = "NAME", requires = "fold_scaler")]
    instrument: Option<String>,
    /// onnx: export a model with carried state as one whose windows start from zeros
    #[arg(long)]
    stateless: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let OnnxArgs { batch, fold_scaler, data, instrument, stateless } = &args.onnx;
    let request = ExportRequest {
        run: args.run.clone(),
        format: args.format.map(Into::into),
        out: args.out.clone(),
        checkpoint: args.checkpoint.into(),
        onnx: OnnxOptions {
            batch: *batch,
            fold_scaler: *fold_scaler,
            data: data.clone(),
            instrument: instrument.clone(),
            stateless: *stateless,
        },
    };
    Ok(export(&request, &host())?.into())
}
