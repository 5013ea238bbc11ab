//! The contents of the workspace's files as hashes: the keys by which a gate knows that nothing
//! changed.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};

use crate::limits;
use crate::workspace::{Package, Workspace};

/// Every file of the workspace below its root, with the hash of its content; without build outputs,
/// and without hidden folders except `.cargo` and `.config`.
pub(crate) struct Sources {
    files: BTreeMap<PathBuf, u64>,
    /// Hash of the toolchain's version and of the environment that builds and tests read.
    surroundings: u64,
}

/// Variables that change what is built or what tests do.
const VARIABLES: [&str; 7] =
    ["CXX", "CC", "RUSTFLAGS", "CARGO_PROFILE_DEV_OPT_LEVEL", "MEGABATCH_DATA", "PROPTEST_CASES", "PATH"];

impl Sources {
    pub(crate) fn read(workspace: &Workspace) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut folders = vec![workspace.root.clone()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
            for entry in entries {
                let path = entry?.path();
                let kind = fs::symlink_metadata(&path)?.file_type();
                if kind.is_dir() && is_source_folder(&path, workspace) {
                    folders.push(path);
                } else if kind.is_file() {
                    let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                    files.insert(path.strip_prefix(&workspace.root)?.to_owned(), hash_of(&content));
                }
            }
        }
        let toolchain =
            limits::output(std::process::Command::new("rustc").arg("-vV")).context("rustc is needed")?.stdout;
        let variables = VARIABLES.map(std::env::var_os);
        Ok(Sources { files, surroundings: hash_of(&(toolchain, variables)) })
    }

    /// Hash of the contents of the Rust files, whatever the toolchain and the environment, and
    /// whatever else lies in the tree.
    pub(crate) fn rust_contents(&self) -> u64 {
        let files = self.files.iter().filter(|(path, _)| has_extension(path, &["rs"]));
        hash_of(&files.collect::<Vec<_>>())
    }

    /// Paths of the Rust files, relative to the root.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path).filter(|path| has_extension(path, &["rs"]))
    }

    /// Key of the inputs of tests: all files that are neither Rust nor pages.
    pub(crate) fn test_inputs_key(&self) -> u64 {
        self.files_key(|path| !has_extension(path, &["rs", "md", "svg"]))
    }

    /// Key of the inputs of the tests of pages: all files that are not Rust.
    pub(crate) fn page_test_inputs_key(&self) -> u64 {
        self.files_key(|path| !has_extension(path, &["rs"]))
    }

    /// Key of the inputs of the crates' documentation: all files except the pages below `docs`.
    pub(crate) fn crates_key(&self) -> u64 {
        self.files_key(|path| !path.starts_with("docs"))
    }

    /// Key of the fuzz targets: their workspace and the crates.
    pub(crate) fn fuzz_targets_key(&self) -> u64 {
        self.files_key(|path| path.starts_with("fuzz") || path.starts_with("crates"))
    }

    /// Key of the rehearsal on a made-up GPU: the crates, the scripts and the peers' side.
    pub(crate) fn rehearsal_key(&self) -> u64 {
        self.files_key(|path| ["crates", "scripts", "benches/peers"].iter().any(|folder| path.starts_with(folder)))
    }

    /// Key of one page.
    pub(crate) fn page_key(&self, page: &str) -> u64 {
        self.files_key(|path| path == Path::new(page))
    }

    fn files_key(&self, counts: impl Fn(&Path) -> bool) -> u64 {
        let counted = self.files.iter().filter(|(path, _)| counts(path));
        hash_of(&(counted.collect::<Vec<_>>(), self.surroundings))
    }

    /// Key of a package: its folder, those of the members that it depends on, and the files at the
    /// root.
    pub(crate) fn package_key(&self, workspace: &Workspace, package: &Package) -> u64 {
        let folders: Vec<&Path> = workspace.with_dependencies(package).iter().map(|one| one.folder.as_path()).collect();
        let counts = |path: &Path| {
            let at_root = path.parent() == Some(Path::new("")) && !has_extension(path, &["md"]);
            at_root || path.starts_with("patches") || folders.iter().any(|folder| path.starts_with(folder))
        };
        self.files_key(counts)
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one))
}

fn is_source_folder(path: &Path, workspace: &Workspace) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.') && name != ".cargo" && name != ".config";
    !hidden && name != "target" && path != workspace.target_dir
}

/// Key of a file that a build made, by its place, size and time: cargo leaves alone what is fresh.
pub(crate) fn stamp_of_file(path: &Path) -> Result<u64> {
    let about = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let modified = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(hash_of(&(path, about.len(), modified)))
}

pub(crate) fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
