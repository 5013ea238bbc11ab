#![forbid(unsafe_code)]

//! The new file until it is whole: beside its place, under a temporary name.

use std::path::Path;

use hdf5::File;
use megabatch_atomic_file::NewFile;

use crate::atomic::{create_draft, not_writable, publish};
use crate::error::{Error, Result};

/// An unfinished file, removed unless it is published.
#[derive(Debug)]
pub(super) struct Part<'a> {
    out: &'a Path,
    new: NewFile,
}

impl<'a> Part<'a> {
    /// Creates the file and lets `fill` write it.
    pub(super) fn create<T>(out: &'a Path, fill: impl FnOnce(&File) -> Result<T>) -> Result<(Self, T)> {
        let new = NewFile::create(out).map_err(not_writable(out))?;
        let file = create_draft(new.temporary_path()).map_err(Error::hdf5(out, "/", "create the file"))?;
        let filled = fill(&file)?;
        file.close().map_err(Error::hdf5(out, "/", "close the file"))?;
        Ok((Part { out, new }, filled))
    }

    pub(super) fn path(&self) -> &Path {
        self.new.temporary_path()
    }

    /// Brings the file to disk and to its place.
    pub(super) fn publish(self) -> Result<()> {
        publish(self.new, self.out)
    }
}
