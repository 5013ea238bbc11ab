//! Samples, splits, schedules and prefetching.

pub(crate) mod data_check;
pub(crate) mod level;
pub(crate) mod prefetch;
pub(crate) mod prefetching;
pub(crate) mod samples;
pub(crate) mod schedule;
pub(crate) mod split;
