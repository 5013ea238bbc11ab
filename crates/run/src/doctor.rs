//! Faults of a GPU training set-up, and the commands that mend them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use megabatch_atomic_file as atomic_file;
use megabatch_doctor::{Examination, ExaminationRequest, System};
use serde_json::json;

use crate::adapters::{management, trials};
use crate::command_report::CommandReport;
use crate::error::{Context as _, Error, Kind, Result};
use crate::host::Host;
use crate::output;

pub use megabatch_doctor::Topic;

/// Time limit for the answer of a Python: importing PyTorch off a slow disk takes a minute.
const LIMIT: Duration = Duration::from_secs(180);

/// Parts of the set-up to examine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Python interpreter to examine [default: the active one, or the first on the path].
    pub python: Option<PathBuf>,
    /// File for a script that mends the Python environment and proves it on the GPU.
    pub fix_script: Option<PathBuf>,
}

/// The page on `topic`.
pub fn explain(topic: Topic) -> CommandReport {
    CommandReport::new(topic.page(), &json!({ "topic": topic, "about": topic.about(), "page": topic.page() }))
}

/// Finds faults of a GPU training set-up and the commands that mend them: the GPU, its driver, the
/// way to it out of a container, environment variables, megabatch's own kernels, and a Python
/// environment. Nothing is changed. The verdict is [`Kind::Device`] where a problem is in the way
/// of training on a GPU.
///
/// # Errors
/// A usage error for an interpreter that is not there, or a script that cannot be written.
pub fn examine(options: &Options, host: &Host<'_>) -> Result<CommandReport> {
    if let Some(out) = &options.fix_script {
        output::check(out, &[])?;
    }
    let examination = look(options.python.as_deref(), &host.environment)?;
    let mut text = examination.to_text();
    let mut json = serde_json::to_value(&examination)?;
    if let Some(out) = &options.fix_script {
        text += &write_script(out, &examination)?;
        json["fix_script"] = json!(examination.repair.as_ref().map(|_| out));
    }
    let report = CommandReport::new(text, &json);
    Ok(if examination.is_healthy { report } else { report.with_verdict(Kind::Device) })
}

fn look(python: Option<&Path>, environment: &[(OsString, OsString)]) -> Result<Examination> {
    let system = system(environment);
    let python = python.map(interpreter).transpose()?;
    Ok(megabatch_doctor::examine(ExaminationRequest {
        system: &system,
        python: python.as_deref(),
        limit: LIMIT,
        management: management::ask(),
        trials: trials::run(),
    }))
}

/// This machine, with the variables of `environment`.
pub(crate) fn system(environment: &[(OsString, OsString)]) -> System {
    let text = |text: &OsString| text.to_str().map(str::to_owned);
    let variables = environment.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
    System::new("/", variables, std::env::consts::ARCH)
}

/// The interpreter `named`: a bare name is searched on the path, anything else is a path.
fn interpreter(named: &Path) -> Result<PathBuf> {
    if named.is_relative() && named.components().count() == 1 {
        return Ok(named.to_owned());
    }
    let path = std::path::absolute(named).context("--python")?;
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::usage(format!("--python {}: expected a Python interpreter, and there is no such file", named.display())))
}

/// Writes the script of `--fix-script`.
fn write_script(out: &Path, examination: &Examination) -> Result<String> {
    let Some(script) = examination.script() else {
        return Ok("\nNo script was written: nothing is known that would mend the Python environment.\n".to_owned());
    };
    atomic_file::write(out, script.as_bytes())?;
    let file = megabatch_doctor::quote(&out.to_string_lossy());
    Ok(format!("\nwritten: {}\nRead it, then run it: sh {file}\n", out.display()))
}
