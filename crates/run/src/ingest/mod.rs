//! From bars as text to one file of aligned multi-timeframe series.

mod bar_columns;
mod disk;
mod named_options;
pub(crate) mod provenance;
mod recipe;
mod series;
mod spool;
#[cfg(test)]
mod tests;
pub(crate) mod universe;
mod work;

pub use bar_columns::{BarColumns, BarTimes};
pub use megabatch_bars::{
    DateOrder, Feature, FormatName, OnError, Prices, Repeats, Scaling, StampedAt, SymbolPattern, TargetKind, Timeframe,
    Weekends, Zone,
};
pub(crate) use recipe::Recordings;
pub use recipe::{Calendar, FeatureList, PipSizes, Recipe, SampleRange, Windows, symbol_name};
pub use series::ingest;
