//! Memory: results of allocators on a program's requests, and the memory of a run at a moment.

mod replay;
mod snapshot;
mod table;
mod trace;

pub use megabatch_alloc_lab::Policy;
pub use replay::{Policies, ReplayOptions, Trace, replay};
pub use snapshot::{SnapshotOptions, snapshot};
pub use table::table;
pub use trace::{PatternName, patterns, trace};
