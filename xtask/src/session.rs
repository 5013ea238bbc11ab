//! A run of gates: the workspace, the checks that passed before, and the depth of tests.

use std::cell::RefCell;
use std::process::Command;

use anyhow::Result;

use crate::nextest::TimedTest;
use crate::passed::Passed;
use crate::sources::Sources;
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// A run of gates.
pub(crate) struct Session {
    pub(crate) workspace: Workspace,
    pub(crate) sources: Sources,
    pub(crate) passed: Passed,
    pub(crate) depth: Depth,
    /// Packages of the gate `tests`; empty for all.
    pub(crate) packages: Vec<String>,
    /// Tests of this run with their times.
    pub(crate) timed: RefCell<Vec<TimedTest>>,
}

/// Number of cases of every property test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// 16 cases.
    Usual,
    /// 256 cases, and the simulated pool for a million events.
    Thorough,
}

impl Session {
    /// The arguments that choose the packages of the gate `tests`.
    pub(crate) fn package_arguments(&self) -> Vec<&str> {
        if self.packages.is_empty() {
            return vec!["--workspace"];
        }
        self.packages.iter().flat_map(|package| ["--package", package.as_str()]).collect()
    }

    /// `cargo ARGS` in the workspace, with cmake on its path.
    pub(crate) fn cargo(&self, args: &[&str]) -> Result<Command> {
        let mut command = cargo(&self.workspace.root, args);
        tools::with_cmake(&mut command, &self.workspace)?;
        Ok(command)
    }
}
