//! From bars as text to one file of aligned multi-timeframe series.

mod append;
mod bar_columns;
mod context;
mod context_table;
mod context_timing;
pub(crate) mod disk;
mod existing_series;
mod folder_files;
mod function_account;
mod function_inputs;
mod functions;
pub(crate) mod implausible;
mod named_options;
mod new_bars;
pub(crate) mod provenance;
pub(crate) mod recipe;
mod series;
mod source_files;
pub(crate) mod spool;
#[cfg(test)]
mod tests;
pub(crate) mod universe;
mod warm_up;
pub(crate) mod work;

pub use append::append;
pub use bar_columns::{BarColumn, BarColumns, BarTimeColumn, BarTimes};
pub use context_table::ContextTable;
pub(crate) use existing_series::open_through_cache;
pub use function_inputs::FunctionInputs;
pub(crate) use function_inputs::{FurtherInputs, age_column, changed_functions, context_symbol, missing_context};
pub(crate) use functions::{FunctionUse, ReadBars};
pub use megabatch_bars::Error as BarsError;
pub use megabatch_bars::{
    BarFunctions, Bars, BinClock, ColumnFeature, ContextBars, ContextReach, ContextTiming, DateOrder, Feature,
    FormatName, FunctionCall, FunctionColumn, FunctionFault, FunctionTargets, OnError, Overlaps, Prices, Repeats,
    Scaling, StampedAt, SymbolPattern, TableColumns, TargetKind, Timeframe, Weekends, Zone, context_bars,
    context_reach, context_start, is_iso_time, is_utc_name, likely_symbol, names_in_context, shared_features,
};
pub use recipe::{
    BarClock, Bins, Calendar, ContextFile, FeatureList, PipSizes, Recipe, SampleRange, Windows, column_name,
    symbol_name,
};
pub(crate) use recipe::{Recordings, StreamedRecordings, fit, instruments_of};
pub use series::ingest;
pub(crate) use series::taken_for;
