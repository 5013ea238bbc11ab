//! Examination: probes the machine, diagnoses it, and describes the result.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::diagnosis::{MachineFacts, diagnose};
use crate::finding::{Finding, Severity};
use crate::knowledge::AS_OF;
use crate::management::{Gpu, Management, Trial};
use crate::probe::Machine;
use crate::python::{self, Python};
use crate::repair::Repair;
use crate::system::System;

/// Scope of an examination.
#[derive(Clone, Debug)]
pub struct ExaminationRequest<'a> {
    /// The machine.
    pub system: &'a System,
    /// The interpreter of the environment to look at; without it the active one, or the first on
    /// the path.
    pub python: Option<&'a Path>,
    /// Time limit for the interpreter's answer: importing PyTorch off a slow disk takes a minute.
    pub limit: Duration,
    /// Answers of NVIDIA's management library.
    pub management: Management,
    /// Trials on the GPUs.
    pub trials: Vec<Trial>,
}

/// Observations and findings.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// True if nothing keeps a GPU from being used for training: no finding is a problem.
    pub is_healthy: bool,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// The commands that repair the Python environment; `None` if it needs no repair.
    pub repair: Option<Repair>,
    /// The machine.
    pub machine: Machine,
    /// Answers of NVIDIA's management library.
    pub management: Management,
    /// Trials on the GPUs.
    pub trials: Vec<Trial>,
    /// The Python environment.
    pub python: Option<Python>,
}

/// Examines a machine and its Python environment. Nothing is changed: files are read, and the
/// interpreter is run without writing compiled modules.
pub fn examine(request: ExaminationRequest<'_>) -> Examination {
    let machine = Machine::probe(request.system);
    let python = python::look(request.system, request.python, request.limit);
    let case = MachineFacts {
        machine: &machine,
        management: &request.management,
        python: python.as_ref(),
        trials: &request.trials,
    };
    let (findings, repair) = diagnose(&case);
    Examination {
        is_healthy: findings.iter().all(|finding| finding.severity != Severity::Problem),
        findings,
        repair,
        machine,
        management: request.management,
        trials: request.trials,
        python,
    }
}

impl Examination {
    /// The script that repairs the Python environment and then tests it; `None` if it needs no
    /// repair.
    pub fn script(&self) -> Option<String> {
        self.repair.as_ref().map(crate::script::script)
    }

    /// The examination as text for people.
    pub fn to_text(&self) -> String {
        text_of(self)
    }
}

/// Width of the text in columns.
const WIDTH: usize = 100;

fn text_of(examination: &Examination) -> String {
    let mut text = String::new();
    for (name, value) in machine(examination).into_iter().chain(python(examination)) {
        let _ = writeln!(text, "  {name:<12}{}", wrapped(&value, 14));
    }
    for finding in &examination.findings {
        text += &describe(finding);
    }
    text + &verdict(examination)
}

fn machine(examination: &Examination) -> Vec<(&'static str, String)> {
    let machine = &examination.machine;
    let mut rows = Vec::new();
    let container = if machine.container.is_some() { ", in a container" } else { "" };
    let system = machine.system.as_deref().unwrap_or("unknown system");
    rows.push(("machine", format!("{}, {system}{container}", machine.architecture)));
    if examination.management.gpus.is_empty() {
        let gpus = machine.pci.iter().map(|gpu| format!("model {} at {}", gpu.model, gpu.address)).collect::<Vec<_>>();
        rows.push((
            "GPU",
            if gpus.is_empty() { "none of NVIDIA's".to_owned() } else { format!("NVIDIA {}", gpus.join(", ")) },
        ));
    }
    rows.extend(examination.management.gpus.iter().map(|gpu| ("GPU", describe_gpu(gpu))));
    rows.push(("driver", driver(examination)));
    rows.push(("libcuda", libcuda(examination)));
    let trial = |trial: &crate::Trial| {
        let outcome = match (&trial.fault, &trial.result) {
            (Some(_), _) => "failed",
            (None, Some(result)) => result,
            (None, None) => "works",
        };
        ("megabatch", format!("{} on {}: {outcome}", trial.name, trial.device))
    };
    rows.extend(examination.trials.iter().map(trial));
    rows
}

