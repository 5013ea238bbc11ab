//! The workspace by `cargo metadata`, and cargo as a command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::limits;

/// The workspace as `cargo metadata --no-deps` describes it.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_dir: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder below the root of the workspace.
    pub(crate) folder: PathBuf,
    /// Members that it depends on in its normal and build dependencies; a test may reach further.
    pub(crate) depends_on: Vec<String>,
    pub(crate) is_published_library: bool,
    /// Names of its integration tests.
    pub(crate) tests: Vec<String>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let output =
            limits::output(Command::new(cargo_program()).args(["metadata", "--no-deps", "--format-version", "1"]))?;
        if !output.status.success() {
            bail!("cargo metadata failed");
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let path =
            |key: &str| metadata[key].as_str().map(PathBuf::from).with_context(|| format!("no {key} in metadata"));
        let raw = metadata["packages"].as_array().context("no packages in metadata")?;
        let names: Vec<&str> = raw.iter().filter_map(|package| package["name"].as_str()).collect();
        let root = path("workspace_root")?;
        let packages = raw.iter().map(|package| Package::from_metadata(package, &names, &root)).collect();
        Ok(Workspace { root, target_dir: path("target_directory")?, packages })
    }

    /// `package` and every member that it depends on, also through others, but not for its tests
    /// alone.
    pub(crate) fn with_dependencies<'a>(&'a self, package: &'a Package) -> Vec<&'a Package> {
        let mut found = vec![package];
        let mut next = 0;
        while let Some(&package) = found.get(next) {
            for name in &package.depends_on {
                let dependency = self.packages.iter().find(|one| one.name == *name);
                found.extend(dependency.filter(|one| found.iter().all(|known| known.name != one.name)));
            }
            next += 1;
        }
        found
    }

    /// Path of `megabatch` after a build with the dev profile.
    pub(crate) fn binary(&self) -> PathBuf {
        self.target_dir.join("debug").join(format!("megabatch{}", std::env::consts::EXE_SUFFIX))
    }
}

impl Package {
    fn from_metadata(package: &Value, members: &[&str], root: &Path) -> Self {
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
        let targets = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let targets_of_kind = |kind| targets.iter().filter(move |target| target["kind"][0].as_str() == Some(kind));
        let is_library = targets_of_kind("lib").next().is_some();
        Package {
            name: package["name"].as_str().unwrap_or_default().to_owned(),
            folder: folder_of(package, root),
            depends_on: dependencies
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .filter_map(|dependency| dependency["name"].as_str())
                .filter(|name| members.contains(name))
                .map(str::to_owned)
                .collect(),
            is_published_library: is_library && package["publish"].is_null(),
            tests: targets_of_kind("test").filter_map(|target| target["name"].as_str()).map(str::to_owned).collect(),
        }
    }
}

fn folder_of(package: &Value, root: &Path) -> PathBuf {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let folder = manifest.parent().unwrap_or(root);
    folder.strip_prefix(root).unwrap_or(folder).to_owned()
}

/// Folders of the crates that tests alone use.
pub(crate) const TEST_CRATES: [&str; 3] = ["reference", "simt", "test-support"];

/// True for a source file that holds tests alone.
pub(crate) fn is_test_file(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "tests.rs")
}

/// Every `.rs` below `folder`, in order, without build outputs.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// `cargo ARGS` in `root`, with what [`crate::tools`] found on its path.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(cargo_program());
    command.args(args).current_dir(root);
    command
}

/// `cargo build` of the `targets` of all members, with the features that they have in tests: what
/// tests have compiled is not compiled again.
pub(crate) fn build_as_tests(root: &Path, targets: &[&str]) -> Command {
    // For an example cargo enables the features of development dependencies, as for tests.
    let mut build = cargo(root, &["build", "--locked", "--workspace", "--example", "gpu-check"]);
    build.args(targets);
    build
}

pub(crate) fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
