//! Export of a model: weights with PyTorch's names, shapes and gate order, or the whole model as
//! ONNX.

mod model;
mod onnx;
mod scaler;

use std::path::{Path, PathBuf};

use megabatch_gpu_core::Device;
use megabatch_nn::model::{TensorSet, load_weights, save_weights};
use serde_json::json;

use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::output;
use crate::run_folder::RunFolder;
use crate::text::shown;
use crate::trained::{CheckpointChoice, trained_model, weights_file};

/// A model to export.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// Folder of the run.
    pub run: PathBuf,
    /// Format of the file; that of its ending if `None`.
    pub format: Option<ExportFormat>,
    /// File to write: `.safetensors` or `.onnx`.
    pub out: PathBuf,
    /// Which checkpoint.
    pub checkpoint: CheckpointChoice,
    /// Options of ONNX; refused for another format.
    pub onnx: OnnxOptions,
}

impl ExportRequest {
    /// The best checkpoint of the run in `run`, in the format that `out` ends in.
    pub fn new(run: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        ExportRequest {
            run: run.into(),
            format: None,
            out: out.into(),
            checkpoint: CheckpointChoice::default(),
            onnx: OnnxOptions::default(),
        }
    }
}

/// Formats of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Named tensors, as `safetensors.torch.load_file` reads them.
    Safetensors,
    /// The model as a graph of operators (opset 17).
    Onnx,
}

/// Options of an ONNX file.
#[derive(Clone, Debug, Default)]
pub struct OnnxOptions {
    /// Samples that the model predicts at once; any number of them if `None`.
    pub batch: Option<u32>,
    /// Scale within the model, so that raw features go in.
    pub fold_scaler: bool,
    /// The series file that has the scaler; the one trained on if `None`.
    pub data: Option<PathBuf>,
    /// Instrument of the scaler, if each has its own.
    pub instrument: Option<String>,
    /// Export a model with carried state as one whose windows start from zeros.
    pub stateless: bool,
}

/// Writes a model for other programs.
///
/// # Errors
/// A usage error for a model that the format cannot hold, or an output that cannot be written.
pub fn export(request: &ExportRequest, host: &Host<'_>) -> Result<CommandReport> {
    let ExportRequest { run, format, out, checkpoint, onnx } = request;
    let format = ExportFormat::choose(out, *format)?;
    if let (ExportFormat::Safetensors, Some(option)) = (format, onnx.first_given()) {
        return Err(Error::usage(format!("{option} is for ONNX; weights in safetensors are as they are")));
    }
    output::check(out, &[])?;
    let folder = RunFolder::open(run)?;
    let (step, weights) = weights_file(&folder, *checkpoint)?;
    let model = trained_model(&folder)?;
    // Loaded and written anew, so that what leaves is known to be whole and to fit the model.
    let mut parameters: TensorSet = TensorSet::zeros(&Device::cpu().scope("model/parameters"), model.layout())?;
    load_weights(&weights, &mut parameters)?;
    match format {
        ExportFormat::Safetensors => save_weights(out, &parameters)?,
        ExportFormat::Onnx => {
            let subject = model::OnnxInput { folder: &folder, model: &model, parameters: &parameters, step };
            return model::write(out, &subject, onnx, host);
        }
    }
    let tensors: Vec<&str> = model.layout().tensors().map(|(name, _)| name).collect();
    let text = format!("{}: {} tensors of step {step}", out.display(), tensors.len());
    Ok(CommandReport::new(text, &json!({ "out": shown(out), "step": step, "tensors": tensors })))
}

/// A tensor of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Its name in PyTorch's module.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its numbers, row-major.
    pub values: Vec<f32>,
}

/// The weights of a run, in the order of the model.
///
/// # Errors
/// A usage error for a run without a checkpoint, a data error for one that is damaged.
pub fn weights(run: &Path, checkpoint: CheckpointChoice) -> Result<Vec<NamedTensor>> {
    let folder = RunFolder::open(run)?;
    let (_, file) = weights_file(&folder, checkpoint)?;
    let model = trained_model(&folder)?;
    let mut parameters: TensorSet = TensorSet::zeros(&Device::cpu().scope("model/parameters"), model.layout())?;
    load_weights(&file, &mut parameters)?;
    let tensor = |(name, shape, values): (&str, &[usize], &[f32])| NamedTensor {
        name: name.to_owned(),
        shape: shape.to_vec(),
        values: values.to_vec(),
    };
    Ok(parameters.tensors().map(tensor).collect())
}

impl ExportFormat {
    fn ending(self) -> &'static str {
        match self {
            ExportFormat::Safetensors => "safetensors",
            ExportFormat::Onnx => "onnx",
        }
    }

    /// The requested format, or that of the file's ending. They must agree.
    fn choose(out: &Path, asked: Option<ExportFormat>) -> Result<Self> {
        let possible = asked.map_or(vec![ExportFormat::Safetensors, ExportFormat::Onnx], |format| vec![format]);
        let endings: Vec<&str> = possible.iter().map(|format| format.ending()).collect();
        output::require_ending(out, &endings)?;
        let has_ending = |format: &ExportFormat| out.extension().is_some_and(|ending| ending == format.ending());
        Ok(possible.into_iter().find(has_ending).expect("the ending is one of these"))
    }
}
