//! Property tests with another seed for every state of the sources.
//!
//! The usual run draws the same cases each time, so that a failure belongs to the change at hand.
//! Rare faults stay hidden by it. A second run draws few cases from a seed that depends on the
//! contents of all Rust files: another one after every change, the same one wherever this state is
//! tested.

use std::process::Command;

use anyhow::{Context, Result};

use crate::nextest::{self, TestProgram};
use crate::session::Session;

/// Cases of each property test in the second run.
const CASES: &str = "4";

/// Sets the seed and the number of cases of the second run.
pub(crate) fn with_changing_seed(command: &mut Command, session: &Session) {
    command.env("PROPTEST_RNG_SEED", seed(session).to_string()).env("PROPTEST_CASES", CASES);
}

/// Seed of the second run.
pub(crate) fn seed(session: &Session) -> u64 {
    session.sources.rust_contents()
}

/// Filter of nextest that chooses the property tests of `programs`; `None` if there are none.
pub(crate) fn filter(session: &Session, programs: &[&TestProgram]) -> Result<Option<String>> {
    let mut names = Vec::new();
    for path in session.sources.rust_files() {
        let path = session.workspace.root.join(path);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        names.extend(names_in(&text).into_iter().map(str::to_owned));
    }
    names.sort();
    names.dedup();
    Ok((!names.is_empty()).then(|| format!("test(/(^|::)({})$/) & ({})", names.join("|"), nextest::filter(programs))))
}

/// Names of the functions in every `proptest!` of a file, which ends at the first `}` that is
/// indented as it is.
fn names_in(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let content = line.trim_start();
        if !content.ends_with("proptest! {") || content.starts_with("//") {
            continue;
        }
        let indentation = &line[..line.len() - content.len()];
        let body = lines.by_ref().take_while(|line| line.strip_prefix(indentation) != Some("}"));
        let inside = body.filter_map(|line| line.strip_prefix(indentation)?.strip_prefix("    fn "));
        names.extend(inside.filter_map(|signature| signature.split('(').next()));
    }
    names
}

#[test]
fn functions_in_proptest_are_found_and_no_others() {
    let source = "
fn helper() {}
proptest! {
    #![proptest_config(ProptestConfig::default())]
    /// A property.
    #[test]
    fn one(a in 0u8..3) {
        fn inner() {}
    }

    #[test]
    fn two((a, b) in pair()) {}
}
mod tests {
    proptest::proptest! {
        #[test]
        fn three(a in 0..1) {}
    }
    fn outside() {}
}
#[test]
fn table() {}";
    assert_eq!(names_in(source), ["one", "two", "three"]);
}
