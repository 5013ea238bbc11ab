//! `cargo xtask kernels [--check]`: every `.cu` compiled by pinned packages to the `.ptx` in its
//! crate's folder `ptx`, and assembled for every GPU. The machine code of the recurrences is read
//! for waits. `cargo xtask kernels --variant NAME=PATCH`: what a patch makes of them, to be
//! measured beside them.

mod assembly;
mod compiler;
mod machine_code;
mod variant;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use compiler::Compiler;

/// Use of the resulting PTX.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Write,
    Check,
}

/// Sources of kernels that load a step ahead of the product of another.
const RECURRENCES: [&str; 2] = ["recurrence", "recurrence_backward"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mode = match args {
        [] => Mode::Write,
        [flag] if flag == "--check" => Mode::Check,
        [flag, ..] if flag == "--variant" => return variant::run(args),
        _ => bail!(
            "kernels takes --check, --variant NAME=PATCH, once or more, or nothing, but there is `{}`",
            args.join(" ")
        ),
    };
    let workspace = Workspace::load()?;
    let sources = sources(&workspace.root)?;
    if let Some(orphan) = orphan(&workspace.root, &sources)? {
        bail!("{} has no .cu in its crate: remove it", orphan.display());
    }
    let compiler = Compiler::install(&workspace)?;
    println!("registers and bytes spilled, by target: {}", assembly::TARGETS.join(", "));
    let mut differences = Vec::new();
    for source in &sources {
        let ptx = compiler.ptx(source)?;
        match mode {
            Mode::Write => write(&workspace.root, source, &ptx)?,
            Mode::Check => differences.extend(difference(&workspace.root, source, &ptx)),
        }
        println!("{}", source.display());
        assembly::report(&compiler, source, &ptx)?;
        if source.file_stem().is_some_and(|name| RECURRENCES.iter().any(|recurrence| name == *recurrence)) {
            machine_code::check(&compiler, source, &ptx)?;
        }
    }
    if !differences.is_empty() {
        bail!("{}\nrun `cargo xtask kernels` and commit what it changes", differences.join("\n"));
    }
    Ok(())
}

fn write(root: &Path, source: &Path, ptx: &str) -> Result<()> {
    let path = root.join(compiled(source));
    std::fs::write(&path, ptx).with_context(|| format!("cannot write {}", path.display()))
}

/// Difference between the committed and the compiled PTX.
fn difference(root: &Path, source: &Path, ptx: &str) -> Option<String> {
    let path = compiled(source);
    let Ok(committed) = std::fs::read_to_string(root.join(&path)) else {
        return Some(format!("{} is missing", path.display()));
    };
    let place = first_difference(&committed, ptx)?;
    Some(format!("{}:{place}", path.display()))
}

fn first_difference(committed: &str, compiled: &str) -> Option<String> {
    if committed == compiled {
        return None;
    }
    let line = committed.lines().zip(compiled.lines()).position(|(committed, compiled)| committed != compiled);
    let line = line.unwrap_or_else(|| committed.lines().count().min(compiled.lines().count()));
    let show = |text: &str| text.lines().nth(line).map_or("nothing".to_owned(), |line| format!("`{}`", line.trim()));
    Some(format!("{}: committed is {}, compiled is {}", line + 1, show(committed), show(compiled)))
}

/// The path of the PTX of `source`, both relative to the root: `crates/CRATE/ptx/NAME.ptx`.
fn compiled(source: &Path) -> PathBuf {
    let krate: PathBuf = source.components().take(2).collect();
    let name = Path::new(source.file_name().unwrap_or_default()).with_extension("ptx");
    krate.join("ptx").join(name)
}

/// The kernel sources of all crates, relative to the root, in order.
///
/// # Errors
/// Two sources of one crate with the same name: their PTX would be one file.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let sources = files(root, "src", "cu")?;
    let mut seen = BTreeMap::new();
    for source in &sources {
        if let Some(other) = seen.insert(compiled(source), source) {
            bail!("{} and {} have one name: rename one", other.display(), source.display());
        }
    }
    Ok(sources)
}

/// A committed PTX without a source.
fn orphan(root: &Path, sources: &[PathBuf]) -> Result<Option<PathBuf>> {
    let expected: BTreeSet<PathBuf> = sources.iter().map(|source| compiled(source)).collect();
    Ok(files(root, "ptx", "ptx")?.into_iter().find(|ptx| !expected.contains(ptx)))
}

/// Files below `crates/*/FOLDER` with this ending.
fn files(root: &Path, folder: &str, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for krate in std::fs::read_dir(root.join("crates"))? {
        let folder = krate?.path().join(folder);
        if folder.is_dir() {
            collect(&folder, ending, &mut found)?;
        }
    }
    let mut found: Vec<PathBuf> = found.iter().map(|path| path.strip_prefix(root).unwrap_or(path).to_owned()).collect();
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, ending, found)?;
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_lies_in_one_folder_a_crate() {
        let source = Path::new("crates/nn-cuda/src/ops/matmul/tiles.cu");
        assert_eq!(compiled(source), Path::new("crates/nn-cuda/ptx/tiles.ptx"));
    }

    #[test]
    fn a_difference_is_shown_at_its_line() {
        let cases = [
            ("a\nb\n", "a\nb\n", None),
            ("a\nb\n", "a\n  c\n", Some("2: committed is `b`, compiled is `c`")),
            ("a\n", "a\nb\n", Some("2: committed is nothing, compiled is `b`")),
        ];
        for (committed, compiled, expected) in cases {
            assert_eq!(first_difference(committed, compiled).as_deref(), expected);
        }
    }
}
