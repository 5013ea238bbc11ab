//! Bars and targets of a series file that stay in the file.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use megabatch_gpu_core::Scope;

use super::row_cache::{RowCache, RowCacheSize};
use crate::cost::ReadCost;
use crate::error::Result;
use crate::numeric_dataset::NumericDataset;
use crate::read::ReadPath;
use crate::series::SeriesFile;

/// Bars by timeframe, then targets, read through caches.
#[derive(Debug)]
pub(super) struct SeriesStream {
    caches: Vec<Mutex<LazyCache>>,
    cost: Mutex<ReadCost>,
}

/// A cache, whose memory is taken when it is first read from.
#[derive(Debug)]
struct LazyCache {
    cache: Option<RowCache>,
    size: RowCacheSize,
    bytes: usize,
    scope: Scope,
}

/// Bytes of the caches of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheBounds {
    /// Below this nothing can be read.
    pub bytes_min: usize,
    /// Above this nothing is read twice.
    pub bytes_max: usize,
    sizes: Vec<RowCacheSize>,
}

impl CacheBounds {
    /// Most bytes within `budget_bytes`, but at least `bytes_min`, that caches take to the byte if
    /// they are asked for as a budget.
    pub fn taken_bytes(&self, budget_bytes: usize) -> usize {
        let taken: usize = self.taken_blocks(budget_bytes).sum();
        if taken >= budget_bytes { taken } else { self.taken_bytes(taken) }
    }

    /// Bytes of each block of memory that caches of `budget_bytes` take, in order.
    pub fn taken_blocks(&self, budget_bytes: usize) -> impl Iterator<Item = usize> {
        let shares = shares(&self.sizes, budget_bytes);
        self.sizes.iter().zip(shares).flat_map(|(size, bytes)| size.taken_blocks(bytes))
    }
}

/// Chunks that suit batches better than those of the file, and what batches decode with both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuitedChunks {
    /// Rows of a chunk.
    pub chunk_rows: usize,
    /// Most rows of a chunk in the file.
    pub chunk_rows_now: usize,
    /// Bytes that the batches decode with chunks of `chunk_rows`.
    pub decoded_bytes: u64,
    /// Bytes that the batches decode now.
    pub decoded_bytes_now: u64,
}

/// A table that is decoded while batches are read.
struct DecodedTable {
    place: usize,
    chunk_rows: usize,
    row_bytes: usize,
}

/// Chunks that batches decode.
struct DecodedChunks {
    chunks: u64,
    chunk_bytes: u64,
}

/// Time that a chunk takes beside its bytes, as bytes that are decoded meanwhile: a read, a header,
/// an entry of the index.
const CHUNK_COST_BYTES: u64 = 8 << 10;

impl DecodedChunks {
    fn bytes(&self) -> u64 {
        self.chunks * self.chunk_bytes
    }

    fn cost(&self) -> u64 {
        self.chunks * (self.chunk_bytes + CHUNK_COST_BYTES)
    }
}

/// Number of different chunks of `chunk_rows` in which rows of `ranges` lie.
fn chunks_touched(ranges: &[Range<usize>], chunk_rows: usize) -> u64 {
    let ranges = ranges.iter().filter(|range| !range.is_empty());
    let chunks = ranges.flat_map(|range| range.start / chunk_rows..=(range.end - 1) / chunk_rows);
    chunks.collect::<HashSet<usize>>().len() as u64
}

impl SeriesStream {
    /// Caches of about `budget_bytes` in all, booked on `scope`.
    pub(super) fn new(file: &SeriesFile, budget_bytes: usize, scope: &Scope) -> Result<Self> {
        let sizes = sizes(file)?;
        let shares = shares(&sizes, budget_bytes);
        let lazy = |(size, bytes)| LazyCache { cache: None, size, bytes, scope: scope.clone() };
        let caches = sizes.into_iter().zip(shares).map(lazy).map(Mutex::new).collect();
        Ok(SeriesStream { caches, cost: Mutex::default() })
    }

