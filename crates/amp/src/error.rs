use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of mixed precision.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, or a number of a stored state, is out of its range.
    #[error("{setting}: expected {expected}, found {found}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        found: String,
        /// Allowed values.
        expected: &'static str,
    },

    /// Gradients overflow although the loss is hardly scaled any more.
    #[error(
        "the loss scale is at its floor of {scale:e} and the gradients still overflow, first {tensor} at index {index}: \
         train in bf16 or fp32, lower the learning rate, or look for the cause in that tensor"
    )]
    ScaleCollapsed {
        /// The scale, which is the floor.
        scale: f32,
        /// Name of the first tensor that overflowed.
        tensor: String,
        /// The first element of it that did.
        index: usize,
    },

    /// A matrix with an infinite or NaN weight cannot be quantised.
    #[error(
        "the weight of output {output} and input {input} is infinite or NaN, and cannot be quantised: look for the step that made it so"
    )]
    NotFiniteWeight {
        /// Row of the matrix.
        output: usize,
        /// Column of the matrix.
        input: usize,
    },
}

impl Error {
    pub(crate) fn setting(setting: &'static str, found: &impl ToString, expected: &'static str) -> Self {
        Error::Setting { setting, found: found.to_string(), expected }
    }
}
