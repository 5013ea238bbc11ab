//! Findings from megabatch's own trials on the GPUs.

use std::collections::BTreeMap;

use super::Case;
use crate::finding::Finding;

const WHY: &str = "megabatch brings its own code for GPUs and needs nothing of Python. Where this fails, it cannot use the GPU either; if the \
driver is not mentioned above, this is worth a report with the output of `megabatch doctor --json`.";

/// One finding a device, whatever failed on it.
pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for trial in case.trials {
        if let Some(fault) = &trial.fault {
            failed.entry(&trial.device).or_default().push(format!("`{}`: {fault}", trial.name));
        }
    }
    let seen =
        |(device, faults): (&str, Vec<String>)| format!("megabatch does not work on {device}; {}", faults.join("; "));
    failed.into_iter().map(|failed| Finding::problem("megabatch-failed", seen(failed), WHY)).collect()
}
