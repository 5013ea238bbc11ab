#![doc = include_str!("../README.md")]
mod bar_source;
mod bars;
mod clean;
mod context_reach;
mod error;
mod exact;
mod median;
mod parse;
mod place;
mod proof;
mod read;
mod series;
mod spill;
mod spool;
mod ticks;
mod time;
mod unknown_name;

pub use bar_source::{BarSource, partition_point};
pub use bars::{Bar, Bars};
pub use clean::gap::{GapPolicy, Weekends};
pub use clean::gaps::{Gap, GapCount, GapKind, Gaps};
pub use clean::jumps::Jump;
pub use context_reach::ContextReach;
pub use error::bar_difference::BarDifference;
pub use error::column_fault::ColumnFault;
pub use error::excluded::Excluded;
pub use error::function_fault::FunctionFault;
pub use error::look_ahead::{LookAhead, LookAheadEffect, Perturbation};
pub use error::message::BarShortage;
pub use error::row_error::{OnError, RowError, RowFix};
pub use error::tick_error::TickError;
pub use error::{Error, Result};
pub use parse::adjustment::{Adjustments, ShareSplit};
pub use parse::encoding::ByteOrder;
pub use parse::format_name::FormatName;
pub use parse::header::{NumberColumn, TableColumns};
pub use parse::ledger::RowCount;
pub use parse::lines::LINE_BYTES_MAX;
pub use parse::options::{Overlaps, Prices, ReadOptions, Repeats, StampedAt};
pub use parse::symbol::{
    likely_symbol, named_pair, named_symbol, pair_without_ending, pip_size_of, trades_around_the_clock,
};
pub use parse::symbol_column::wanted_symbol;
pub use parse::symbol_pattern::SymbolPattern;
pub use parse::symbol_rows::SymbolRows;
pub use place::ObserveBytes;
pub use proof::functions::{FunctionProof, prove_functions};
pub use proof::{Moment, Proof, prove_samples, prove_scalers};
pub use read::bar_doubts::KnownBars;
pub use read::bar_lines::BarLines;
pub use read::compared::ComparedFiles;
pub use read::event_count::EventCount;
pub use read::later_weeks::later_weeks_doubt;
pub use read::summary::{BarCounts, FileSummary, OwnBars, PairSummary, ReadSummary};
pub use read::universe::{
    SymbolRead, Universe, UsableSymbols, bar_files, estimated_rows, folders_with_bars, is_bar_file, read_all,
    symbols_in_file, usable,
};
pub use read::{Recording, SpooledRecording, read, read_spooled};
pub use series::Segment;
pub use series::column_feature::{ColumnFeature, ColumnRule};
pub use series::context::{
    AGE_IN_CONTEXT, ContextBars, ContextTiming, bars_after_context, context_bars, context_reach, context_start,
    names_in_context, shared_features,
};
pub use series::feature::{FUNCTION as FUNCTION_PREFIX, Feature};
pub use series::foresight::{Foresight, foresight};
pub use series::function_stream::FunctionStream;
pub use series::functions::{
    BarFunctions, FunctionAnswers, FunctionBars, FunctionCall, FunctionColumn, FunctionTargets, WithFunctions,
};
pub use series::instrument::Instrument;
pub use series::late_targets::{LateTarget, late_targets};
pub use series::panel::{CommonSpool, ReturnPanel, WithoutReturns, return_panel, spool_common_times};
pub use series::scale::Scaling;
pub use series::scalers::{Scalers, TimeframeScaler};
pub use series::series_stream::{SeriesStep, SeriesStream};
pub use series::spec::{SeriesSpec, Window};
pub use series::streamed::{
    Observe, SampleInstants, SeriesHeader, SeriesPiece, SeriesPlan, StreamedInstrument, TimeframeHeader,
    TimeframePiece, WarmUp, bars_before,
};
pub use series::target::{ColumnTargets, TargetKind, TargetOrigin};
pub use series::triple_barrier::{BarrierUnit, TripleBarrier};
pub use spool::SpooledBars;
pub use ticks::aggregator::TickBar;
pub use ticks::bar_rule::BarRule;
pub use ticks::format::TickFormat;
pub use ticks::options::{TickOptions, TickPrice, TickVolume};
pub use ticks::reader::{DroppedTicks, TickBarReader, TickSummary};
pub use time::bin_clock::BinClock;
pub use time::date_order::DateOrder;
pub use time::timeframe::Timeframe;
pub use time::timestamp::{is_iso_time, is_utc_name, listed, write_on_clock};
pub use time::zone::Zone;
pub use unknown_name::UnknownName;
