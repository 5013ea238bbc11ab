#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod align;
mod bars;
mod error;
mod feature;
mod feature_table;
mod format;
mod gaps;
mod header;
mod lines;
mod read;
mod resample;
mod rolling;
mod row;
mod scale;
mod source;
mod spacing;
mod spec;
mod summary;
mod symbol;
mod target;
mod timeframe;
mod timestamp;
mod trouble;
mod weekly_close;
mod zone;

pub use align::{AlignedSeries, TimeframeSeries, align};
pub use bars::{Bar, Bars};
pub use error::{Error, Result, Shortage};
pub use feature::Feature;
pub use feature_table::FeatureTable;
pub use format::FormatName;
pub use gaps::{Gap, Gaps};
pub use read::{ReadOptions, Recording, StampedAt, read};
pub use resample::resample;
pub use scale::Scaling;
pub use spec::{SeriesSpec, Window};
pub use summary::{FileSummary, ReadSummary};
pub use symbol::{pip_size_of, symbol_of};
pub use target::TargetKind;
pub use timeframe::Timeframe;
pub use trouble::{Dropped, OnError, Trouble};
pub use zone::Zone;
