//! Lines for people, on standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line to standard error. A closed terminal is no error.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
