//! Memory of a run before it starts.

pub(crate) mod footprint;
