#![forbid(unsafe_code)]

//! Bars and targets of a series file that stay in the file.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use megabatch_gpu_core::Scope;

use super::row_cache::{RowCache, RowCacheSize};
use crate::cost::ReadCost;
use crate::error::Result;
use crate::file::NumericDataset;
use crate::read::ReadPath;
use crate::series::SeriesFile;

/// Bars by timeframe, then targets, read through caches.
#[derive(Debug)]
pub(super) struct SeriesStream {
    caches: Vec<Mutex<LazyCache>>,
    /// Bytes that were asked for.
    pub(super) budget_bytes: usize,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBounds {
    /// Below this nothing can be read.
    pub bytes_min: usize,
    /// Above this nothing is read twice.
    pub bytes_max: usize,
}

impl SeriesStream {
    /// Caches of about `budget_bytes` in all, booked on `scope`.
    pub(super) fn new(file: &SeriesFile, budget_bytes: usize, scope: &Scope) -> Result<Self> {
        let sizes = sizes(file)?;
        let shares = shares(&sizes, budget_bytes);
        let lazy = |(size, bytes)| LazyCache { cache: None, size, bytes, scope: scope.clone() };
        let caches = sizes.into_iter().zip(shares).map(lazy).map(Mutex::new).collect();
        Ok(SeriesStream { caches, budget_bytes, cost: Mutex::default() })
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
                let block_rows = sizes[i].block_rows;
                let blocks = ranges.iter().filter(|range| !range.is_empty());
                let blocks = blocks.flat_map(|range| range.start / block_rows..=(range.end - 1) / block_rows);
                bytes += blocks.collect::<HashSet<usize>>().len() as u64 * block_bytes[i];
            }
        }
        Ok(bytes)
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
    file.tables().map(RowCacheSize::of).collect()
}

/// Bytes of each cache: small datasets, such as those of long timeframes, stay whole; the others
/// share what is left evenly.
fn shares(sizes: &[RowCacheSize], budget_bytes: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| sizes[i].bytes_max());
    let mut shares = vec![0; sizes.len()];
    let mut left = budget_bytes;
    for (k, &i) in order.iter().enumerate() {
        shares[i] = sizes[i].bytes_max().min(left / (sizes.len() - k)).max(sizes[i].bytes_min());
        left = left.saturating_sub(shares[i]);
    }
    shares
}
