//! Memory of batches, which a program may hold for as long as it likes, and which is used again
//! when it lets go: fresh pages cost more than the copy into them.

use std::fmt;
use std::sync::{Arc, Mutex};

use megabatch_chunk_io::{SampleSlices, Shape, TimeframeShape, vec_in_huge_pages};

/// Most sets of tables that are kept for later batches.
const KEPT_MAX: usize = 4;

/// The tables of some samples: `[n, T, F]` of each timeframe, then the targets `[n, K]`. Each may
/// be longer.
type Tables = Vec<Vec<f32>>;

/// Memory that nobody holds.
#[derive(Debug, Default)]
pub(super) struct MemoryPool {
    free: Mutex<Vec<Tables>>,
}

impl MemoryPool {
    /// Memory for `samples` samples of `shape`.
    pub(super) fn take(self: &Arc<Self>, shape: &Shape, samples: usize) -> BatchMemory {
        let mut tables = self.lock().pop().unwrap_or_default();
        tables.resize_with(shape.timeframes.len() + 1, Vec::new);
        let lens: Vec<usize> = widths(shape).map(|width| samples * width).collect();
        for (table, &len) in tables.iter_mut().zip(&lens) {
            if table.capacity() < len {
                *table = vec_in_huge_pages(len);
            }
            // What was written before stays: a batch that is shorter is followed by a longer one.
            if table.len() < len {
                table.resize(len, 0.0);
            }
        }
        BatchMemory { tables, lens, pool: Arc::clone(self) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Tables>> {
        self.free.lock().expect("nothing panics while it holds the free memory")
    }
}

/// Memory of samples, which returns to its pool when it is dropped.
pub(super) struct BatchMemory {
    tables: Tables,
    /// Numbers of each table that are in use.
    lens: Vec<usize>,
    pool: Arc<MemoryPool>,
}

impl BatchMemory {
    /// The memory, to be written.
    pub(super) fn slices(&mut self) -> SampleSlices<'_> {
        let mut tables = self.tables.iter_mut().zip(&self.lens).map(|(table, &len)| &mut table[..len]);
        let targets = tables.next_back().expect("the last table is that of the targets");
        SampleSlices { features: tables.collect(), targets }
    }

    /// The memory, to which nothing is written from now on but by who holds its addresses.
    pub(super) fn share(mut self) -> SharedMemory {
        let addresses = self.tables.iter_mut().map(|table| table.as_mut_ptr() as usize).collect();
        SharedMemory { addresses, memory: self }
    }
}

impl Drop for BatchMemory {
    fn drop(&mut self) {
        // Never waits: in a forked process nobody may be there who gives the lock back.
        if let Ok(mut free) = self.pool.free.try_lock()
            && free.len() < KEPT_MAX
        {
            free.push(std::mem::take(&mut self.tables));
        }
    }
}

/// Filled memory of samples. It is read and written through its addresses alone until it is
/// dropped.
pub(super) struct SharedMemory {
    addresses: Vec<usize>,
    memory: BatchMemory,
}

impl SharedMemory {
    /// Address of the `i`-th table.
    pub(super) fn address(&self, i: usize) -> usize {
        self.addresses[i]
    }

    /// The `i`-th table.
    pub(super) fn values(&self, i: usize) -> &[f32] {
        &self.memory.tables[i][..self.memory.lens[i]]
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Values of a row of each table.
pub(super) fn widths(shape: &Shape) -> impl Iterator<Item = usize> + '_ {
    shape.timeframes.iter().map(TimeframeShape::window_len).chain([shape.horizons])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_never_while_it_is_held() {
        let timeframe = TimeframeShape { name: None, steps: 3, features: 2 };
        let shape = Shape { samples: 9, timeframes: vec![timeframe], horizons: 1 };
        let pool = Arc::new(MemoryPool::default());
        let first = pool.take(&shape, 4).share();
        assert_eq!((first.values(0).len(), first.values(1).len()), (24, 4));
        let second = pool.take(&shape, 4).share();
        assert_ne!(first.address(0), second.address(0));
        let address = first.address(0);
        drop(first);
        let third = pool.take(&shape, 3).share();
        assert_eq!((third.address(0), third.values(0).len()), (address, 18));
        drop(pool);
        assert_eq!(second.values(0).len(), 24, "memory outlives its pool");
    }
}
