//! Timestamps, time zones and timeframes.

pub(crate) mod bin_clock;
pub(crate) mod date_order;
pub(crate) mod epoch;
pub(crate) mod numbers;
pub(crate) mod timeframe;
pub(crate) mod timestamp;
pub(crate) mod zone;
