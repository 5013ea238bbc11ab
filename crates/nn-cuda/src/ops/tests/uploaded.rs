//! Lists that a device knows from the start, for tests.

use megabatch_gpu_core::Scope;
use megabatch_nn::Result;

use super::{
    BatchUploader, GatherIndex, ReadFrom, RecurrenceSchedule, RowGranularity, Sequence, TileWindows, WorkList,
};

/// The sequences of one layer, of H hidden units each.
pub(super) fn work_list(
    scope: &Scope,
    hidden: usize,
    tile: TileWindows,
    sequences: &[Sequence<'_>],
) -> Result<WorkList> {
    let mut list = WorkList::empty(scope, hidden)?;
    list.set(RecurrenceSchedule { tile, ..RecurrenceSchedule::default() }, sequences);
    let mut uploader = BatchUploader::new(scope)?;
    let mut upload = uploader.upload();
    list.enqueue(&mut upload)?;
    upload.send()?;
    Ok(list)
}

/// Reads of vectors, see [`GatherIndex::set`].
pub(super) fn gather_index(
    scope: &Scope,
    list: &WorkList,
    vectors: RowGranularity,
    from: ReadFrom,
    sample_positions: &[&[(usize, usize)]],
) -> Result<GatherIndex> {
    let mut reads = GatherIndex::empty(scope)?;
    reads.set(list, vectors, from, sample_positions);
    let mut uploader = BatchUploader::new(scope)?;
    let mut upload = uploader.upload();
    reads.enqueue(&mut upload)?;
    upload.send()?;
    Ok(reads)
}
