#![forbid(unsafe_code)]

use std::fs::{File, Permissions};
use std::io;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

use crate::error::{Error, Result};

/// Writes an HDF5 file so that `path` holds either what it held before or the whole new file, even if power fails.
///
/// `fill` writes to a temporary file in the same folder, which is closed, synchronised and renamed; then the folder is
/// synchronised. If anything fails, the temporary file is removed.
pub(crate) fn write_atomically<T, E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&hdf5::File) -> Result<T, E>,
) -> Result<T, E> {
    let folder = folder_of(path);
    let temporary = create_temporary(path, folder)?;
    let file = create_draft(temporary.path()).map_err(Error::hdf5(path, "/", "create the file"))?;
    let filled = fill(&file)?;
    file.close().map_err(Error::hdf5(path, "/", "close the file"))?;
    let io = |action| move |source| Error::Io { path: path.to_owned(), action, source };
    temporary.as_file().sync_all().map_err(io("bring the file to disk"))?;
    temporary.persist(path).map_err(|e| Error::NotWritable { path: path.to_owned(), source: e.error })?;
    sync_folder(path).map_err(io("bring the folder to disk"))?;
    Ok(filled)
}

/// Creates an HDF5 file whose name nobody knows yet.
///
/// Its root group has no times of its own, so that equal contents make equal bytes. It is not locked: HDF5's descriptors pass to
/// processes that other threads start meanwhile, and a lock would outlive the file's closing, and its renaming, by theirs.
pub(crate) fn create_draft(path: &Path) -> hdf5::Result<hdf5::File> {
    let mut builder = hdf5::FileBuilder::new();
    builder.with_fcpl(|creation| creation.obj_track_times(false)).with_fapl(|access| access.file_locking(false));
    builder.create(path)
}

/// Brings the folder that `path` is in to disk, and with it the name that a rename gave a file.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn create_temporary(path: &Path, folder: &Path) -> Result<NamedTempFile> {
    let refuse = |source| Error::NotWritable { path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| refuse(io::Error::from(io::ErrorKind::InvalidInput)))?;
    if let Ok(existing) = path.metadata() {
        refuse_to_replace(&existing).map_err(refuse)?;
    }
    let mut builder = Builder::new();
    let prefix = format!(".{}.", name.to_string_lossy());
    builder.prefix(&prefix).suffix(".tmp");
    if let Some(permissions) = default_permissions() {
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder).map_err(refuse)
}

/// A rename would replace a write-protected file without asking; its owner protected it for a reason.
pub(crate) fn refuse_to_replace(existing: &std::fs::Metadata) -> io::Result<()> {
    if existing.is_dir() {
        Err(io::Error::from(io::ErrorKind::IsADirectory))
    } else if existing.permissions().readonly() {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the existing file is read-only"))
    } else {
        Ok(())
    }
}

/// What an ordinary program gives a new file (the system takes the umask off); a temporary file is private otherwise.
#[cfg(unix)]
fn default_permissions() -> Option<Permissions> {
    Some(std::os::unix::fs::PermissionsExt::from_mode(0o666))
}

#[cfg(not(unix))]
fn default_permissions() -> Option<Permissions> {
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn fill_with(file: &hdf5::File) -> Result<()> {
        file.create_group("filled").map(drop).map_err(Error::hdf5(Path::new("x"), "/filled", "create"))
    }

    #[test]
    fn a_failed_write_leaves_the_earlier_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.h5");
        fs::write(&path, "earlier").unwrap();
        let failed = write_atomically(&path, |file| {
            fill_with(file)?;
            Err::<(), _>(Error::NotFound { path: "midway".into() })
        });
        assert_eq!(failed.unwrap_err().to_string(), "midway: there is no such file; check the path");
        assert_eq!(fs::read(&path).unwrap(), b"earlier");
        assert_eq!(names_in(folder.path()), ["out.h5"]);

        let panicked = std::panic::catch_unwind(|| {
            let _ = write_atomically(&path, |_| -> Result<()> { panic!("midway") });
        });
        assert!(panicked.is_err());
        assert_eq!(names_in(folder.path()), ["out.h5"]);
    }

    #[test]
    fn a_write_replaces_the_earlier_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.h5");
        fs::write(&path, "earlier").unwrap();
        write_atomically(&path, fill_with).unwrap();
        assert!(hdf5::File::open(&path).unwrap().group("filled").is_ok());
        assert_eq!(names_in(folder.path()), ["out.h5"]);
    }

    #[test]
    #[cfg(unix)]
    fn a_process_started_meanwhile_keeps_nobody_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.h5");
        let mut started = write_atomically(&path, |file| {
            fill_with(file)?;
            Ok::<_, Error>(std::process::Command::new("sleep").arg("60").spawn().unwrap())
        })
        .unwrap();
        let opened = hdf5::File::open_rw(&path).map(drop);
        started.kill().unwrap();
        started.wait().unwrap();
        opened.unwrap();
    }

    #[test]
    fn outputs_that_cannot_be_written_are_refused_before_any_work() {
        let folder = tempfile::tempdir().unwrap();
        let protected = folder.path().join("protected.h5");
        fs::write(&protected, "earlier").unwrap();
        let mut permissions = fs::metadata(&protected).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&protected, permissions).unwrap();
        fs::create_dir(folder.path().join("folder.h5")).unwrap();
        let cases = [
            ("missing/out.h5", "No such file or directory"),
            ("protected.h5", "the existing file is read-only"),
            ("folder.h5", "is a directory"),
            ("..", "is a directory"),
        ];
        for (name, reason) in cases {
            let path = folder.path().join(name);
            let result = write_atomically(&path, |_| -> Result<()> { panic!("must not begin") });
            let message = result.unwrap_err().to_string();
            assert!(matches!(&message, m if m.contains("cannot write here") || name == ".."), "{message}");
            assert!(message.contains(reason) || name == "..", "{message}");
        }
        assert_eq!(fs::read(&protected).unwrap(), b"earlier");
        assert_eq!(names_in(folder.path()), ["folder.h5", "protected.h5"]);
    }
}
