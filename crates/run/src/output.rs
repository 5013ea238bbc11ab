//! Checks of output files before any work: they must be writable, and no input.

use std::fs;
use std::path::Path;

use megabatch_atomic_file::{NewFile, check_replaceable, folder_of, resolve_target};

use crate::error::{Error, Result};

/// Checks that `out` can be a new file, or replace an old one that is none of `inputs`.
///
/// # Errors
/// A usage failure that names the path.
pub(crate) fn check(out: &Path, inputs: &[&Path]) -> Result<()> {
    let refuse = |reason: &str| Err(Error::usage(format!("{}: cannot write here: {reason}", out.display())));
    let folder = folder_of(out);
    match fs::metadata(folder) {
        Err(error) => return refuse(&format!("{}: {error}", folder.display())),
        Ok(found) if !found.is_dir() => return refuse(&format!("{} is not a folder", folder.display())),
        Ok(_) => {}
    }
    if out.is_dir() || out.file_name().is_none() {
        return refuse("this is a folder; name a file");
    }
    if let Err(error) = resolve_target(out).and_then(|target| check_replaceable(&target)) {
        return refuse(&error.to_string());
    }
    if is_in_checkpoints(out) {
        return refuse("a run keeps its checkpoints in this folder, by which it is resumed");
    }
    // The same refusal by every command, whichever way it writes: the system alone knows whether it
    // lets a file be made here.
    if let Err(error) = NewFile::create(out) {
        return refuse(&format!("no file can be made beside it: {error}"));
    }
    // Compared as the system resolves them, so that a link or another spelling is seen through.
    let same = |input: &&&Path| matches!((fs::canonicalize(out), fs::canonicalize(input)), (Ok(a), Ok(b)) if a == b);
    match inputs.iter().find(same) {
        Some(_) => refuse("this is the file that is read; name another"),
        None => Ok(()),
    }
}

/// True if `out`, or the file that it is a link to, is within the folder of a run's checkpoints.
fn is_in_checkpoints(out: &Path) -> bool {
    let folder = resolve_target(out).and_then(|target| fs::canonicalize(folder_of(&target)));
    folder.is_ok_and(|folder| folder.ancestors().any(has_checkpoints))
}

/// True for the folder of a run's checkpoints, once it has one. A project may have a `config.yaml`
/// and a folder of this name, too.
fn has_checkpoints(folder: &Path) -> bool {
    let is_run = || folder.parent().is_some_and(|run| run.join("config.yaml").is_file());
    let is_checkpoint =
        |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("step-") && entry.path().is_dir();
    folder.ends_with("checkpoints")
        && is_run()
        && fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_checkpoint))
}

/// Checks that `folder` is a folder, or does not exist yet.
///
/// # Errors
/// A usage failure that names the path.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    if folder.exists() && !folder.is_dir() {
        return Err(Error::usage(format!("{}: cannot write here: this is a file; name a folder", folder.display())));
    }
    Ok(())
}

/// Checks that the name of `out` ends in one of `endings`, of which the format follows.
///
/// # Errors
/// A usage failure that names the path and the endings.
pub(crate) fn require_ending(out: &Path, endings: &[&str]) -> Result<()> {
    if out.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| endings.contains(&ending)) {
        return Ok(());
    }
    let list = endings.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>().join(" or ");
    Err(Error::usage(format!("{}: the ending of its name says the format; expected {list}", out.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        assert!(check_folder(folder.path()).is_ok() && check_folder(&at("absent")).is_ok());
        assert!(check_folder(&at("file")).unwrap_err().to_string().contains("name a folder"));
    }

    #[test]
    fn outputs_are_new_files_in_folders_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("input"), "").unwrap();
        let check = |name: &str| check(&at(name), &[&at("input")]).err().map(|error| error.to_string());
        assert_eq!(check("output"), None);
        fs::write(at("output"), "").unwrap();
        assert_eq!(check("output"), None);
        for (name, reason) in [
            ("absent/output", "No such file"),
            ("input/output", "not a folder"),
            ("", "this is a folder"),
            ("input", "the file that is read"),
            ("./input", "the file that is read"),
        ] {
            let error = check(name).unwrap();
            assert!(error.contains("cannot write here") && error.contains(reason), "{name}: {error}");
        }
    }

    /// `export` replaced the weights of a checkpoint.
    #[test]
    fn outputs_replace_no_checkpoint_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("checkpoints/step-00000020")).unwrap();
        let weights = at("checkpoints/step-00000020/model.safetensors");
        fs::write(&weights, "").unwrap();
        std::os::unix::fs::symlink(&weights, at("link")).unwrap();
        let check = |out: &Path| check(out, &[]).err().map(|error| error.to_string());
        assert_eq!(check(&weights), None, "no run has this folder");
        fs::write(at("config.yaml"), "").unwrap();
        for out in [weights, at("checkpoints/new"), at("link")] {
            let error = check(&out).unwrap();
            assert!(error.contains("a run keeps its checkpoints in this folder"), "{error}");
        }
        assert_eq!(check(&at("model.onnx")), None);
        // A project with a configuration of its own.
        fs::create_dir_all(at("project/checkpoints")).unwrap();
        fs::write(at("project/config.yaml"), "").unwrap();
        assert_eq!(check(&at("project/checkpoints/model.onnx")), None);
    }
}
