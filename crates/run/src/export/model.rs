//! Models that can be written as ONNX, and descriptions of inputs and outputs in the file.

use std::ops::Range;
use std::path::Path;

use megabatch_atomic_file as atomic_file;
use megabatch_nn::loss::{Group, Loss};
use megabatch_nn::model::{Model, Readout, TensorSet, Timeframe};
use serde_json::json;

use super::OnnxOptions;
use super::onnx::{Export, input_name};
use super::scaler::{Origin, scalers};
use crate::adapters::data_schema::DataSchema;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::run_folder::RunFolder;
use crate::setup::settings::{loss, streams};
use crate::text::shown;
use crate::trained::meaning_in_training;

/// The most bytes that a file of protocol buffers can have.
const BYTES_MAX: usize = i32::MAX as usize;

/// Inputs of an ONNX file.
pub(super) struct OnnxInput<'a> {
    pub(super) folder: &'a RunFolder,
    pub(super) model: &'a Model,
    pub(super) parameters: &'a TensorSet,
    /// The step of the parameters.
    pub(super) step: u64,
}

/// Writes the model to `out`.
pub(super) fn write(
    out: &Path,
    subject: &OnnxInput<'_>,
    options: &OnnxOptions,
    host: &Host<'_>,
) -> Result<CommandReport> {
    let OnnxInput { folder, model, parameters, step } = *subject;
    check(folder, model, options)?;
    let origin = Origin { data: options.data.as_deref(), instrument: options.instrument.as_deref() };
    let scaling = options.fold_scaler.then(|| scalers(folder, model, origin, host)).transpose()?;
    let about = About { meaning: meaning_in_training(folder), takes_raw: options.fold_scaler };
    let timeframes = &model.shape().timeframes;
    let output_doc = output_text(loss(&folder.config(&[])?, model.shape().outputs)?);
    let mut metadata = vec![("step".to_owned(), step.to_string()), ("outputs".to_owned(), output_doc.clone())];
    metadata.extend(timeframes.iter().flat_map(|timeframe| about.metadata(timeframe)));
    let bytes = Export {
        model,
        parameters,
        step,
        batch: options.batch.map(|batch| batch as usize),
        scaling,
        input_docs: timeframes.iter().map(|timeframe| about.input(timeframe)).collect(),
        output_doc,
        metadata,
    }
    .encode();
    if bytes.len() > BYTES_MAX {
        let (out, len) = (out.display(), bytes.len());
        return Err(Error::capacity(format!("{out}: {len} bytes, and an ONNX file has {BYTES_MAX} at most")));
    }
    atomic_file::write(out, &bytes)?;
    Ok(report(out, subject, options))
}

fn report(out: &Path, OnnxInput { model, step, .. }: &OnnxInput<'_>, options: &OnnxOptions) -> CommandReport {
    let inputs: Vec<String> = model.shape().timeframes.iter().map(input_name).collect();
    let text = format!(
        "{}: {} -> predictions [{}], weights of step {step}{}",
        out.display(),
        inputs.join(", "),
        model.outputs(),
        if options.fold_scaler { ", for raw features" } else { "" }
    );
    let json = json!({
        "out": shown(out),
        "step": step,
        "inputs": inputs,
        "outputs": model.outputs(),
        "batch": options.batch,
        "folds_scaler": options.fold_scaler,
    });
    CommandReport::new(text, &json)
}

impl OnnxOptions {
    /// The first option that is given, if one is.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given =
            [("--batch", self.batch.is_some()), ("--fold-scaler", self.fold_scaler), ("--stateless", self.stateless)];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// Refuses a model that ONNX cannot hold, or whose predictions would differ from `megabatch
/// predict`.
fn check(folder: &RunFolder, model: &Model, options: &OnnxOptions) -> Result<()> {
    let run = folder.root().display();
    if let Some(readout) = model.config().readout {
        let samples = if readout == Readout::Node { "the nodes of graphs" } else { "graphs" };
        return Err(Error::usage(format!(
            "{run}: its samples are {samples}, and only models whose samples stand alone are written as ONNX; its weights are \
             written as safetensors"
        )));
    }
    if streams(&folder.config(&[])?) && !options.stateless {
        return Err(Error::usage(format!(
            "{run}: trained to go on from bar to bar (training.carry_state or training.loss_on), as `megabatch predict` does; in ONNX each window starts \
             with zeros, so that predictions differ. --stateless writes it so"
        )));
    }
    Ok(())
}

/// Description of the inputs.
struct About {
    meaning: DataSchema,
    takes_raw: bool,
}

impl About {
    /// Keys and values about a timeframe.
    fn metadata(&self, timeframe: &Timeframe) -> Vec<(String, String)> {
        let name = input_name(timeframe);
        let names = self.meaning.features(&timeframe.name).map(|names| (format!("{name}.names"), names.join(",")));
        names.into_iter().chain([(format!("{name}.scaling"), self.scaling(timeframe))]).collect()
    }

    /// Description of an input, in words.
    fn input(&self, timeframe: &Timeframe) -> String {
        let names = self.meaning.features(&timeframe.name).map_or(String::new(), |names| names.join(", "));
        let colon = if names.is_empty() { "" } else { ": " };
        let scaling = self.scaling(timeframe);
        format!("[batch, bars, features], closed bars, the last one last; scaling {scaling}{colon}{names}")
    }

    /// Scaling of raw features before input, in words.
    fn scaling(&self, timeframe: &Timeframe) -> String {
        match self.meaning.scaling(&timeframe.name) {
            _ if self.takes_raw => "none, the model scales".to_owned(),
            kind => kind.unwrap_or("as in training").to_owned(),
        }
    }
}

/// Description of the outputs, in words.
fn output_text(loss: Loss) -> String {
    match loss {
        Loss::Quantile { levels } => format!("the quantiles {levels} of each target, target after target"),
        Loss::Classes(classes) => {
            let count = classes.count();
            format!(
                "{count} scores of each target, target after target, whose softmax are the probabilities of its classes"
            )
        }
        Loss::Tasks(tasks) => {
            let group_text = |group: Group| {
                let (Range { start, end }, Range { start: first, end: last }) = (group.outputs, group.targets);
                format!("{start}..{end}: of targets {first}..{last} {}", output_text(group.loss))
            };
            loss.groups(tasks.targets()).into_iter().map(group_text).collect::<Vec<_>>().join("; ")
        }
        _ => "one number a target".to_owned(),
    }
}