    /// Takes the memory of all caches.
    pub(super) fn reserve(&self, file: &SeriesFile) -> Result<()> {
        let caches = self.caches.iter().zip(file.tables());
        caches.into_iter().try_for_each(|(cache, table)| lock(cache).made(table).map(drop))
    }

    /// Least and most bytes of the caches of `file`.
    pub(super) fn bounds(file: &SeriesFile) -> Result<CacheBounds> {
        let sizes = sizes(file)?;
        Ok(CacheBounds {
            bytes_min: sizes.iter().map(RowCacheSize::bytes_min).sum(),
            bytes_max: sizes.iter().map(RowCacheSize::bytes_max).sum(),
            sizes,
        })
    }

    /// Bytes that `batches` read from the file, with caches of about `budget_bytes` that hold the
    /// small datasets already, and nothing else.
    pub(super) fn batch_bytes(
        file: &SeriesFile,
        budget_bytes: usize,
        batches: impl Iterator<Item = Result<Vec<Vec<Range<usize>>>>>,
    ) -> Result<u64> {
        let sizes = sizes(file)?;
        let shares = shares(&sizes, budget_bytes);
        let block_bytes: Vec<u64> =
            file.tables().zip(&sizes).map(|(table, size)| stored_block_bytes(table, size)).collect::<Result<_>>()?;
        let mut bytes = 0;
        for batch in batches {
            for (i, ranges) in batch?.iter().enumerate().filter(|&(i, _)| shares[i] < sizes[i].bytes_max()) {
                bytes += chunks_touched(ranges, sizes[i].block_rows) * block_bytes[i];
            }
        }
        Ok(bytes)
    }

    /// Chunks that suit `batches`, each with the ranges of rows that it reads of every table.
    /// `None` where nothing is decoded that is not cached whole, or where no others are much
    /// better.
    pub(super) fn suited_chunks(
        file: &SeriesFile,
        budget_bytes: usize,
        batches: &[Vec<Vec<Range<usize>>>],
    ) -> Result<Option<SuitedChunks>> {
        let sizes = sizes(file)?;
        let shares = shares(&sizes, budget_bytes);
        let mut tables = Vec::new();
        for (i, table) in file.tables().enumerate().filter(|&(i, _)| shares[i] < sizes[i].bytes_max()) {
            if let Some(chunk_rows) = table.decoded_chunk_rows()? {
                tables.push(DecodedTable { place: i, chunk_rows, row_bytes: table.row_len() * size_of::<f32>() });
            }
        }
        let decoded = |table: &DecodedTable, chunk_rows: usize| -> DecodedChunks {
            let touched = batches.iter().map(|batch| chunks_touched(&batch[table.place], chunk_rows));
            DecodedChunks { chunks: touched.sum(), chunk_bytes: (chunk_rows * table.row_bytes) as u64 }
        };
        let all = |chunk_rows: usize| tables.iter().map(move |table| (table, chunk_rows));
        let cost =
            |chunk_rows: usize| -> u64 { all(chunk_rows).map(|(table, rows)| decoded(table, rows).cost()).sum() };
        let bytes =
            |chunk_rows: usize| -> u64 { all(chunk_rows).map(|(table, rows)| decoded(table, rows).bytes()).sum() };
        let now: u64 = tables.iter().map(|table| decoded(table, table.chunk_rows).bytes()).sum();
        let Some(chunk_rows) = (4..=16).map(|power| 1 << power).min_by_key(|&chunk_rows| cost(chunk_rows)) else {
            return Ok(None);
        };
        let suited = SuitedChunks {
            chunk_rows,
            chunk_rows_now: tables.iter().map(|table| table.chunk_rows).max().unwrap_or(0),
            decoded_bytes: bytes(chunk_rows),
            decoded_bytes_now: now,
        };
        Ok(Some(suited).filter(|suited| suited.decoded_bytes + suited.decoded_bytes / 2 < now))
    }

