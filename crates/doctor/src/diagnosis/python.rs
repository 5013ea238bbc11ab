//! The interpreter: there, answering, and for this processor?

use super::Case;
use crate::finding::Finding;
use crate::knowledge::Processor;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some(python) = case.python else {
        let why = "megabatch does not need Python. To have PyTorch looked at, activate its environment first or name its interpreter with \
                   `--python PATH`.";
        return vec![Finding::note("no-python", "no Python was found", why)];
    };
    let name = python.executable.display().to_string();
    let mut findings = Vec::new();
    if let Some(trouble) = &python.trouble {
        // What could not even be started is named in the message.
        let is_named = trouble.starts_with(&name);
        let seen = if is_named {
            trouble.clone()
        } else {
            format!("{name} broke off when it was asked what it has: {trouble}")
        };
        let why = "What is said about PyTorch was read off its files, as far as it had not answered, and nothing more was run on the GPU. \
                   If this Python does not start at all, make its environment anew: `python3 -m venv ENVIRONMENT`.";
        findings.push(Finding::problem("python-broken", seen, why));
    }
    if python.torch.is_none() && python.trouble.is_none() {
        let why = "megabatch does not need PyTorch. If you expected one, this is another Python than the one it is in: name that one with \
                   `--python PATH`.";
        findings.push(Finding::note("no-torch", format!("{name} has no PyTorch"), why));
    }
    findings.extend(emulated(case));
    findings
}

/// An interpreter for another processor than the machine's.
fn emulated(case: &Case<'_>) -> Option<Finding> {
    let python = case.python?;
    let (machine, own) = (python.machine.as_deref()?, case.machine.architecture.as_str());
    let (theirs, ours) = (Processor::named(machine)?, Processor::named(own)?);
    let seen = format!("{} is a Python for {machine}, on a machine that is {own}", python.executable.display());
    let why =
        "It runs by emulation, slowly, and installs wheels for the wrong processor. Install a Python for this machine.";
    (theirs != ours).then(|| Finding::warning("python-emulated", seen, why))
}
