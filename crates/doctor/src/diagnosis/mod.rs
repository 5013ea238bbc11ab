//! From what was seen to what is wrong. Functions of facts: nothing is looked at here.

mod case;
mod dependants;
mod device;
mod extensions;
mod health;
mod libraries;
mod own;
mod python;
mod torch;
mod variables;

use crate::finding::{Finding, Severity};
use crate::repair::Repair;

pub(crate) use case::Case;

/// Findings, the worst first, and the repair of the Python environment.
pub(crate) fn diagnose(case: &Case<'_>) -> (Vec<Finding>, Option<Repair>) {
    let mut findings = device::findings(case);
    findings.extend(variables::findings(case));
    findings.extend(python::findings(case));
    let torch = torch::findings(case);
    let (extensions, repair) = extensions::findings(case, torch.wheel);
    findings.extend(with_commands(torch.findings, repair.as_ref()));
    findings.extend(extensions);
    findings.extend(libraries::findings(case));
    findings.extend(dependants::findings(case));
    findings.extend(health::findings(case));
    findings.extend(own::findings(case));
    findings.extend(torch::unexplained(case, &findings));
    findings.sort_by_key(|finding| finding.severity);
    (findings, repair)
}

/// Gives the first finding that another PyTorch mends the commands for all of them.
fn with_commands(mut findings: Vec<Finding>, repair: Option<&Repair>) -> Vec<Finding> {
    let first =
        findings.iter_mut().find(|finding| finding.severity == Severity::Problem && finding.commands.is_empty());
    if let Some((finding, repair)) = first.zip(repair.filter(|repair| repair.wheel.is_some())) {
        finding.commands = repair.commands();
    }
    findings
}
