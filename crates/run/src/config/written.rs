//! Settings as the user wrote them.

use std::fmt;
use std::path::PathBuf;

/// One setting as the user wrote it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// `section.name`, not yet known to be a key.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.path, self.text, self.origin)
    }
}

/// Origin of a setting.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    File { file: PathBuf, line: usize },
    Environment { variable: String },
    Argument { argument: String },
    Weights { file: PathBuf },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line } => write!(f, "{}, line {line}", file.display()),
            Origin::Environment { variable } => write!(f, "environment variable {variable}"),
            Origin::Argument { argument } => write!(f, "--set {argument}"),
            Origin::Weights { file } => write!(f, "{}, by its weights", file.display()),
        }
    }
}
