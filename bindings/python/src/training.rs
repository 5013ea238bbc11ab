//! Plans and runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_run::config::SettingSources;
use megabatch_run::evaluate::{EvaluateRequest, Part};
use megabatch_run::export::{ExportRequest, NamedTensor, OnnxOptions};
use megabatch_run::import::ImportRequest;
use megabatch_run::plan::PlanRequest;
use megabatch_run::predict::{InstrumentsOfSamples, PredictRequest, Predicted, SampleChoice};
use megabatch_run::train::{BestValidation, Start, TrainRequest, Training};
use megabatch_run::{ChangedData, CheckpointChoice, CommandReport, Instruments, Kind, Weights};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Facts, Named, broken, bytes_of, dict, facts, index_bytes, serialized};
use crate::failure::{OrRaise as _, byte_size, kind_error};
use crate::host::PythonHost;
use crate::process;

/// Settings and data of a run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Job {
    data: Option<PathBuf>,
    file: Option<PathBuf>,
    set: Vec<String>,
    device: String,
    max_steps: Option<u64>,
}

impl Job {
    fn settings(&self) -> SettingSources {
        SettingSources { file: self.file.clone(), set: self.set.clone() }
    }
}

/// A run to train.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TrainCall {
    job: Job,
    out: Option<PathBuf>,
    init: Option<PathBuf>,
    resume: bool,
    on_event: Option<Py<PyAny>>,
    display: Option<Py<PyAny>>,
}

/// A trained model, and data to predict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    run: PathBuf,
    data: Option<PathBuf>,
    last_checkpoint: bool,
    int8: bool,
    changed_data: bool,
    other_instruments: bool,
    device: String,
}

impl Asked {
    fn checkpoint(&self) -> CheckpointChoice {
        if self.last_checkpoint { CheckpointChoice::Last } else { CheckpointChoice::Best }
    }

    fn weights(&self) -> Weights {
        if self.int8 { Weights::Int8 } else { Weights::AsTrained }
    }

    fn changed(&self) -> ChangedData {
        if self.changed_data { ChangedData::Accept } else { ChangedData::Refuse }
    }

    fn instruments(&self) -> Instruments {
        if self.other_instruments { Instruments::Allowed } else { Instruments::Doubted }
    }
}

/// Text and JSON of a report.
pub(crate) type Told<'py> = (String, Facts<'py>);

/// The report as text and Python's objects. A bad verdict raises.
pub(crate) fn told<'py>(py: Python<'py>, report: &CommandReport) -> PyResult<Told<'py>> {
    match report.verdict {
        None | Some(Kind::Cancelled) => Ok((report.to_string(), facts(py, &report.json)?)),
        Some(kind) => Err(kind_error(py, kind, &report.to_string())),
    }
}

/// The plan of a run: its text, and `plan.json`.
#[pyfunction]
pub(crate) fn plan<'py>(py: Python<'py>, job: Named<Job>, memory_bytes: Option<String>) -> PyResult<Told<'py>> {
    process::check(py)?;
    let Named(job) = job;
    let settings = job.settings();
    let Job { data, device, max_steps, .. } = job;
    let memory_bytes = memory_bytes.map(|text| byte_size(py, "memory_bytes", &text)).transpose()?;
    let request = PlanRequest { settings, data, device, memory_bytes, max_steps, ranks: 1 };
    let host = PythonHost::new(None, None);
    let plan = host.run(py, |host| megabatch_run::plan::plan(&request, host))?.or_raise(py)?;
    Ok((plan.to_text(), serialized(py, &plan)?))
}

/// Trains a model. An exception of a callback comes through once the run has saved a checkpoint.
#[pyfunction]
pub(crate) fn train<'py>(py: Python<'py>, call: Named<TrainCall>) -> PyResult<Facts<'py>> {
    process::check(py)?;
    let Named(TrainCall { job, out, init, resume, on_event, display }) = call;
    let settings = job.settings();
    let Job { data, device, max_steps, .. } = job;
    let start = if resume { Start::Resume } else { Start::Anew };
    let request = TrainRequest { settings, data, out, init, start, max_steps, device };
    let host = PythonHost::new(on_event, display);
    let training = host.run(py, |host| megabatch_run::train::train(&request, host))?.or_raise(py)?;
    let Training { run, steps, is_finished, interrupted_rank, best_validation, report, .. } = training;
    if let Some(rank) = interrupted_rank {
        return Err(PyKeyboardInterrupt::new_err(format!("rank {rank} was interrupted")));
    }
    let (text, totals) = told(py, &report)?;
    let best = best_validation.map(|BestValidation { step, loss }| (step, loss));
    let answer = PyDict::new(py);
    answer.set_item("run", run)?;
    answer.set_item("steps", steps)?;
    answer.set_item("is_finished", is_finished)?;
    answer.set_item("best_validation", best)?;
    answer.set_item("text", text)?;
    answer.set_item("facts", totals)?;
    Ok(dict(answer))
}

/// Makes a run of weights from elsewhere, in a file of safetensors.
#[pyfunction]
pub(crate) fn import_weights<'py>(
    py: Python<'py>,
    weights: PathBuf,
    job: Named<Job>,
    out: PathBuf,
) -> PyResult<Told<'py>> {
    process::check(py)?;
    let Named(job) = job;
    let request = ImportRequest { weights, settings: job.settings(), data: job.data, out };
    let host = PythonHost::new(None, None);
    let report = host.run(py, |host| megabatch_run::import::import(&request, host))?.or_raise(py)?;
    told(py, &report)
}

