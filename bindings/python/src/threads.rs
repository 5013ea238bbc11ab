//! Threads for operations that are called with a number of threads.

use std::process;
use std::sync::{Mutex, TryLockError};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads of one process, which stay.
struct ProcessPool {
    process: u32,
    threads: usize,
    pool: &'static ThreadPool,
}

static POOLS: Mutex<Vec<ProcessPool>> = Mutex::new(Vec::new());

/// Runs `work` on a pool of `threads` threads of this process. A forked process makes its own: the
/// threads of the pools that it finds are in the other one.
///
/// # Panics
/// If the system gives no threads.
pub(crate) fn in_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let build = || ThreadPoolBuilder::new().num_threads(threads).build().expect("the system gives threads");
    let process = process::id();
    let mut pools = match POOLS.try_lock() {
        Ok(pools) => pools,
        Err(TryLockError::Poisoned(pools)) => pools.into_inner(),
        // Another thread looks up its pool, or did so when this process was forked: then nobody
        // unlocks it.
        Err(TryLockError::WouldBlock) => return build().install(work),
    };
    let found = pools.iter().find(|pool| (pool.process, pool.threads) == (process, threads)).map(|pool| pool.pool);
    let pool = found.unwrap_or_else(|| {
        let pool = Box::leak(Box::new(build()));
        pools.push(ProcessPool { process, threads, pool });
        pool
    });
    drop(pools);
    pool.install(work)
}
