//! `cargo xtask demo`: the main job, end to end, from a fresh clone.

use std::process::Command;

use anyhow::Result;

use crate::tools;
use crate::workspace::{Workspace, cargo, succeed};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    build(&workspace)?;
    succeed(Command::new(workspace.binary()).arg("demo").args(args))
}

/// Builds the program with the profile that the tests use too.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let mut build = cargo(&workspace.root, &["build", "--package", "megabatch"]);
    succeed(tools::with_cmake(&mut build, workspace)?)
}