fn part_of(name: Option<&str>) -> PyResult<Option<Part>> {
    match name {
        None => Ok(None),
        Some("train") => Ok(Some(Part::Train)),
        Some("validation") => Ok(Some(Part::Validation)),
        Some("test") => Ok(Some(Part::Test)),
        Some("all") => Ok(Some(Part::All)),
        Some(_) => Err(broken("a part that there is not")),
    }
}

/// Errors of a model beside those of baselines.
#[pyfunction]
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    asked: Named<Asked>,
    part: Option<&str>,
    samples_max: Option<NonZeroUsize>,
) -> PyResult<Told<'py>> {
    process::check(py)?;
    let Named(asked) = asked;
    let part = part_of(part)?;
    let (checkpoint, weights) = (asked.checkpoint(), asked.weights());
    let (changed_data, instruments) = (asked.changed(), asked.instruments());
    let Asked { run, data, device, .. } = asked;
    let request =
        EvaluateRequest { run, data, part, samples_max, checkpoint, weights, changed_data, device, instruments };
    let host = PythonHost::new(None, None);
    let errors = host.run(py, |host| megabatch_run::evaluate::evaluate(&request, host))?.or_raise(py)?;
    told(py, &errors.report)
}

/// Predictions of the samples of a range, or the units of one, of a part, or of the latest ones.
#[pyfunction]
pub(crate) fn predict<'py>(
    py: Python<'py>,
    asked: Named<Asked>,
    samples: Option<(usize, usize)>,
    are_units: bool,
    part: Option<&str>,
    latest: bool,
    display: Option<Py<PyAny>>,
) -> PyResult<Facts<'py>> {
    process::check(py)?;
    let Named(asked) = asked;
    let samples = match samples {
        _ if latest => SampleChoice::Latest,
        Some((start, end)) if are_units => SampleChoice::Units(start..end),
        Some((start, end)) => SampleChoice::Range(start..end),
        None => part_of(part)?.map_or(SampleChoice::Default, SampleChoice::Part),
    };
    let (checkpoint, weights) = (asked.checkpoint(), asked.weights());
    let (changed_data, instruments) = (asked.changed(), asked.instruments());
    let Asked { run, data, device, .. } = asked;
    let request = PredictRequest { run, data, samples, checkpoint, weights, changed_data, device, instruments };
    let host = PythonHost::new(None, display);
    let predicted = host.run(py, |host| megabatch_run::predict::predict(&request, host))?.or_raise(py)?;
    let Predicted {
        samples,
        values,
        named,
        horizons,
        targets,
        true_classes,
        sample_times,
        instruments,
        folds,
        step,
        notes,
        ..
    } = predicted;
    let answer = PyDict::new(py);
    answer.set_item("samples", index_bytes(py, samples.iter()))?;
    answer.set_item("values", bytes_of(py, &values))?;
    let named: Vec<_> = named.iter().map(|(name, values)| (name, bytes_of(py, values))).collect();
    answer.set_item("named", named)?;
    answer.set_item("horizons", horizons)?;
    answer.set_item("targets", bytes_of(py, &targets))?;
    answer.set_item("true_classes", true_classes.map(|classes| bytes_of(py, &classes)))?;
    answer.set_item("times", sample_times.map(|times| bytes_of(py, &times)))?;
    let instruments =
        instruments.map(|InstrumentsOfSamples { names, name_indices }| (names, bytes_of(py, &name_indices)));
    answer.set_item("instruments", instruments)?;
    answer.set_item("folds", folds.map(|folds| bytes_of(py, &folds)))?;
    answer.set_item("step", step)?;
    answer.set_item("notes", notes)?;
    Ok(dict(answer))
}

/// A tensor: its name, its shape and its numbers.
type Tensor<'py> = (String, Vec<usize>, Bound<'py, pyo3::types::PyByteArray>);

/// The weights of a run.
#[pyfunction]
pub(crate) fn weights(py: Python<'_>, run: PathBuf, last_checkpoint: bool) -> PyResult<Vec<Tensor<'_>>> {
    let checkpoint = if last_checkpoint { CheckpointChoice::Last } else { CheckpointChoice::Best };
    let tensors = py.detach(|| megabatch_run::export::weights(&run, checkpoint)).or_raise(py)?;
    let tensor = |NamedTensor { name, shape, values }| (name, shape, bytes_of(py, &values));
    Ok(tensors.into_iter().map(tensor).collect())
}

/// Options of an export.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExportCall {
    run: PathBuf,
    out: PathBuf,
    last_checkpoint: bool,
    batch: Option<u32>,
    fold_scaler: bool,
    data: Option<PathBuf>,
    instrument: Option<String>,
    stateless: bool,
}

/// Writes the model of a run for other programs.
#[pyfunction]
pub(crate) fn export<'py>(py: Python<'py>, call: Named<ExportCall>) -> PyResult<Told<'py>> {
    process::check(py)?;
    let Named(ExportCall { run, out, last_checkpoint, batch, fold_scaler, data, instrument, stateless }) = call;
    let checkpoint = if last_checkpoint { CheckpointChoice::Last } else { CheckpointChoice::Best };
    let onnx = OnnxOptions { batch, fold_scaler, data, instrument, stateless };
    let request = ExportRequest { checkpoint, onnx, ..ExportRequest::new(run, out) };
    let host = PythonHost::new(None, None);
    let report = host.run(py, |host| megabatch_run::export::export(&request, host))?.or_raise(py)?;
    told(py, &report)
}
