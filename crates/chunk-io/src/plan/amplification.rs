use serde::Serialize;

/// Read amplification of a chunked dataset: HDF5 stores whole chunks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReadAmplification {
    /// Rows asked for.
    pub rows: u64,
    /// Rows in the chunks that have to be decoded for them, each once for every chunk of the loader
    /// that needs it.
    pub rows_decoded: u64,
}

impl ReadAmplification {
    /// Rows decoded for each row asked for; 1 where nothing is wasted.
    pub fn factor(&self) -> f64 {
        if self.rows == 0 { 1.0 } else { self.rows_decoded as f64 / self.rows as f64 }
    }
}

/// Counts what an epoch over the samples of `order` decodes of a dataset of `rows` rows that is
/// stored in chunks of `stored_rows`, when the loader takes `samples_per_chunk` of them at a time
/// and decodes each stored chunk once for those. Exact, in one pass over the order; memory of a
/// number for each stored chunk.
///
/// # Panics
/// If `stored_rows` or `samples_per_chunk` is 0, or the order names a row that there is not.
pub fn read_amplification(
    order: impl Iterator<Item = usize>,
    rows: usize,
    stored_rows: usize,
    samples_per_chunk: usize,
) -> ReadAmplification {
    assert!(stored_rows > 0 && samples_per_chunk > 0, "chunks of at least one row");
    // For each stored chunk, the number of the loader's chunk that last needed it, counted from 1.
    let mut needed_by = vec![0_u64; rows.div_ceil(stored_rows)];
    let mut amplification = ReadAmplification { rows: 0, rows_decoded: 0 };
    for (position, row) in order.enumerate() {
        let loading = (position / samples_per_chunk) as u64 + 1;
        let stored = row / stored_rows;
        amplification.rows += 1;
        if needed_by[stored] != loading {
            needed_by[stored] = loading;
            amplification.rows_decoded += (rows - stored * stored_rows).min(stored_rows) as u64;
        }
    }
    amplification
}

/// Smallest amplification for which a remedy is recommended.
const WORTH_IT: f64 = 1.25;

/// Largest amplification of a storage that is recommended.
const GOOD_ENOUGH: f64 = 1.05;

/// Chunks below this size cost more to find and to start decoding than to decode.
const CHUNK_BYTES_MIN: u64 = 32 << 10;

/// Better storage of a dataset for the order in which it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// In chunks of fewer rows.
    ChunkRows(usize),
    /// Contiguous, so that every row has a known offset.
    Contiguous,
}

/// A better storage of a dataset of `rows` rows of `row_bytes` in chunks of `stored_rows`, if an
/// epoch over `order` decodes much more than it asks for: the largest halving of the chunks that
/// avoids it; contiguous if only tiny chunks would.
///
/// # Panics
/// As [`read_amplification`].
pub fn remedy(
    order: &(impl Iterator<Item = usize> + Clone),
    rows: usize,
    stored_rows: usize,
    row_bytes: u64,
    samples_per_chunk: usize,
) -> Option<Remedy> {
    let factor = |stored_rows: usize| read_amplification(order.clone(), rows, stored_rows, samples_per_chunk).factor();
    if factor(stored_rows) < WORTH_IT {
        return None;
    }
    let halvings = std::iter::successors(Some(stored_rows / 2), |rows| Some(rows / 2));
    let mut large_enough = halvings.take_while(|&rows| rows > 0 && rows as u64 * row_bytes >= CHUNK_BYTES_MIN);
    Some(large_enough.find(|&rows| factor(rows) <= GOOD_ENOUGH).map_or(Remedy::Contiguous, Remedy::ChunkRows))
}
