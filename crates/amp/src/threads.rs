#![forbid(unsafe_code)]

use rayon::prelude::*;

/// Threads to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// The thread that calls.
    #[default]
    Caller,
    /// The threads of the rayon pool that the caller is in, or of the global one.
    Pool,
}

/// Elements that a task takes: of four tensors they fill a quarter of a second-level cache, and are
/// worth handing to a thread.
pub(crate) const BLOCK: usize = 1 << 14;

impl Threads {
    /// The numbers that `of` gives for each item, added in the order of the items, whoever computes
    /// them.
    pub(crate) fn sum<T: Send>(self, items: impl Iterator<Item = T>, of: impl Fn(T) -> f64 + Sync + Send) -> f64 {
        match self {
            Threads::Caller => items.map(of).fold(0.0, |sum, term| sum + term),
            Threads::Pool => {
                let terms: Vec<f64> = items.collect::<Vec<T>>().into_par_iter().map(of).collect();
                terms.into_iter().fold(0.0, |sum, term| sum + term)
            }
        }
    }

    /// Calls `work` for each item.
    pub(crate) fn each<T: Send>(self, items: impl Iterator<Item = T>, work: impl Fn(T) + Sync + Send) {
        match self {
            Threads::Caller => items.for_each(work),
            Threads::Pool => items.collect::<Vec<T>>().into_par_iter().for_each(work),
        }
    }
}
