//! Aligned bars as the contents of a series file.

use std::collections::BTreeMap;

use megabatch_bars::{AlignedSeries, Scaling, SeriesSpec, Timeframe, TimeframeSeries};
use megabatch_chunk_io::{AttributeValue, Scaler, Series, SeriesTimeframe};

/// What the file says of itself beside its numbers.
pub(crate) struct Origin<'a> {
    pub(crate) symbol: &'a str,
    pub(crate) spec: &'a SeriesSpec,
    /// What was read and what was found in it, as JSON.
    pub(crate) source: String,
}

/// The series as it is written to disk.
pub(crate) fn series_file(aligned: AlignedSeries, origin: Origin<'_>) -> Series {
    let scaling = origin.spec.scaling;
    let fit_end_time = aligned.fit_end_time;
    Series {
        timeframes: aligned
            .timeframes
            .into_iter()
            .map(|timeframe| series_timeframe(timeframe, scaling, fit_end_time))
            .collect(),
        sample_time: aligned.sample_time,
        sample_reach_time: Vec::new(),
        targets: aligned.targets,
        instruments: None,
        attributes: attributes(aligned.base, origin),
    }
}

fn attributes(base: Timeframe, Origin { symbol, spec, source }: Origin<'_>) -> BTreeMap<String, AttributeValue> {
    let horizon = i64::try_from(spec.horizon).expect("a horizon that fits in memory");
    let attributes: [(&str, AttributeValue); 7] = [
        ("base", base.name().into()),
        ("builder", concat!("megabatch ", env!("CARGO_PKG_VERSION")).into()),
        ("symbol", symbol.into()),
        ("pip_size", spec.pip_size.into()),
        ("target_kind", spec.target_kind.name().into()),
        ("horizon_bars", horizon.into()),
        ("source", source.into()),
    ];
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn series_timeframe(timeframe: TimeframeSeries, scaling: Scaling, fit_end_time: i64) -> SeriesTimeframe {
    SeriesTimeframe {
        name: timeframe.timeframe.to_string(),
        steps: timeframe.seq_len,
        feature_names: timeframe.feature_names().into_iter().map(str::to_owned).collect(),
        values: timeframe.values,
        close_time: timeframe.close_time,
        sample_end: timeframe.end,
        instrument_start: Vec::new(),
        segment_start: Vec::new(),
        scaler: Some(Scaler {
            kind: scaling.to_string(),
            center: timeframe.center,
            scale: timeframe.scale,
            fit_end_time,
        }),
    }
}
