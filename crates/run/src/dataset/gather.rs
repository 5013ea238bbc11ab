//! Samples copied into memory of a batch, by all threads.

use megabatch_chunk_io::{SampleSlices, Source};
use rayon::prelude::*;

use super::batch_memory::widths;
use crate::error::Result;

/// Bytes of a batch from which several threads are faster than one.
pub(super) const BYTES_MIN: usize = 1 << 18;

/// Parts of a batch for each thread: threads that other work delays are helped out by the others.
const PARTS_PER_THREAD: usize = 4;

/// Copies `samples` of `source` into `out`, which has their size. Samples in memory are copied by
/// all threads; those of a file are read by its own.
pub(super) fn gather(source: &Source, samples: &[usize], out: SampleSlices<'_>) -> Result<()> {
    let threads = rayon::current_num_threads();
    let bytes = source.shape().sample_bytes() as usize * samples.len();
    if !source.is_resident() || threads == 1 || bytes < BYTES_MIN {
        source.gather(samples, out)?;
        return Ok(());
    }
    let parts = (threads * PARTS_PER_THREAD).min(2 * bytes / BYTES_MIN);
    let part_len = samples.len().div_ceil(parts);
    let parts = cut(source, out, part_len);
    samples.par_chunks(part_len).zip(parts).try_for_each(|(samples, out)| source.gather(samples, out).map(|_| ()))?;
    Ok(())
}

/// `out` in parts of `part_len` samples each.
fn cut<'a>(source: &Source, out: SampleSlices<'a>, part_len: usize) -> Vec<SampleSlices<'a>> {
    let tables = out.features.into_iter().chain([out.targets]);
    let mut cut: Vec<_> =
        tables.zip(widths(source.shape())).map(|(table, width)| table.chunks_mut(part_len * width)).collect();
    let mut parts = Vec::new();
    while let Some(mut part) = cut.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>() {
        let targets = part.pop().expect("the last table is that of the targets");
        parts.push(SampleSlices { features: part, targets });
    }
    parts
}
