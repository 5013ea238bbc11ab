/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of orders, batches and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size is 0.
    #[error("the {size} is 0: expected 1 or more")]
    Zero {
        /// `run length`, `batch size`, `number of accumulated batches` or `world`.
        size: &'static str,
    },

    /// There is no such rank.
    #[error("rank {rank} of a world of {world}: ranks count from 0, so that the last one is {}", world - 1)]
    Rank {
        /// The rank.
        rank: usize,
        /// The number of ranks, 1 or more.
        world: usize,
    },

    /// An epoch has no step.
    #[error(
        "{samples} samples make no step of {step_samples}; add samples, take smaller batches or keep the last batch"
    )]
    NoStep {
        /// Number of samples.
        samples: usize,
        /// Samples that a whole step takes.
        step_samples: usize,
    },
}
