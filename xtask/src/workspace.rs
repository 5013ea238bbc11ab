//! What cargo knows about the workspace, and cargo itself as a command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The workspace as `cargo metadata --no-deps` describes it.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_dir: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Members that it depends on in its normal and build dependencies; a test may reach further.
    pub(crate) depends_on: Vec<String>,
    pub(crate) is_published_library: bool,
    /// Names of its integration tests.
    pub(crate) tests: Vec<String>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let output = Command::new(cargo_program()).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
        if !output.status.success() {
            bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let path =
            |key: &str| metadata[key].as_str().map(PathBuf::from).with_context(|| format!("no {key} in metadata"));
        let raw = metadata["packages"].as_array().context("no packages in metadata")?;
        let names: Vec<&str> = raw.iter().filter_map(|package| package["name"].as_str()).collect();
        Ok(Workspace {
            root: path("workspace_root")?,
            target_dir: path("target_directory")?,
            packages: raw.iter().map(|package| Package::from_metadata(package, &names)).collect(),
        })
    }

    /// Where `megabatch` stands after a build with the dev profile.
    pub(crate) fn binary(&self) -> PathBuf {
        self.target_dir.join("debug").join(format!("megabatch{}", std::env::consts::EXE_SUFFIX))
    }
}

impl Package {
    fn from_metadata(package: &Value, members: &[&str]) -> Self {
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        let targets = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let of_kind = |kind| targets.iter().filter(move |target| target["kind"][0].as_str() == Some(kind));
        let is_library = of_kind("lib").next().is_some();
        Package {
            name: package["name"].as_str().unwrap_or_default().to_owned(),
            depends_on: dependencies
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .filter_map(|dependency| dependency["name"].as_str())
                .filter(|name| members.contains(name))
                .map(str::to_owned)
                .collect(),
            is_published_library: is_library && package["publish"].is_null(),
            tests: of_kind("test").filter_map(|target| target["name"].as_str()).map(str::to_owned).collect(),
        }
    }
}

/// `cargo ARGS` in `root`, with what [`crate::tools`] found on its path.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(cargo_program());
    command.args(args).current_dir(root);
    command
}

/// Runs `command` and fails if it does.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
