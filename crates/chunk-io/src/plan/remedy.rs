#![forbid(unsafe_code)]

use super::amplification::read_amplification;

/// Amplification from which on a file is worth storing otherwise.
const WORTH_IT: f64 = 1.25;

/// Amplification that another storage must reach to be called a remedy.
const GOOD_ENOUGH: f64 = 1.05;

/// Chunks below this size cost more to find and to start decoding than to decode.
const CHUNK_BYTES_MIN: u64 = 32 << 10;

/// Better storage of a dataset for the order in which it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// In chunks of fewer rows.
    ChunkRows(usize),
    /// In one piece, in which every row has a known place.
    Contiguous,
}

impl Remedy {
    /// The options of `megabatch convert` that do it.
    pub fn options(&self) -> String {
        match self {
            Remedy::ChunkRows(rows) => format!("--chunk-rows {rows}"),
            Remedy::Contiguous => "--storage contiguous".to_owned(),
        }
    }
}

/// A better storage of a dataset of `rows` rows of `row_bytes` in chunks of `stored_rows`, if an
/// epoch over `order` decodes much more than it asks for: the largest halving of the chunks that
/// mends it; contiguous where only tiny chunks would.
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
