//! Samples, splits, schedules and prefetching.

pub(crate) mod carried_rows;
pub(crate) mod data_check;
pub(crate) mod device_chunks;
pub(crate) mod evenly_spaced;
pub(crate) mod kept_windows;
pub(crate) mod level;
pub(crate) mod prefetch;
pub(crate) mod prefetching;
pub(crate) mod sample_ranges;
pub(crate) mod sample_weights;
pub(crate) mod samples;
pub(crate) mod schedule;
pub(crate) mod series_in_memory;
pub(crate) mod split;
pub(crate) mod target_scales;
