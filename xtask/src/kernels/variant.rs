//! Variants of kernels: the PTX that patches change, in folders that `scripts/gpu-check build`
//! packs. `MEGABATCH_KERNELS=FOLDER` has a program take them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::compiler::Compiler;
use super::{compiled, sources};
use crate::limits::succeed;
use crate::workspace::Workspace;

/// A patch against the last commit, and the folder of what it changes.
#[derive(Debug, PartialEq, Eq)]
struct Variant {
    name: String,
    patch: PathBuf,
}

pub(super) fn run(args: &[String]) -> Result<()> {
    let variants = args.chunks(2).map(parsed).collect::<Result<Vec<_>>>()?;
    let workspace = Workspace::load()?;
    let compiler = Compiler::install(&workspace)?;
    variants.iter().try_for_each(|variant| pack(&workspace, &compiler, variant))
}

/// `--variant NAME=PATCH`.
fn parsed(words: &[String]) -> Result<Variant> {
    let pair = match words {
        [flag, pair] if flag == "--variant" => pair.split_once('='),
        _ => None,
    };
    let Some((name, patch)) = pair.filter(|(name, _)| name.starts_with('k') && *name != "k0") else {
        bail!("expected --variant NAME=PATCH, with a name such as k1, but there is `{}`", words.join(" "));
    };
    Ok(Variant { name: name.to_owned(), patch: patch.into() })
}

/// Compiles the kernels of the last commit with the patch, and writes those that differ.
fn pack(workspace: &Workspace, compiler: &Compiler, Variant { name, patch }: &Variant) -> Result<()> {
    let patch = patch.canonicalize().with_context(|| format!("cannot open {}", patch.display()))?;
    let folder = workspace.target_dir.join("variants").join(name);
    let tree = workspace.target_dir.join("kernels").join(format!("tree-{name}"));
    let git = |folder: &Path, words: &[&str]| succeed(Command::new("git").current_dir(folder).args(words));
    let tree_text = tree.to_str().context("the target folder's path is not UTF-8")?;
    git(&workspace.root, &["worktree", "add", "--quiet", "--force", "--detach", tree_text, "HEAD"])?;
    let patch_text = patch.to_str().context("the patch's path is not UTF-8")?;
    let written = git(&tree, &["apply", patch_text]).and_then(|()| write_changed(compiler, &tree, &folder));
    git(&workspace.root, &["worktree", "remove", "--force", tree_text])?;
    println!("{}: {}", folder.display(), written?.join(", "));
    Ok(())
}

/// Names of the kernels' files whose PTX is not the committed one.
fn write_changed(compiler: &Compiler, tree: &Path, folder: &Path) -> Result<Vec<String>> {
    let compiler = compiler.for_tree(tree);
    std::fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    for source in sources(tree)? {
        let (ptx, committed) = (compiler.ptx(&source)?, compiled(&source));
        if std::fs::read_to_string(tree.join(&committed)).is_ok_and(|text| text == ptx) {
            continue;
        }
        let name = committed.file_name().unwrap_or_default();
        std::fs::write(folder.join(name), ptx)?;
        written.push(name.to_string_lossy().into_owned());
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_has_a_name_and_a_patch() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let variant = Variant { name: "k1".to_owned(), patch: "a/b.patch".into() };
        assert_eq!(parsed(&words("--variant k1=a/b.patch")).unwrap(), variant);
        for text in ["--variant", "--variant k1", "--variant k0=a.patch", "--check k1=a.patch", "--variant x=a.patch"] {
            assert!(parsed(&words(text)).is_err(), "{text}");
        }
    }
}
