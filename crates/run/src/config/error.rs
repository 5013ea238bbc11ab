use std::path::PathBuf;

use thiserror::Error;

use super::written::Written;

pub(crate) type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// Errors of a configuration.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("{}: cannot be read: {reason}", file.display())]
    Unreadable { file: PathBuf, reason: std::io::Error },

    #[error("{}, line {line}: {message}", file.display())]
    Yaml { file: PathBuf, line: usize, message: String },

    #[error("--set {argument}: expected key=value{}", hint(argument))]
    NotAnAssignment { argument: String },

    #[error(
        "{}: this path is not UTF-8, and the run's config.yaml can hold text only; rename it, or give another path to it",
        path.display()
    )]
    PathNotText { path: PathBuf },

    #[error("{variable} in the environment is not UTF-8; unset it or give it another value")]
    NotText { variable: String },

    #[error(
        "training.loss = {loss} is the loss of the median and contradicts training.quantile; leave training.quantile out, or set \
         training.loss = quantile"
    )]
    NotTheMedian { loss: String },

    #[error("{origin}: unknown key `{path}`; the nearest known key is `{nearest}` (`megabatch config` lists them all)")]
    UnknownKey { path: String, origin: String, nearest: &'static str },

    #[error("{origin}: {path} = {text}: expected {expected}")]
    BadValue { path: String, text: String, origin: String, expected: String },

    #[error("{written} contradicts {other}: they mean one setting; keep one")]
    Contradiction { written: Box<Written>, other: Box<Written> },
}

/// The likely meaning of an argument without `=`.
fn hint(argument: &str) -> String {
    let argument = argument.trim();
    match argument.split_once([' ', ':']) {
        Some((key, value)) => format!("; write `--set {}={}`", key.trim(), value.trim()),
        None => format!(", such as --set {argument}=VALUE, without a blank"),
    }
}
