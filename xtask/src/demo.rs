//! `cargo xtask demo`: the main job, end to end, from a fresh clone.

use std::process::Command;

use anyhow::Result;

use crate::limits::{succeed, succeed_without_limit};
use crate::tools;
use crate::workspace::{Workspace, build_as_tests, cargo};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    build(&workspace)?;
    succeed_without_limit(program(&workspace).args(args))
}

/// `megabatch demo`.
pub(crate) fn program(workspace: &Workspace) -> Command {
    let mut program = Command::new(workspace.binary());
    program.arg("demo");
    program
}

/// Builds the program with the profile that the tests use too.
fn build(workspace: &Workspace) -> Result<()> {
    let mut build = cargo(&workspace.root, &["build", "--package", "megabatch"]);
    succeed(tools::with_cmake(&mut build, workspace)?)
}

/// Builds the program that the tests start.
pub(crate) fn build_for_tests(workspace: &Workspace) -> Result<()> {
    succeed(tools::with_cmake(&mut build_as_tests(&workspace.root, &["--bin", "megabatch"]), workspace)?)
}