fn describe_gpu(gpu: &Gpu) -> String {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let capability = gpu.capability.map(|capability| format!(", compute capability {capability}")).unwrap_or_default();
    let used = format!(", {:.1} of {:.1} GiB in use", gib(gpu.used_bytes), gib(gpu.total_bytes));
    let ecc = match gpu.counts_errors {
        Some(true) => ", ECC on",
        Some(false) => ", ECC off",
        None => "",
    };
    format!("{}{capability}{used}{ecc}", gpu.name)
}

fn driver(examination: &Examination) -> String {
    let module = examination.machine.module.as_ref().map(|module| &module.version);
    let version = module.or(examination.management.driver.as_ref());
    let cuda = examination.management.cuda.or_else(|| crate::knowledge::cuda_of_driver(version?));
    match (version, cuda) {
        (None, _) => "none".to_owned(),
        (Some(version), None) => version.to_string(),
        (Some(version), Some(cuda)) => format!("{version}, which knows CUDA up to {cuda}"),
    }
}

/// The library that the loader takes, and its search path.
fn libcuda(examination: &Examination) -> String {
    let libraries = &examination.machine.libraries;
    let folders: Vec<String> = libraries.searched.iter().map(|folder| folder.display().to_string()).collect();
    let folders = folders.join(", ");
    match libraries.driver.first() {
        Some(library) => format!("{}; searched in this order: {folders}", library.path.display()),
        None => format!("not found in {folders}"),
    }
}

fn python(examination: &Examination) -> Vec<(&'static str, String)> {
    let Some(python) = &examination.python else { return vec![("Python", "none found".to_owned())] };
    let version = python.version.as_ref().map(|version| format!("{version}, ")).unwrap_or_default();
    let mut rows = vec![("Python", format!("{version}{} (by {})", python.executable.display(), python.found_by))];
    if let Some(torch) = &python.torch {
        let cuda = torch.cuda.map_or("without CUDA".to_owned(), |cuda| format!("with CUDA {cuda}"));
        let compiled =
            if torch.compiled_for.is_empty() { String::new() } else { format!(", for GPUs {}", torch.compiled_for) };
        rows.push(("PyTorch", format!("{}, {cuda}{compiled}", torch.version)));
    }
    rows.extend(python.extensions.iter().map(|extension| {
        let version = extension.version.as_ref().map(ToString::to_string).unwrap_or_default();
        ("", format!("{} {version}", extension.module))
    }));
    rows.extend(runs(python));
    rows
}

fn runs(python: &Python) -> Vec<(&'static str, String)> {
    let outcome = |error: &Option<String>| if error.is_some() { "failed" } else { "gave the right result" };
    python
        .runs
        .iter()
        .map(|run| ("", format!("{} on {}: {}", run.operation, run.device, outcome(&run.error))))
        .collect()
}

fn describe(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Problem => "PROBLEM",
        Severity::Warning => "WARNING",
        Severity::Note => "NOTE",
    };
    let mut text = format!("\n{}\n", wrapped(&format!("{severity}: {}", finding.seen), 2));
    let _ = writeln!(text, "  {}", wrapped(&finding.why, 2));
    for command in &finding.commands {
        let _ = writeln!(text, "    {command}");
    }
    if let Some(topic) = finding.explain {
        let _ = writeln!(text, "  More: megabatch doctor --explain {topic}");
    }
    text
}

fn verdict(examination: &Examination) -> String {
    let count = |severity| examination.findings.iter().filter(|finding| finding.severity == severity).count();
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    let verdict = match (problems, warnings) {
        (0, 0) => "Nothing is wrong.".to_owned(),
        (0, 1) => "Training on the GPU can begin; there is 1 warning.".to_owned(),
        (0, warnings) => format!("Training on the GPU can begin; there are {warnings} warnings."),
        (1, _) => "1 problem: training on the GPU will not work before it is mended.".to_owned(),
        (problems, _) => format!("{problems} problems: training on the GPU will not work before they are mended."),
    };
    format!("\n{verdict}\nNothing was changed. What is known of builds and drivers is as of {AS_OF}.\n")
}

/// `text` broken at blanks, further lines `indent` columns in. Words are never broken.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks() {
        let text = wrapped(&"word ".repeat(60), 4);
        assert!(text.lines().count() > 2);
        assert!(text.lines().skip(1).all(|line| line.starts_with("    word") && line.chars().count() <= WIDTH));
        assert_eq!(wrapped(&"x".repeat(200), 0).chars().count(), 200);
        assert_eq!(wrapped("", 3), "");
    }
}