    /// Copies rows of `table`, the `i`-th of the file, in any order, to `out`.
    pub(super) fn read(
        &self,
        i: usize,
        table: &NumericDataset,
        ranges: &[Range<usize>],
        out: &mut [f32],
    ) -> Result<ReadCost> {
        let cost = lock(&self.caches[i]).made(table)?.read(ranges, out)?;
        *lock(&self.cost) += cost;
        Ok(cost)
    }

    /// Cost of all reads so far.
    pub(super) fn cost(&self) -> ReadCost {
        *lock(&self.cost)
    }
}

impl LazyCache {
    fn made(&mut self, table: &NumericDataset) -> Result<&mut RowCache> {
        let cache = match self.cache.take() {
            Some(cache) => cache,
            None => RowCache::new(table, self.size, self.bytes, &self.scope)?,
        };
        Ok(self.cache.insert(cache))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a block in the file, on average.
fn stored_block_bytes(table: &NumericDataset, size: &RowCacheSize) -> Result<u64> {
    let stored = match table.read_path()? {
        ReadPath::Own(stored) => stored.stored_bytes(),
        ReadPath::Library(_) => (table.rows() * table.row_len() * size_of::<f32>()) as u64,
    };
    Ok((stored as u128 * size.block_rows as u128 / table.rows().max(1) as u128) as u64)
}

fn sizes(file: &SeriesFile) -> Result<Vec<RowCacheSize>> {
    file.tables().map(RowCacheSize::for_table).collect()
}

/// Bytes of each cache. Each has the least that it can read with, first of all; of the rest, small
/// datasets, such as those of long timeframes, have what keeps them whole, and the others share
/// what is left evenly.
fn shares(sizes: &[RowCacheSize], budget_bytes: usize) -> Vec<usize> {
    let wanted = |i: usize| sizes[i].bytes_max().saturating_sub(sizes[i].bytes_min());
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| wanted(i));
    let mut shares: Vec<usize> = sizes.iter().map(RowCacheSize::bytes_min).collect();
    let mut left = budget_bytes.saturating_sub(shares.iter().sum());
    for (k, &i) in order.iter().enumerate() {
        // What is left of a block is of use to the next.
        let more = wanted(i).min(left / (sizes.len() - k)) / sizes[i].block_bytes() * sizes[i].block_bytes();
        shares[i] += more;
        left -= more;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn caches_take_what_is_planned_and_no_more_than_their_budget(
            tables in prop::collection::vec((1_usize..400_000, 1_usize..40, 1_usize..50_000), 1..7),
            budget in 0.0..5.0_f64,
        ) {
            let sizes: Vec<RowCacheSize> =
                tables.iter().map(|&(rows, row_len, block_rows)| RowCacheSize::new(rows, row_len, block_rows)).collect();
            let [bytes_min, bytes_max] =
                [RowCacheSize::bytes_min, RowCacheSize::bytes_max].map(|bytes| sizes.iter().map(bytes).sum());
            let budget_bytes = (budget * bytes_min as f64) as usize;
            let bounds = CacheBounds { bytes_min, bytes_max, sizes: sizes.clone() };
            let taken = bounds.taken_bytes(budget_bytes);
            prop_assert!(taken <= budget_bytes.max(bytes_min), "{taken} of {budget_bytes}, at least {bytes_min}");
            prop_assert_eq!(bounds.taken_bytes(taken), taken);
            let largest: usize = sizes.iter().map(RowCacheSize::block_bytes).sum();
            prop_assert!(taken + 4 * largest >= budget_bytes.min(bytes_max), "{taken} of {budget_bytes}");
            prop_assert_eq!(bounds.taken_bytes(bytes_max), bytes_max.max(bytes_min));
            prop_assert!(shares(&sizes, budget_bytes).iter().zip(&sizes).all(|(&share, size)| share >= size.bytes_min()));
        }
    }
}
