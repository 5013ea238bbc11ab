//! Tests that did not run on this machine, and the requirements that must not be missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use megabatch_test_support::{Requirement, Skipped, recorded};

use crate::workspace::Workspace;

pub(crate) use megabatch_test_support::RECORD;

/// The file to which the tests of one run append.
pub(crate) fn path(workspace: &Workspace) -> PathBuf {
    workspace.target_dir.join("skipped-tests.txt")
}

/// Removes a file of an earlier run, if there is one.
pub(crate) fn clear_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The requirement called `name`.
pub(crate) fn requirement(name: &str) -> Result<Requirement> {
    let names = || Requirement::ALL.map(Requirement::name).join(", ");
    Requirement::from_name(name).with_context(|| format!("--require {name}: expected one of {}", names()))
}

/// Prints the skipped tests, and fails if one was skipped for lack of something in `required`.
pub(crate) fn report(path: &Path, required: &[Requirement]) -> Result<()> {
    let skipped = recorded(path).with_context(|| format!("cannot read {}", path.display()))?;
    print!("{}", listing(&skipped));
    refuse(&skipped, required)
}

fn refuse(skipped: &[Skipped], required: &[Requirement]) -> Result<()> {
    let refused: Vec<Skipped> =
        skipped.iter().filter(|skipped| required.contains(&skipped.requirement)).cloned().collect();
    if !refused.is_empty() {
        bail!("--require: tests were skipped for want of what is required\n{}", listing(&refused));
    }
    Ok(())
}

/// The number of skipped tests, and each by the requirement that it misses.
fn listing(skipped: &[Skipped]) -> String {
    let mut by_requirement: BTreeMap<Requirement, BTreeMap<(&str, &str), Vec<&str>>> = BTreeMap::new();
    for one in skipped {
        let tests = by_requirement.entry(one.requirement).or_default();
        tests.entry((&one.package, &one.test)).or_default().push(&one.reason);
    }
    let count: usize = by_requirement.values().map(BTreeMap::len).sum();
    let mut text = format!("{count} test{} skipped\n", if count == 1 { "" } else { "s" });
    for (requirement, tests) in by_requirement {
        text += &format!("  for want of {requirement}: {}\n", tests.len());
        for ((package, test), reasons) in tests {
            text += &format!("    {package} {test}: {}\n", reasons.join("; "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(requirement: Requirement, test: &str, reason: &str) -> Skipped {
        let [package, program, test, reason] = ["megabatch-bars", "real-0123", test, reason].map(str::to_owned);
        Skipped { requirement, package, program, test, reason }
    }

    #[test]
    fn the_list_counts_tests_and_names_their_reasons() {
        let list = [
            skipped(Requirement::Data, "real::files", "a.csv"),
            skipped(Requirement::Data, "real::files", "b.csv"),
            skipped(Requirement::Data, "real::year", "c.csv"),
            skipped(Requirement::Root, "full_disk", "a small file system"),
        ];
        assert_eq!(
            listing(&list),
            "3 tests skipped\n\
            \x20 for want of published data (MEGABATCH_DATA): 2\n\
            \x20   megabatch-bars real::files: a.csv; b.csv\n\
            \x20   megabatch-bars real::year: c.csv\n\
            \x20 for want of root: 1\n\
            \x20   megabatch-bars full_disk: a small file system\n"
        );
        assert_eq!(listing(&[]), "0 tests skipped\n");
    }

    #[test]
    fn a_required_input_must_be_there() {
        let list = [skipped(Requirement::Data, "real::year", "c.csv")];
        assert!(refuse(&list, &[Requirement::Python]).is_ok() && refuse(&list, &[]).is_ok());
        let refusal = refuse(&list, &[Requirement::Python, Requirement::Data]).unwrap_err().to_string();
        assert!(refusal.contains("megabatch-bars real::year: c.csv"), "{refusal}");
        assert!(requirement("gpu").unwrap_err().to_string().contains("expected one of data, python, root"));
    }
}
