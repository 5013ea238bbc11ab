//! `megabatch doctor`: what is wrong with a GPU training set-up, and the command that mends it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use megabatch_doctor::{Examination, ExaminationRequest, System, Topic, examine};
use megabatch_trainer::write_atomically;
use serde_json::json;

use crate::adapt::{management, trials};
use crate::answer::Answer;
use crate::failure::{Failure, Kind};
use crate::output;

/// Time limit for the answer of a Python: importing PyTorch off a slow disk takes a minute.
const LIMIT: Duration = Duration::from_secs(180);

/// Find what is wrong with a GPU training set-up, and the command that mends it
///
/// Looks at the GPU, its driver, the way to it out of a container, environment variables,
/// megabatch's own kernels, and a Python environment: PyTorch and the packages that are built for
/// it, by running them. Nothing is changed. Exits with 0 where training on a GPU can begin, and
/// with 6 where a problem is in its way.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch doctor
  megabatch doctor --python ~/venv/bin/python --fix-script fix.sh
  megabatch doctor --explain arm")]
pub(crate) struct Args {
    /// The interpreter of the environment to look at; else the active one, or the first on the path
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Write a script that mends the Python environment and proves it on the GPU; it is for you to
    /// read and run
    #[arg(long, value_name = "FILE")]
    fix_script: Option<PathBuf>,
    /// Print a page instead
    #[arg(long, value_name = "TOPIC", value_parser = topics(), conflicts_with_all = ["python", "fix_script"])]
    explain: Option<Topic>,
}

fn topics() -> impl TypedValueParser<Value = Topic> {
    let names = Topic::ALL.map(|topic| PossibleValue::new(topic.name()).help(topic.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Topic>())
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    if let Some(topic) = args.explain {
        let json = json!({ "topic": topic, "about": topic.about(), "page": topic.page() });
        return Ok(Answer::new(topic.page(), &json));
    }
    if let Some(out) = &args.fix_script {
        output::check(out, &[])?;
    }
    let examination = look(args.python.as_deref())?;
    let mut text = examination.to_text();
    let mut json = serde_json::to_value(&examination)?;
    if let Some(out) = &args.fix_script {
        text += &write_script(out, &examination)?;
        json["fix_script"] = json!(examination.repair.as_ref().map(|_| out));
    }
    let answer = Answer::new(text, &json);
    Ok(if examination.is_healthy { answer } else { answer.with_verdict(Kind::Device) })
}

fn look(python: Option<&Path>) -> Result<Examination> {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let system = System::new("/", variables, std::env::consts::ARCH);
    let python = python.map(interpreter).transpose()?;
    Ok(examine(ExaminationRequest {
        system: &system,
        python: python.as_deref(),
        limit: LIMIT,
        management: management::ask(),
        trials: trials::run(),
    }))
}

/// A bare name is looked for on the path; anything else is where it says, seen from here.
fn interpreter(named: &Path) -> Result<PathBuf> {
    if named.is_relative() && named.components().count() == 1 {
        return Ok(named.to_owned());
    }
    let path = std::path::absolute(named).context("--python")?;
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::usage(format!(
        "--python {}: expected a Python interpreter, and there is no such file",
        named.display()
    )))
}

/// Writes the script of `--fix-script`.
fn write_script(out: &Path, examination: &Examination) -> Result<String> {
    let Some(script) = examination.script() else {
        return Ok("\nNo script was written: nothing is known that would mend the Python environment.\n".to_owned());
    };
    write_atomically(out, script.as_bytes())?;
    let file = megabatch_doctor::quote(&out.to_string_lossy());
    Ok(format!("\nwritten: {}\nRead it, then run it: sh {file}\n", out.display()))
}
