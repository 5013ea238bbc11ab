//! The builders against oracles of a few lines.

mod correlation;
mod oracle;
