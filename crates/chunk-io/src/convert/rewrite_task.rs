//! A table to be written anew, and the source of its rows.

use hdf5::Dataset;

use super::ConversionJob;
use super::bulk::Bulk;
use super::row_source::{DatasetRows, RowSource};
use crate::error::Result;

/// A table and the source of its rows.
pub(super) struct RewriteTask<'a> {
    pub(super) bulk: Bulk,
    pub(super) source: Box<dyn RowSource + 'a>,
}

impl RewriteTask<'_> {
    /// The table `object` of the old file, at the same path and stored as it was unless the options
    /// say otherwise.
    pub(super) fn keeping(job: &ConversionJob<'_>, object: &str, dataset: Dataset) -> Result<Self> {
        Ok(RewriteTask {
            bulk: Bulk::keeping(job, object, &dataset)?,
            source: Box::new(DatasetRows::new(&job.input.path, dataset)),
        })
    }
}
