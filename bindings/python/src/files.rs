//! Files and folders of runs that are looked at or converted.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use megabatch_run::Error;
use megabatch_run::convert::{Layout, Options, StorageForm};
use megabatch_run::monitor::MonitoredRun;
use megabatch_run::text::ByteSize;
use pyo3::prelude::*;

use crate::convert::{Named, facts};
use crate::failure::OrRaise as _;
use crate::host::PythonHost;
use crate::process;
use crate::training::{Told, told};

/// Contents and faults of a file of samples or bars: what fits on a screen, or all.
#[pyfunction]
pub(crate) fn inspect(py: Python<'_>, path: PathBuf, all: bool) -> PyResult<Told<'_>> {
    process::check(py)?;
    let report = py.detach(|| megabatch_run::inspect::inspect(&path, all)).or_raise(py)?;
    told(py, &report)
}

/// Settings and results of runs side by side, also as the page `out`.
#[pyfunction]
pub(crate) fn compare(py: Python<'_>, runs: Vec<PathBuf>, out: Option<PathBuf>) -> PyResult<Told<'_>> {
    process::check(py)?;
    let host = PythonHost::new(None, None);
    let report = host.run(py, |host| megabatch_run::compare::compare(&runs, out.as_deref(), host))?.or_raise(py)?;
    told(py, &report)
}

/// State of a run: one line, and every reading.
#[pyfunction]
pub(crate) fn monitor(py: Python<'_>, run: PathBuf) -> PyResult<Told<'_>> {
    process::check(py)?;
    let open = || MonitoredRun::open(&run).map(|monitored| (monitored.sentence(), monitored.to_json()));
    let (sentence, readings) = py.detach(open).or_raise(py)?;
    Ok((sentence, facts(py, &readings)?))
}

/// A conversion.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConvertCall {
    input: PathBuf,
    out: PathBuf,
    to: Option<String>,
    storage: Option<String>,
    chunk_rows: Option<String>,
    compression: Option<String>,
    timeframe: Option<String>,
    memory: String,
    threads: Option<NonZeroUsize>,
    display: Option<Py<PyAny>>,
}

/// Turns windows into a series or back, or stores a file in other chunks.
#[pyfunction]
pub(crate) fn convert(py: Python<'_>, call: Named<ConvertCall>) -> PyResult<Told<'_>> {
    process::check(py)?;
    let Named(call) = call;
    let options = call.options().or_raise(py)?;
    let ConvertCall { input, out, display, .. } = call;
    let host = PythonHost::new(None, display);
    let report = host.run(py, |host| megabatch_run::convert::convert(&input, &out, &options, host))?.or_raise(py)?;
    told(py, &report)
}

impl ConvertCall {
    fn options(&self) -> megabatch_run::Result<Options> {
        Ok(Options {
            to: chosen("to", self.to.as_deref(), &[("series", Layout::Series), ("windows", Layout::Windows)])?,
            storage: chosen(
                "storage",
                self.storage.as_deref(),
                &[("contiguous", StorageForm::Contiguous), ("chunked", StorageForm::Chunked)],
            )?,
            chunk_rows: self.chunk_rows.as_deref().map(|text| parsed("chunk_rows", text)).transpose()?,
            compression: self.compression.as_deref().map(|text| parsed("compression", text)).transpose()?,
            timeframe: self.timeframe.clone(),
            memory: parsed::<ByteSize>("memory", &self.memory)?,
            threads: self.threads,
        })
    }
}

/// The choice of this name.
fn chosen<T: Copy>(argument: &str, name: Option<&str>, choices: &[(&str, T)]) -> megabatch_run::Result<Option<T>> {
    let Some(name) = name else { return Ok(None) };
    let Some((_, choice)) = choices.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        return Err(Error::usage(format!("{argument} is {name}: expected {}", names.join(" or "))));
    };
    Ok(Some(*choice))
}

fn parsed<T: FromStr<Err = String>>(argument: &str, text: &str) -> megabatch_run::Result<T> {
    text.parse().map_err(|message| Error::usage(format!("{argument} is {text}: {message}")))
}
