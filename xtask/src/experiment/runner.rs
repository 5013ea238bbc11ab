//! Runs megabatch for an experiment: a release build, a folder of its own, answers as JSON.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::limits::succeed;
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// One experiment's program, data and folder.
pub(crate) struct Runner {
    program: PathBuf,
    data: PathBuf,
    folder: PathBuf,
}

impl Runner {
    /// Builds the program, and makes an empty folder under `target/experiments` for the experiment
    /// called `name`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let data = std::env::var_os("MEGABATCH_DATA")
            .context("MEGABATCH_DATA is not set: it names the folder of public data")?;
        let workspace = Workspace::load()?;
        let mut build = cargo(&workspace.root, &["build", "--release", "--package", "megabatch"]);
        succeed(tools::with_cmake(&mut build, &workspace)?)?;
        let folder = workspace.target_dir.join("experiments").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)?;
        let program = workspace.target_dir.join("release").join(format!("megabatch{}", std::env::consts::EXE_SUFFIX));
        Ok(Runner { program, data: data.into(), folder })
    }

    /// Something of the public data.
    pub(crate) fn data(&self, path: &str) -> String {
        self.data.join(path).display().to_string()
    }

    /// Something in the experiment's folder.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Answer of `megabatch ARGS --json`.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<Value> {
        println!("xtask: megabatch {}", args.join(" "));
        let output = Command::new(&self.program).args(args).arg("--json").stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            bail!("megabatch {} ended with {}", args.join(" "), output.status);
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("megabatch {}: no JSON", args.join(" ")))
    }

    /// Trains on `data` in the folder `run`, with these settings over the defaults.
    pub(crate) fn train(&self, data: &str, run: &str, settings: &[&str]) -> Result<Value> {
        let out = self.file(run);
        let mut args = vec!["train", "--data", data, "--out", &out];
        settings.iter().for_each(|setting| args.extend(["--set", setting]));
        self.ask(&args)
    }
}

/// A number of an answer, by its path.
pub(crate) fn number(answer: &Value, pointer: &str) -> Result<f64> {
    answer.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("the answer has no {pointer}: {answer}"))
}

/// `mean ± standard deviation`, of the sample, of `values`, each times `unit`.
pub(crate) fn mean_and_deviation(values: &[f64], unit: f64) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    format!("{:.2} ± {:.2}", unit * mean, unit * variance.sqrt())
}
