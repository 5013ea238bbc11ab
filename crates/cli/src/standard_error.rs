//! Lines for people, on standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line to standard error. One that nobody reads any more, as that of a terminal that was
/// closed, is no reason to lose a run.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
