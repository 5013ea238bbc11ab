use std::path::Path;

use megabatch_atomic_file::{NewFile, sync_folder};

use crate::error::{Error, Result};

/// Writes an HDF5 file so that `path` holds either what it held before or the whole new file, even
/// if power fails.
///
/// `fill` writes to a temporary file in the same folder, which is closed, synchronised and renamed;
/// then the folder is synchronised. If anything fails, the temporary file is removed.
pub(crate) fn write_atomically<T, E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&hdf5::File) -> Result<T, E>,
) -> Result<T, E> {
    let (draft, filled) = DraftFile::create(path, fill)?;
    draft.publish()?;
    Ok(filled)
}

/// The new file beside its place, under a temporary name; removed unless it is published.
#[derive(Debug)]
pub(crate) struct DraftFile<'a> {
    /// Its place, which errors name.
    out: &'a Path,
    new: NewFile,
}

impl<'a> DraftFile<'a> {
    /// Creates the file and lets `fill` write it.
    pub(crate) fn create<T, E: From<Error>>(
        out: &'a Path,
        fill: impl FnOnce(&hdf5::File) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let new = NewFile::create(out).map_err(not_writable(out))?;
        let file = create_draft(new.temporary_path()).map_err(Error::hdf5(out, "/", "create the file"))?;
        let filled = fill(&file)?;
        file.close().map_err(Error::hdf5(out, "/", "close the file"))?;
        Ok((DraftFile { out, new }, filled))
    }

    pub(crate) fn path(&self) -> &Path {
        self.new.temporary_path()
    }

    /// Syncs the file and renames it to its place.
    pub(crate) fn publish(self) -> Result<()> {
        let DraftFile { out, new } = self;
        let io = |action| move |source| Error::Io { path: out.to_owned(), action, source };
        new.file().sync_all().map_err(io("bring the file to disk"))?;
        let target = new.rename().map_err(not_writable(out))?;
        sync_folder(&target).map_err(io("bring the folder to disk"))
    }
}

/// The error of an output that cannot be written.
pub(crate) fn not_writable(path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::NotWritable { path: path.clone(), source }
}

/// Creates the temporary HDF5 file that is renamed when it is complete.
///
/// Its root group stores no times, so that equal contents make equal bytes. It is not locked:
/// processes that other threads start meanwhile inherit HDF5's descriptor, and with it a lock that
/// would outlive the file's closing and renaming.
fn create_draft(path: &Path) -> hdf5::Result<hdf5::File> {
    let mut builder = hdf5::FileBuilder::new();
    builder.with_fcpl(|creation| creation.obj_track_times(false)).with_fapl(|access| access.file_locking(false));
    builder.create(path)
}

/// Opens a temporary file of [`create_draft`] again, to write more to it.
pub(crate) fn open_draft(path: &Path) -> hdf5::Result<hdf5::File> {
    let mut builder = hdf5::FileBuilder::new();
    builder.with_fapl(|access| access.file_locking(false));
    builder.open_rw(path)
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
