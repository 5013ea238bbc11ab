//! Rows to bars: order, gaps, jumps, spacing and clocks.

pub(crate) mod fillers;
pub(crate) mod gap;
pub(crate) mod gaps;
pub(crate) mod grid;
pub(crate) mod holidays;
pub(crate) mod jumps;
pub(crate) mod midnights;
pub(crate) mod order;
pub(crate) mod sessions;
pub(crate) mod spacing;
pub(crate) mod spread;
pub(crate) mod weekly_close;
