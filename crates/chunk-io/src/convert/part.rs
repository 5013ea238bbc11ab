#![forbid(unsafe_code)]

//! The new file until it is whole: beside its place under a name of its own, so that a later run replaces what a killed one left.

use std::path::{Path, PathBuf};

use hdf5::File;

use super::work::beside;
use crate::atomic::{create_draft, refuse_to_replace, sync_folder};
use crate::error::{Error, Result};

/// An unfinished file, removed unless it is published.
#[derive(Debug)]
pub(super) struct Part<'a> {
    out: &'a Path,
    path: PathBuf,
    published: bool,
}

/// Refuses an output that could not be replaced, before any work.
pub(super) fn check_output(out: &Path) -> Result<()> {
    let refuse = |source| Error::NotWritable { path: out.to_owned(), source };
    if out.file_name().is_none() {
        return Err(refuse(std::io::Error::from(std::io::ErrorKind::InvalidInput)));
    }
    match out.metadata() {
        Ok(existing) => refuse_to_replace(&existing).map_err(refuse),
        Err(_) => Ok(()),
    }
}

impl<'a> Part<'a> {
    /// The part of `out`; nothing is created yet.
    pub(super) fn of(out: &'a Path) -> Self {
        Part { out, path: beside(out, "part"), published: false }
    }

    /// Creates the file and lets `fill` write it.
    pub(super) fn create<T>(&self, fill: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let file = create_draft(&self.path).map_err(Error::hdf5(self.out, "/", "create the file"))?;
        let filled = fill(&file)?;
        file.close().map_err(Error::hdf5(self.out, "/", "close the file"))?;
        Ok(filled)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Brings the file to disk and to its place.
    pub(super) fn publish(mut self) -> Result<()> {
        let io = |action| move |source| Error::Io { path: self.out.to_owned(), action, source };
        let synced = std::fs::File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(io("bring the file to disk"))?;
        let refuse = |source| Error::NotWritable { path: self.out.to_owned(), source };
        std::fs::rename(&self.path, self.out).map_err(refuse)?;
        self.published = true;
        sync_folder(self.out).map_err(|source| Error::Io {
            path: self.out.to_owned(),
            action: "bring the folder to disk",
            source,
        })
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.published {
            // There may be none yet; one that cannot be removed is replaced by the next run.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
