//! Diagnosis: findings as functions of the facts. Nothing is probed here.

mod case;
mod device;
mod extensions;
mod health;
mod libraries;
mod torch;
mod variables;

use std::collections::BTreeMap;

use crate::finding::{Finding, Severity};
use crate::knowledge::CpuArchitecture;
use crate::repair::{Installer, Repair};

pub(crate) use case::MachineFacts;

/// Findings, the worst first, and the repair of the Python environment.
pub(crate) fn diagnose(case: &MachineFacts<'_>) -> (Vec<Finding>, Option<Repair>) {
    let mut findings = device::findings(case);
    findings.extend(variables::findings(case));
    findings.extend(python_findings(case));
    let torch = torch::findings(case);
    let (extensions, repair) = extensions::findings(case, torch.wheel);
    findings.extend(with_commands(torch.findings, repair.as_ref()));
    findings.extend(extensions);
    findings.extend(libraries::findings(case));
    findings.extend(dependants_findings(case));
    findings.extend(health::findings(case));
    findings.extend(own_findings(case));
    findings.extend(torch::unexplained(case, &findings));
    findings.sort_by_key(|finding| finding.severity);
    (findings, repair)
}

/// Attaches the repair's commands to the first finding that another PyTorch fixes.
fn with_commands(mut findings: Vec<Finding>, repair: Option<&Repair>) -> Vec<Finding> {
    let first =
        findings.iter_mut().find(|finding| finding.severity == Severity::Problem && finding.commands.is_empty());
    if let Some((finding, repair)) = first.zip(repair.filter(|repair| repair.wheel.is_some())) {
        finding.commands = repair.commands();
    }
    findings
}

const TRIALS_MATTER: &str = "megabatch brings its own code for GPUs and needs nothing of Python. Where this fails, it cannot use the GPU either; if the \
driver is not mentioned above, this is worth a report with the output of `megabatch doctor --json`.";

/// One finding a device, for all tests that failed on it.
fn own_findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for trial in case.trials {
        if let Some(fault) = &trial.fault {
            failed.entry(&trial.device).or_default().push(format!("`{}`: {fault}", trial.name));
        }
    }
    let seen =
        |(device, faults): (&str, Vec<String>)| format!("megabatch does not work on {device}; {}", faults.join("; "));
    failed.into_iter().map(|failed| Finding::problem("megabatch-failed", seen(failed), TRIALS_MATTER)).collect()
}

fn dependants_findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    let Some((python, torch)) = case.python.zip(case.torch()).filter(|(_, torch)| torch.cuda.is_some()) else {
        return Vec::new();
    };
    let architecture = python.machine.as_deref().unwrap_or(&case.machine.architecture);
    let installer = Installer::for_python(python);
    let finding = |distribution: &crate::python::Distribution| {
        let asked = distribution
            .requires
            .iter()
            .find(|asked| asked.name == "torch" && asked.applies(architecture) && !asked.admits(&torch.version))?;
        let seen = format!(
            "{} {} asks for torch{}, and PyTorch {} is installed",
            distribution.name, distribution.version, asked.versions, torch.version
        );
        let build = match case.cpu() {
            Some(CpuArchitecture::Arm) => "usually the one without CUDA on ARM",
            _ => "perhaps for another CUDA version than yours, or for none",
        };
        let why = format!(
            "When this package is next installed or updated, pip replaces your PyTorch by the build that it finds in its own index: \
             {build}. The command installs the package and leaves PyTorch alone."
        );
        let command = installer.pip("install", &["--no-deps".to_owned(), distribution.name.clone()]);
        Some(Finding::warning("would-replace-torch", seen, why).mended_by([command]))
    };
    python.distributions.iter().filter_map(finding).collect()
}

fn python_findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    let Some(python) = case.python else {
        let why = "megabatch does not need Python. To have PyTorch looked at, activate its environment first or name its interpreter with \
                   `--python PATH`.";
        return vec![Finding::note("no-python", "no Python was found", why)];
    };
    let name = python.executable.display().to_string();
    let mut findings = Vec::new();
    if let Some(failure) = &python.failure {
        // An interpreter that could not be started is named in the message already.
        let is_named = failure.starts_with(&name);
        let seen = if is_named {
            failure.clone()
        } else {
            format!("{name} broke off when it was asked what it has: {failure}")
        };
        let why = "What is said about PyTorch was read off its files, as far as it had not answered, and nothing more was run on the GPU. \
                   If this Python does not start at all, make its environment anew: `python3 -m venv ENVIRONMENT`.";
        findings.push(Finding::problem("python-broken", seen, why));
    }
    if python.torch.is_none() && python.failure.is_none() {
        let why = "megabatch does not need PyTorch. If you expected one, this is another Python than the one it is in: name that one with \
                   `--python PATH`.";
        findings.push(Finding::note("no-torch", format!("{name} has no PyTorch"), why));
    }
    findings.extend(emulated(case));
    findings
}

/// An interpreter for another CPU architecture than the machine's.
fn emulated(case: &MachineFacts<'_>) -> Option<Finding> {
    let python = case.python?;
    let (machine, own) = (python.machine.as_deref()?, case.machine.architecture.as_str());
    let (theirs, ours) = (CpuArchitecture::named(machine)?, CpuArchitecture::named(own)?);
    let seen = format!("{} is a Python for {machine}, on a machine that is {own}", python.executable.display());
    let why = "It runs by emulation, slowly, and installs wheels for the wrong CPU. Install a Python for this machine.";
    (theirs != ours).then(|| Finding::warning("python-emulated", seen, why))
}
