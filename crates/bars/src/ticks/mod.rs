//! Ticks to bars, in one pass and in memory that does not depend on the length of the files.
//!
//! ```text
//! TickFile    rows or records of one file          -> ticks, or what is wrong with a row
//! Aggregator  ticks in order of time               -> bars
//! TickBarReader   files in order of their first tick   -> bars, and a summary
//! ```

pub(crate) mod aggregator;
pub(crate) mod bar_rule;
pub(crate) mod bi5;
pub(crate) mod clock;
pub(crate) mod columns;
pub(crate) mod file;
pub(crate) mod format;
pub(crate) mod layout;
pub(crate) mod options;
pub(crate) mod reader;
pub(crate) mod row;
#[cfg(test)]
mod tests;
