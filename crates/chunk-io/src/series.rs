//! The series layout: bars stored once, a window being an index into them.

mod bar_times;
mod check;
mod check_in_pieces;
mod columns;
mod description;
mod instrument_runs;
mod latest;
mod mark;
mod open;
mod pieces;
mod rule_checker;
mod seal;
mod timeframe;
#[cfg(any(test, feature = "conformance"))]
#[path = "series/tests/whole.rs"]
mod whole;
mod write;

use std::collections::BTreeMap;

pub use columns::SeriesColumn;
pub use description::{BarRows, SampleRows, SeriesDescription, TimeframeDescription, WindowEnds};
pub(crate) use mark::GROUP as MARK_GROUP;
pub use mark::is_fingerprint_of_blocks;
pub use open::SeriesFile;
pub use pieces::{SeriesWriter, write_series_in_pieces};
pub(crate) use seal::seal;
pub use timeframe::SeriesTimeframeFile;
#[cfg(any(test, feature = "conformance"))]
pub use whole::remove_mark;
pub use write::write_series;

use crate::numeric_dataset::{ElementKind, Expect};
use crate::text::AttributeValue;

/// The version of the series layout that this crate writes and reads.
pub(crate) const FORMAT_VERSION: i64 = 1;

const TIMES: Expect =
    Expect { what: "integers [bars] or [N], ns since 1970 UTC", kinds: &[ElementKind::Integer], ranks: 1..=1 };
const INDICES: Expect = Expect { what: "a list of integers", kinds: &[ElementKind::Integer], ranks: 1..=1 };

/// Everything that a series file holds.
///
/// [`write_series`] takes the timeframes in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The timeframes, each with bars of its own.
    pub timeframes: Vec<SeriesTimeframe>,
    /// Time of each sample, `[N]`, ns since 1970 UTC.
    pub sample_time: Vec<i64>,
    /// Open time of the earliest bar that each sample depends on, `[N]`, ns since 1970 UTC: in its
    /// windows or in the look-back of their features. Empty if unknown.
    pub sample_reach_time: Vec<i64>,
    /// Close time of the last bar that each sample's targets read, `[N]`, ns since 1970 UTC. Empty
    /// if unknown.
    pub sample_label_end_time: Vec<i64>,
    /// Weight of each sample in the loss of training, `[N]`, finite and at least 0. Empty where all
    /// count alike.
    pub sample_weight: Vec<f32>,
    /// `[N, K]`, row-major, K ≥ 1.
    pub targets: Vec<f32>,
    /// Instruments of the file.
    pub instruments: Option<Instruments>,
    /// Root attributes besides `layout` and `format_version`.
    pub attributes: BTreeMap<String, AttributeValue>,
}

/// One timeframe of a [`Series`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesTimeframe {
    /// Name such as `M5`.
    pub name: String,
    /// Length of a window in bars, T.
    pub steps: usize,
    /// Names of the F features.
    pub feature_names: Vec<String>,
    /// `[bars, F]`, row-major, already scaled: what the model sees.
    pub values: Vec<f32>,
    /// Close time of each bar, `[bars]`, ns since 1970 UTC, strictly increasing within an
    /// instrument.
    pub close_time: Vec<i64>,
    /// Index of the last bar of each sample's window, `[N]`.
    pub sample_end: Vec<i64>,
    /// First bar of each instrument and, last, the number of bars, `[I + 1]`. Empty where there is
    /// one unnamed instrument.
    pub instrument_start: Vec<i64>,
    /// First bar of each segment, `[S]`, increasing; empty where every instrument is one segment.
    ///
    /// A segment is a stretch of bars of one instrument without a hole that windows must not cross.
    pub segment_start: Vec<i64>,
    /// Scaler of the values, if they were scaled.
    pub scaler: Option<Scaler>,
}

/// Scaler of values: `scaled = (raw - center) / scale`. Kept for the inverse; nothing is rescaled
/// when a file is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaler {
    /// `robust`, `standard` or `none`.
    pub kind: String,
    /// `[F]`, or `[I, F]` where each instrument has its own.
    pub center: Vec<f64>,
    /// As `center`.
    pub scale: Vec<f64>,
    /// Bars that closed before this instant were used to fit, ns since 1970 UTC.
    pub fit_end_time: i64,
}

/// The instruments of a [`Series`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruments {
    /// Their names, `[I]`.
    pub names: Vec<String>,
    /// The instrument of each sample, `[N]`, an index into `names`.
    pub sample_instrument: Vec<i32>,
}
