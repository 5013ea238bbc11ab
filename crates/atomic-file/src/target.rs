//! The file that an output path stands for.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The path of the file that a write to `path` replaces: `path` itself, or where it leads if it is
/// a symbolic link.
///
/// # Errors
/// A link that leads nowhere, and a path without a name.
pub fn resolve_target(path: &Path) -> io::Result<PathBuf> {
    if path.file_name().is_none() {
        return Err(io::Error::from(ErrorKind::InvalidInput));
    }
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if is_link { fs::canonicalize(path).map_err(nowhere) } else { Ok(path.to_owned()) }
}

/// Checks that a rename may put a new file at `target`: nothing is there, or a file that is not
/// write-protected.
///
/// # Errors
/// An existing folder, device, pipe or read-only file, which a rename would replace without asking.
pub fn check_replaceable(target: &Path) -> io::Result<()> {
    let Ok(existing) = fs::metadata(target) else { return Ok(()) };
    if existing.is_dir() {
        Err(io::Error::from(ErrorKind::IsADirectory))
    } else if !existing.is_file() {
        Err(io::Error::new(ErrorKind::InvalidInput, "what is there is not a regular file"))
    } else if existing.permissions().readonly() {
        Err(io::Error::new(ErrorKind::PermissionDenied, "the existing file is read-only"))
    } else {
        Ok(())
    }
}

/// The folder that a file or folder lies in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Brings the folder that `path` lies in to disk, and with it the name that a rename gave a file.
///
/// # Errors
/// Errors of the file system.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn nowhere(error: io::Error) -> io::Error {
    let kind = error.kind();
    if kind != ErrorKind::NotFound {
        return error;
    }
    io::Error::new(kind, "a symbolic link that leads nowhere; remove it or name another file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_lies_in_a_folder() {
        for (path, folder) in [("a/b", "a"), ("/a", "/"), ("a", "."), ("a/b/", "a")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder));
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_are_resolved_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let links = [("to_file", "file"), ("to_link", "to_file"), ("nowhere", "absent"), ("to_folder", "folder")];
        for (name, to) in links.into_iter().chain([("device", "/dev/null")]) {
            std::os::unix::fs::symlink(to, at(name)).unwrap();
        }
        let file = fs::canonicalize(at("file")).unwrap();
        assert_eq!(resolve_target(&at("new")).unwrap(), at("new"));
        assert_eq!(resolve_target(&at("to_file")).unwrap(), file);
        assert_eq!(resolve_target(&at("to_link")).unwrap(), file);
        let check = |name: &str| resolve_target(&at(name)).and_then(|target| check_replaceable(&target));
        for (name, reason) in [
            ("nowhere", "leads nowhere"),
            ("folder", "is a directory"),
            ("to_folder", "is a directory"),
            ("device", "not a regular file"),
            ("..", "invalid"),
        ] {
            let error = check(name).unwrap_err().to_string();
            assert!(error.contains(reason), "{name}: {error}");
        }
    }
}
