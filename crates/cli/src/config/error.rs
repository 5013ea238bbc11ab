use std::path::PathBuf;

use thiserror::Error;

pub(crate) type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// What can be wrong with a configuration.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("{}: cannot be read: {reason}", file.display())]
    Unreadable { file: PathBuf, reason: std::io::Error },

    #[error("{}, line {line}: {message}", file.display())]
    Yaml { file: PathBuf, line: usize, message: String },

    #[error("--set {argument}: expected key=value")]
    NotAnAssignment { argument: String },

    #[error("{origin}: unknown key `{path}`; the nearest known key is `{nearest}` (`megabatch config` lists them all)")]
    UnknownKey { path: String, origin: String, nearest: &'static str },

    #[error("{origin}: {path} = {text}: expected {expected}")]
    BadValue { path: String, text: String, origin: String, expected: String },

    #[error(
        "{path} = {text} ({origin}) contradicts {other_path} = {other_text} ({other_origin}): they mean one setting; keep one"
    )]
    Contradiction {
        path: String,
        text: String,
        origin: String,
        other_path: String,
        other_text: String,
        other_origin: String,
    },
}
