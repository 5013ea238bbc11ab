use rayon::prelude::*;

/// Threads to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    #[default]
    Caller,
    /// The threads of the caller's rayon pool, or of the global one.
    Pool,
}

/// Elements of a task. Four tensors of them fill a quarter of a second-level cache, which is enough
/// work for a thread.
pub(crate) const BLOCK: usize = 1 << 14;

impl Threads {
    /// The sum of `of` over the items, added in their order whatever thread computes them.
    pub(crate) fn sum<T: Send>(self, items: impl Iterator<Item = T>, term: impl Fn(T) -> f64 + Sync + Send) -> f64 {
        match self {
            Threads::Caller => items.map(term).fold(0.0, |sum, term| sum + term),
            Threads::Pool => {
                let terms: Vec<f64> = items.collect::<Vec<T>>().into_par_iter().map(term).collect();
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
